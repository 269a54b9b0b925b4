"""The one decoder of what other parties write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import jetspark
from jetspark.errors import DocumentError
from jetspark.wire import js_api
from jetspark.wire.documents import decode_document, decode_json, decode_msgpack

_BAD = [
    b"",
    b"{",
    b"[]",
    b'{"type":"\xff"}',
    b'{"\xff":1}',
    b'{"a":"\xed\xa0\x80"}',
    b'{"a":"\\ud800"}',
    b'{"a":1e999}',
    b'{"a":' + b"1" * 5000 + b"}",
    b'{"a":' * 100_000,
    b'{"a":' * 200 + b"1" + b"}" * 200,
]


@pytest.mark.parametrize("data", _BAD, ids=lambda data: data[:12])
def test_whatever_comes_is_a_document_error(data: bytes) -> None:
    with pytest.raises(DocumentError, match=r"^Unreadable advisory: ") as error:
        decode_document(data, "advisory")
    assert error.value.document == "advisory"
    with pytest.raises(DocumentError):
        decode_json(data, dict[str, int], "advisory")
    with pytest.raises(DocumentError):
        decode_msgpack(data, list[str], "pack")


def test_text_that_no_utf8_has_is_a_document_error() -> None:
    with pytest.raises(DocumentError):
        decode_document('{"a":"\ud800"}', "configuration")
    with pytest.raises(DocumentError):
        decode_msgpack(msgspec.msgpack.encode(["x"]).replace(b"x", b"\xff"), list[str], "names")


# The decoder itself; and the kernel, whose columns of numbers are digits that it has matched.
_DECODERS = {"wire/documents.py", "wire/_python_kernel.py"}
# Those that turn every error of a decoder into an answer of their own.
_DECODERS |= {"jetstream/fast_ingest.py", "payloads/unknown_fields.py"}
_DECODERS |= {"tables/upserts.py", "spark/table_sink/ledger.py"}
_DECODERS |= {"spark/source/infer_schema.py", "payloads/json_shape.py", "registry/compatibility.py"}
_DECODERS |= {f"payloads/{one}.py" for one in ("avro_schema", "cloudevents", "codec")}
_DECODERS |= {f"payloads/debezium_{one}.py" for one in ("events", "placeholders", "schema")}
_DECODERS |= {f"payloads/json_{one}.py" for one in ("schema", "columns", "plain")}
# What Spark, its JVM and our own processes wrote.
_OURS = {"spark/queries/progress.py", "spark/checkpoints.py", "spark/fast_start/fork_server.py"}
_OURS |= {"wire/trace.py", "registry/json_rules.py", "spark/pipelines/table_rows.py"}
_OURS |= {"tables/row_expressions.py", "tables/statistics.py"}
_OURS |= {
    f"spark/table_sink/{one}.py" for one in ("option_texts", "schema_evolution", "task_output")
}


def test_nothing_else_decodes_json_or_messagepack() -> None:
    package = Path(jetspark.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if _DECODES.search(path.read_text("utf-8"))
    }
    assert found <= _DECODERS | _OURS


_DECODES = re.compile(
    r"\bmsgspec\.(json|msgpack)\.(decode|Decoder)\b|\bmsgspec\.convert\b"
    r"|\bjson(_module)?\.(loads|load|JSONDecoder)\b"
)


_ANSWERS: list[tuple[js_api.Call, dict[str, Any]]] = [
    (js_api.STREAM_INFO, {"config": {}, "state": []}),
    (js_api.STREAM_INFO, {"error": "no"}),
    (js_api.STREAM_INFO, {"error": {"code": "x"}}),
    (js_api.STREAM_LIST, {"total": "1"}),
    (js_api.STREAM_NAMES, {"streams": 1}),
    (js_api.STREAM_PURGE, {"purged": None}),
    (js_api.CONSUMER_INFO, {"config": {}, "delivered": {}}),
    (js_api.MSG_GET, {}),
]


@pytest.mark.parametrize(("call", "answer"), _ANSWERS)
def test_an_answer_without_what_is_read_of_it_is_a_document_error(
    call: js_api.Call, answer: dict[str, Any]
) -> None:
    document = {"type": f"io.nats.jetstream.api.v1.{call.answer}", **answer}
    with pytest.raises(DocumentError) as unreadable:
        js_api.parse_answer(call, msgspec.json.encode(document), {})
    assert unreadable.value.document.startswith(("answer to ", "error in "))

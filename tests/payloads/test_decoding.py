"""What users give for payloads of any format: schemas with mistakes, and what is sent to tasks."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.payloads.avro_schemas import written
from tests.payloads.test_framing import OLD, confluent
from tests.payloads.test_protobuf import SOURCE, Order

from jetspark.errors import ConfigError
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.schema import PayloadSchema

GOOD: dict[str, tuple[dict[str, Any], bytes]] = {
    "avro": ({"schema": json.dumps(OLD)}, written(OLD, {"a": 1})),
    "protobuf": (
        {"schema": SOURCE, "message": "Order", "fields": ["f_int32"]},
        Order(f_int32=1).SerializeToString(),
    ),
    "cloudevents": (
        {"schema": "id INT"},
        b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"id": 1}}',
    ),
    "debezium": ({"schema": "id INT"}, b'{"id": 1}'),
}


def batch(*payloads: bytes) -> pa.RecordBatch:
    seqs = pa.array(range(1, len(payloads) + 1), pa.int64())
    return pa.record_batch([seqs, pa.array(payloads, pa.binary())], ["seq", "data"])


@pytest.mark.parametrize("format_", GOOD)
def test_a_bad_payload_stays_and_the_others_if_all_are_to_stay(format_: Any) -> None:
    how, good = GOOD[format_]
    for keep in (False, True):
        decoding = Decoding.make(format_, keep_payload=keep, **how)
        decoding.decoder()  # used, as in the driver
        sent = pickle.loads(pickle.dumps(decoding))
        found = sent.decoder().decode_batch(batch(good, b"\xff", good)).to_pylist()
        assert [row.get("data") for row in found] == ([good, b"\xff", good] if keep else [None] * 3)
        bad = "\ufffd" if format_ == "json" else b"\xff"
        assert [row["_corrupt_record"] for row in found] == [None, bad, None]
        assert [row["_corrupt_reason"] is None for row in found] == [True, False, True]


@pytest.mark.parametrize(
    ("format_", "text", "said"),
    [
        ("avro", "{", "The Avro schema cannot be used: it is not JSON"),
        (
            "protobuf",
            'syntax = "proto3";\nmessage A { int64 id = 1 }',
            r'The Protobuf schema cannot be compiled: line 2, column 26: Expected ";"\.',
        ),
        ("cloudevents", "{", "The schema of the data cannot be used"),
        (
            "debezium",
            'syntax = "proto3";\nmessage A { int64 id = 1; int64 id2 = 2; }',
            r"""The schema cannot be used: 'syntax = "proto3";\\nmessage A \{ .*… is not a name""",
        ),
    ],
)
def test_a_mistake_names_the_file(tmp_path: Path, format_: Any, text: str, said: str) -> None:
    file = tmp_path / "order.proto"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"^{file}: {said}"):
        Decoding.make(format_, schema_file=str(file))


@pytest.mark.parametrize("format_", ["avro", "protobuf", "debezium"])
def test_a_frame_that_nobody_named_is_guessed_at(format_: Any) -> None:
    how, good = GOOD[format_]
    framed = confluent(1, good) + b"\xff"
    decoder = Decoding.make(format_, **how).decoder()
    first, second = (
        decoder.decode_batch(batch(framed, b"\xff")).column("_corrupt_reason").to_pylist()
    )
    assert "It begins with a zero byte" in first
    assert "zero byte" not in second
    named = Decoding.make(format_, framing="confluent", **how).decoder()
    reason = (
        named.decode_batch(batch(confluent(1, b"\0\0\0\0\0\0\xff")))
        .column("_corrupt_reason")[0]
        .as_py()
    )
    assert "It begins" not in reason


def test_only_a_schema_that_comes_from_a_registry_by_its_name_has_new_versions() -> None:
    class Registry:
        def by_id(self, number: int) -> PayloadSchema:
            raise AssertionError

        def by_name(
            self, name: str, version: int | None, format: str | None = None
        ) -> PayloadSchema:
            return PayloadSchema("avro", '"long"', name=name, version=3)

    named: Any = {"lookup": Registry(), "schema_name": "n", "on_new_version": "stop"}
    assert Decoding.make("avro", **named).watched == "n"
    with pytest.raises(ConfigError, match="comes from a registry by its name"):
        Decoding.make("avro", schema='"long"', on_new_version="stop")
    with pytest.raises(ConfigError, match="or its name in the registry, not both"):
        Decoding.make("avro", **named, schema='"long"')
    with pytest.raises(ConfigError, match="The schema's version must be at least 1"):
        Decoding.make("avro", **named, schema_version=0)

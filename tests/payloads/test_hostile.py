"""No payload, header or schema of others stops a decoder, or changes a good row beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.payloads.avro_schemas import named, payload_schema, record, written
from tests.payloads.test_framing import NEW, OLD, Registry, batch, confluent, packed
from tests.payloads.test_protobuf import ORDER, SOURCE, Order

from jetspark.errors import RegistryError, SchemaNotFoundError
from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import Framing
from jetspark.payloads.schema import PayloadSchema
from jetspark.payloads.tolerant import TolerantDecoder
from jetspark.wire.kernel import IMPLEMENTATION

EVENT = b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"id":1}}'
Message = tuple[bytes, dict[str, str]]
COLUMNS = (
    "id BIGINT, t STRING, d DATE, at TIMESTAMP, x DOUBLE, n DECIMAL(10, 2), b BINARY, i TINYINT"
)
DECODERS: dict[str, tuple[Callable[[], Decoding], Message, dict[str, Any]]] = {
    "avro": (
        lambda: Decoding(payload_schema(OLD), Framing()),
        (written(OLD, {"a": 1}), {}),
        {"a": 1},
    ),
    "avro, confluent": (
        lambda: Decoding(payload_schema(NEW), Framing("confluent"), lookup=Registry(OLD)),
        (confluent(0, written(OLD, {"a": 1})), {}),
        {"a": 1},
    ),
    "avro, nats": (
        lambda: Decoding(payload_schema(NEW), Framing("nats"), lookup=Registry(NEW, OLD)),
        (written(OLD, {"a": 1}), {"Nats-Schema": "R", "Nats-Schema-Version": "1"}),
        {"a": 1},
    ),
    "protobuf": (
        lambda: Decoding(ORDER, Framing(with_message=True), ("f_int32",)),
        (Order(f_int32=1).SerializeToString(), {}),
        {"f_int32": 1},
    ),
    "protobuf, confluent": (
        lambda: Decoding(
            ORDER, Framing("confluent", with_message=True), ("f_int32",), Registry(ORDER)
        ),
        (confluent(0, b"\x02\x02" + Order(f_int32=1).SerializeToString()), {}),
        {"f_int32": 1},
    ),
    "cloudevents": (lambda: Decoding.make("cloudevents"), (EVENT, {}), {"ce_id": "1"}),
    "cloudevents, json": (
        lambda: Decoding.make("cloudevents", schema=COLUMNS),
        (EVENT, {}),
        {"id": 1},
    ),
    "cloudevents, protobuf": (
        lambda: Decoding.make("cloudevents", schema=SOURCE, message="Order", fields=["f_int32"]),
        (b"", {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t"}),
        {"ce_id": "1"},
    ),
    "debezium": (lambda: Decoding.make("debezium", schema=COLUMNS), (b'{"id": 1}', {}), {"id": 1}),
}
DEEP = 100_000
VALUES = [
    b"null", b"0", b"-0", b"1e999", b"-1e-999", b"9" * 5000, b"1." + b"0" * 5000, b"1e400000",
    b"NaN", b"Infinity", b"9223372036854775808", b"200", b'"1_000"', b"20000", b'"12:30:00"',
    b'"infinity"', b'"0000-00-00"', b'"+10000-01-01T00:00:00Z"', b'"2026-01-31t12:00:00z"',
    b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\u0000"', b'"\xed\xa0\x80"', b'"\xff"',
    b"[" * DEEP, b"[" * 990 + b"]" * 990, b'{"a":' * 500 + b"1" + b"}" * 500, b"[[null, 1]]",
    b'{"":{}}', b"true", b"[]", b"{}", b'""', b'"' + b"x" * 100_000 + b'"',
]  # fmt: skip
NAMES = [
    b"id", b"t", b"d", b"at", b"x", b"n", b"b", b"i", b"source", b"before", b"after", b"op",
    b"schema", b"payload", b"ts_ms", b"data", b"data_base64", b"time", b"datacontenttype",
    b"specversion", b"type", b"\\ud800", b"__op", b"__deleted",
]  # fmt: skip
documents = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(VALUES) | st.just(b'{"id":1}'), max_size=6
).map(lambda pairs: b"{" + b",".join(b'"%s":%s' % pair for pair in pairs.items()) + b"}")
events = documents.map(lambda one: EVENT[:-1].replace(b'{"id":1}', one) + b"}")
changes = st.tuples(documents, documents).map(
    lambda two: b'{"op":"c","source":%s,"after":%s}' % two
)
payloads = st.one_of(
    st.sampled_from(VALUES),
    st.binary(max_size=30),
    documents,
    events,
    changes,
    st.binary(max_size=12).map(lambda end: confluent(0, end)),
    st.sampled_from([b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b" * 200, b"\x7f" * 9]),
)
HEADER_NAMES = [
    *("Content-Encoding", "Content-Type", "Nats-Schema", "Nats-Schema-Version"),
    *("ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "ce-", "ce-\u017f"),
]
HEADER_VALUES = [
    *("", "0", "1", "2", "-1", "9" * 5000, "\u0663", "1.0", "R", "%ff", "\ufffd", "\x00", "a b"),
    *("gzip", "zstd", "snappy", "br", "gzip, gzip", "identity", "x" * 2000, ".."),
    *("application/cloudevents+json", "APPLICATION/JSON", "application/json; charset=utf-16"),
]
headers = st.dictionaries(st.sampled_from(HEADER_NAMES), st.sampled_from(HEADER_VALUES), max_size=3)


@pytest.mark.full
@pytest.mark.parametrize("name", DECODERS)
@given(messages=st.lists(st.tuples(payloads, headers), min_size=1, max_size=5))
@example(messages=[(value, {}) for value in VALUES])
@example(messages=[(b"", {"Nats-Schema": "R", "Nats-Schema-Version": "9" * 5000})])
@example(messages=[(b"\x02", {"Nats-Schema": "R", "Nats-Schema-Version": "0"})])
def test_no_message_stops_a_decoder(name: str, messages: list[Message]) -> None:
    make, good, expected = DECODERS[name]
    mixed = [good, *(one for message in messages for one in (message, good))]
    rows = batch([payload for payload, _ in mixed], [given for _, given in mixed])
    found = make().decoder().decode_batch(rows)
    found.validate(full=True)
    kept = found.column("seq").to_pylist()
    reasons = dict(zip(kept, found.column(REASON).to_pylist(), strict=True))
    columns = [found.column(one).to_pylist() for one in expected]
    values = dict(zip(kept, zip(*columns, strict=True), strict=True))
    for at in range(0, len(mixed), 2):
        assert reasons[at] is None
        assert values[at] == tuple(expected.values())


GROUPS = """
import sys
from jetspark.payloads.decoding import Decoding
from tests.payloads.test_framing import batch
source = 'syntax = "proto3"; message T { L l = 1; } message L { L l = 1; int32 n = 2; }'
decoder = Decoding.make("protobuf", schema=source, message="T").decoder()
def inside(payload):
    size, prefix = len(payload), bytearray(b"\\n")
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes([*prefix, size]) + payload
def groups(depth, before=b""):
    return (before + b"\\x53") * depth + b"\\x54" * depth
bad = [
    groups(1001), groups(1_000_000), groups(1_000_000, b"\\x60\\x01"), b"\\x53" * 1_000_000,
    inside(groups(1_000_000)), inside(groups(1_000_000)) + b"\\x60\\xff",
    groups(1001) + b"\\x60\\xff",
    b"\\x8a\\x80\\x80\\x80\\x10" + inside(groups(1_000_000))[1:],
]
deep = b""
for _ in range(2000):
    deep = inside(deep)
good = [
    groups(1000), inside(groups(1000)), b"\\x62" + inside(groups(50_000))[1:], deep,
    b"\\x53\\x54" * 2000,
]
rows = decoder.decode_batch(batch([one for pair in zip(bad, good * 2) for one in pair]))
print([one is not None for one in rows.column("_corrupt_reason").to_pylist()])
"""


@pytest.mark.full
@pytest.mark.skipif(IMPLEMENTATION != "c", reason="Protobuf's own library takes 100 groups.")
def test_no_depth_of_groups_in_protobuf_ends_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROUPS], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", f"{[True, False] * 8}\n")


class Raising:
    """Raises for the payloads that say so, as no decoder should."""

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        return pa.schema([*columns, pa.field("text", pa.string()), pa.field(REASON, pa.string())])

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = [_RAISED[payload]() for payload in batch.column("data").to_pylist()]
        columns = [*batch.columns, pa.array(texts, pa.string()), pa.nulls(len(texts), pa.string())]
        return pa.RecordBatch.from_arrays(columns, schema=self.decoded_schema(batch.schema))


def test_wide_elements_are_decoded_in_parts_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetspark.payloads.columns.MAX_DECODED_BYTES", 16 << 20)
    columns = " ".join(f"int64 f{at} = {at + 1};" for at in range(100))
    source = f'syntax = "proto3"; message Wide {{ {columns} }} message L {{ repeated Wide l = 1; }}'
    decoder = Decoding.make("protobuf", schema=source, message="L").decoder()
    empty = b"\n\0" * 5000  # 10 KB, of which Arrow makes 4 MB
    parts = list(decoder.decode_in_parts(batch([empty] * 20)))
    assert sum(part.num_rows for part in parts) == 20
    assert max(part.nbytes for part in parts) < 16 << 20
    assert decoder.decode_batch(batch([b""] * 1000)).num_rows == 1000
    assert decoder.decode_batch(batch([])).num_rows == 0


WIDE = [f"f{at}" for at in range(100)]
AMPLIFIED: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    "json": (
        {"schema": f"l ARRAY<STRUCT<{', '.join(f'{one}: DOUBLE' for one in WIDE)}>>"},
        b'{"l": [' + b",".join([b"{}"] * 50_000) + b"]}",
        b'{"l": [{"f1": 5}]}',
    ),
    "json map": (
        {"schema": f"l MAP<STRING, STRUCT<{', '.join(f'{one}: DOUBLE' for one in WIDE)}>>"},
        b'{"l": {' + b",".join(b'"%d":{}' % at for at in range(50_000)) + b"}}",
        b'{"l": {"a": {"f1": 5}}}',
    ),
    "avro enum": (
        {
            "schema": json.dumps(
                record([{"type": "array", "items": named("enum", symbols=["x" * 900])}])
            ).replace("x0", "l")
        },
        b"\xa0\x8d\x06" + bytes(50_001),
        b"\x02\x00\x00",
    ),
    "protobuf": (
        {
            "schema": 'syntax = "proto3"; message L { repeated Wide l = 1; } message Wide { '
            + " ".join(f"double {one} = {at + 1};" for at, one in enumerate(WIDE))
            + " }",
            "message": "L",
        },
        b"\n\0" * 50_000,
        b"\n\0",
    ),
}
"""Of each format: options, a payload whose elements would take 45 MB, and a good one."""


@pytest.mark.parametrize("case", AMPLIFIED)
def test_a_payload_whose_elements_would_take_too_much_memory_is_a_bad_record(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetspark.payloads.columns.MAX_DECODED_BYTES", 16 << 20)
    options, hostile, good = AMPLIFIED[case]
    format_: Any = case.partition(" ")[0]
    decoder = Decoding.make(format_, **options).decoder()
    found = decoder.decode_batch(batch([good, hostile, good]))
    assert [bool(one) for one in found.column(REASON).to_pylist()] == [False, True, False]
    assert "becomes more than 16 MiB" in found.column(REASON)[1].as_py()
    assert [len(one or ()) for one in found.column("l").to_pylist()] == [1, 0, 1]


def _raise(error: BaseException) -> Any:
    raise error


class PanicException(BaseException):
    """As libraries in Rust raise it."""


_RAISED: dict[bytes, Callable[[], Any]] = {
    b"good": lambda: "good",
    b"number": lambda: int("9" * 5000),
    b"float": lambda: int(float("inf")),
    b"text": lambda: "\ud800",
    b"arrow": lambda: pa.scalar(2**40, pa.int8()),
    b"key": lambda: _raise(KeyError("\ud800")),
    b"memory": lambda: _raise(MemoryError()),
    b"deep": lambda: _raise(RecursionError()),
    b"panic": lambda: _raise(PanicException("index out of bounds")),
}


def test_whatever_one_payload_raises_makes_it_a_bad_record() -> None:
    payloads = [one for name in _RAISED for one in (b"good", name)]
    found = TolerantDecoder(Raising()).decode_batch(batch(payloads))
    texts, reasons = found.column("text").to_pylist(), found.column(REASON).to_pylist()
    bad = [None if one == b"good" else one for one in payloads]
    assert found.column("_corrupt_record").to_pylist() == bad
    assert [text == "good" for text in texts] == [one == b"good" for one in payloads]
    assert [reason is None for reason in reasons] == [one == b"good" for one in payloads]
    assert max(len(reason) for reason in reasons if reason) < 600


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_the_end_of_the_process_is_no_bad_record(
    ends: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_RAISED, b"end", lambda: _raise(ends()))
    with pytest.raises(ends):
        TolerantDecoder(Raising()).decode_batch(batch([b"good", b"end"]))


class OutOfReach:
    """A registry that cannot be asked."""

    def by_id(self, number: int) -> PayloadSchema:
        raise RegistryError("The schema registry cannot be reached.")

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        raise TimeoutError


def test_only_a_registry_that_cannot_be_asked_ends_the_batch() -> None:
    for framing, error in (("confluent", RegistryError), ("nats", TimeoutError)):
        decoding = Decoding(payload_schema(OLD), Framing(framing), lookup=OutOfReach())
        rows = batch([confluent(1, b"\x02")], [{"Nats-Schema": "R"}])
        with pytest.raises(error):
            decoding.decoder().decode_batch(rows)


@pytest.mark.parametrize(
    "schema",
    [
        PayloadSchema("avro", "["),
        PayloadSchema("avro", "[" * 100_000),
        PayloadSchema("avro", json.dumps({"type": "record", "name": "R", "fields": 5})),
        PayloadSchema("avro", json.dumps({"type": "record", "name": "R", "fields": [{"name": 5}]})),
        PayloadSchema("avro", json.dumps({"type": "fixed", "name": "\ud800", "size": 10**400})),
        PayloadSchema("avro", json.dumps({"type": "array", "items": {"type": {}}})),
        PayloadSchema("json", "{}"),
        PayloadSchema("protobuf", "message {"),
    ],
)
def test_no_schema_of_a_registry_stops_a_decoder(schema: PayloadSchema) -> None:
    class Spoiled(Registry):
        def by_id(self, number: int) -> PayloadSchema:
            if number == 1:
                return schema
            raise SchemaNotFoundError("There is none.") if number else AssertionError

    decoding = Decoding(payload_schema(OLD), Framing("confluent"), lookup=Spoiled())
    messages = Framing("confluent", with_message=True)
    for how in (decoding, Decoding(ORDER, messages, ("f_int32",), lookup=Spoiled())):
        rows = batch([confluent(1, b"\0\x02"), confluent(2, b"\0\x02")])
        reasons = how.decoder().decode_batch(rows).column(REASON)
        assert reasons.null_count == 0


def _peak_while_decoding(decoding: Decoding, rows: pa.RecordBatch) -> tuple[int, list[int]]:
    """The bytes that Arrow's pool and Python held at most, and the rows of each part."""
    pool = pa.default_memory_pool()
    before, sizes, most = pool.bytes_allocated(), [], 0
    tracemalloc.start()
    try:
        for part in decoding.decoder().decode_in_parts(rows):
            assert part.column(REASON).null_count == part.num_rows
            sizes.append(part.num_rows)
            most = max(most, pool.bytes_allocated() - before)
        return most + tracemalloc.get_traced_memory()[1], sizes
    finally:
        tracemalloc.stop()


@pytest.mark.full
@pytest.mark.parametrize("name", ["gzip", "zstd", "snappy"])
def test_a_batch_of_small_payloads_needs_no_more_memory_than_a_few_large_ones(name: str) -> None:
    datum = written({"type": "string"}, "x" * (7 << 20))
    rows = batch([packed(name, datum)] * 40, [{"Content-Encoding": name}] * 40)
    most, sizes = _peak_while_decoding(Decoding(payload_schema("string"), Framing()), rows)
    assert (sum(sizes), max(sizes)) == (40, 2)
    assert most < 150 << 20  # all of them have 280 MiB

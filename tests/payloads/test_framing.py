"""Frames, headers and compression around payloads; and rows of several writers in one batch."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.payloads.avro_schemas import payload_schema, written
from tests.payloads.test_protobuf import ORDER, SOURCE, Order

from jetspark.errors import SchemaNotFoundError
from jetspark.payloads import framing
from jetspark.payloads.decoder import REASON, SchemaKey
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import BadFrame, Framing, decompress_payload
from jetspark.payloads.schema import PayloadSchema
from jetspark.payloads.tolerant import CORRUPT
from jetspark.ranges.arrow import SCHEMA
from jetspark.reserved_names import UNFRAMED_PAYLOAD

OLD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "b", "type": "string", "default": "none"}, {"name": "a", "type": "long"}],
}
OTHER = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}


class Registry:
    """Schemas by their ids, and by names."""

    def __init__(self, *schemas: Any) -> None:
        self.schemas = [
            one if isinstance(one, PayloadSchema) else payload_schema(one) for one in schemas
        ]
        self.asked: list[Any] = []

    def by_id(self, number: int) -> PayloadSchema:
        self.asked.append(number)
        if number >= len(self.schemas):
            raise SchemaNotFoundError(f"The registry has no schema {number}.")
        return self.schemas[number]

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        self.asked.append((name, version))
        if version is not None and version >= len(self.schemas):
            raise SchemaNotFoundError(f"The registry has no version {version} of {name}.")
        return self.schemas[-1 if version is None else version]


def batch(payloads: list[bytes], headers: list[dict[str, str]] | None = None) -> pa.RecordBatch:
    rows = [
        {
            "stream": "S",
            "subject": "s",
            "seq": at,
            "timestamp": 0,
            "data": payload,
            "headers": [{"key": key, "value": value} for key, value in headers[at].items()]
            if headers is not None
            else None,
        }
        for at, payload in enumerate(payloads)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def rows_of(decoding: Decoding, rows: pa.RecordBatch) -> list[dict[str, Any]]:
    decoder = decoding.decoder()
    found = decoder.decode_batch(rows)
    assert found.schema == decoder.decoded_schema(rows.schema)
    found.validate(full=True)
    kept: list[dict[str, Any]] = found.drop_columns([*SCHEMA.names[:4], "headers"]).to_pylist()
    return kept


def confluent(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def test_each_payload_is_read_with_the_schema_of_its_frame() -> None:
    registry = Registry(OLD, NEW, OTHER)
    decoding = Decoding(payload_schema(NEW), Framing("confluent"), lookup=registry)
    payloads = [
        confluent(0, written(OLD, {"a": 1})),
        confluent(1, written(NEW, {"a": 2, "b": "x"})),
        confluent(0, written(OLD, {"a": 3})),
        confluent(2, written(OTHER, {"a": "no number"})),
        confluent(7, b""),
        confluent(0, b"\xff"),
        b"{}",
        b"",
    ]
    found = rows_of(decoding, batch(payloads))
    assert [(row["b"], row["a"]) for row in found[:3]] == [("none", 1), ("x", 2), ("none", 3)]
    assert [row[CORRUPT] for row in found] == [None] * 3 + payloads[3:]
    reasons = [row[REASON] for row in found[3:]]
    assert reasons.pop(2).startswith("The payload is not R in Avro: ")
    assert reasons == [
        "a is string, not long.",
        "The registry has no schema 7.",
        *[
            "The payload does not begin with a zero byte and 4 bytes of a schema's id, as with the "
            "framing confluent."
        ]
        * 2,
    ]
    assert sorted(registry.asked) == [0, 1, 2, 7]
    assert rows_of(decoding, batch([])) == []
    assert rows_of(decoding, batch(payloads[:1]))[0]["a"] == 1


def test_apicurio_has_eight_bytes_of_an_id() -> None:
    decoding = Decoding(payload_schema(NEW), Framing("apicurio"), lookup=Registry(OLD))
    found = rows_of(decoding, batch([bytes(9) + written(OLD, {"a": 1})]))
    assert found[0] == {"b": "none", "a": 1, CORRUPT: None, REASON: None}


def test_payloads_that_are_not_decoded_come_out_of_their_frames_or_stay_as_they_are() -> None:
    (found,) = Framing("confluent").strip(batch([confluent(1, b'{"a": 1}'), b"[]"]))
    assert found.column("data").to_pylist() == [b'{"a": 1}', b"[]"]
    assert found.schema == SCHEMA


def test_headers_name_no_compression_that_was_undone() -> None:
    site, twice = {"Site": "eu"}, gzip.compress(gzip.compress(b"x"))
    payloads = [gzip.compress(b"a"), b"b", gzip.compress(b"c"), gzip.compress(b"d"), b"e"]
    headers = [
        {"content-ENCODING": " GZip"} | site,
        {"Content-Encoding": "gzip"},
        site,
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "identity"},
    ]

    def messages(name: str) -> list[tuple[bytes, Any]]:
        (found,) = Framing(compression=name).strip(batch(payloads, headers))
        assert found.schema == SCHEMA
        lists = found.column("headers").to_pylist()
        pairs = [one and {pair["key"]: pair["value"] for pair in one} for one in lists]
        return list(zip(found.column("data").to_pylist(), pairs, strict=True))

    assert messages("header") == [
        (b"a", site), (b"b", headers[1]), (payloads[2], site), (b"d", None), (b"e", headers[4])
    ]  # fmt: skip
    assert messages("gzip") == [
        (b"a", site), (b"b", headers[1]), (b"c", site), (b"d", None), (b"e", headers[4])
    ]  # fmt: skip
    rows = batch([twice]).to_pylist()
    rows[0]["headers"] = [{"key": "Content-Encoding", "value": "gzip"}] * 2
    (found,) = Framing().strip(pa.RecordBatch.from_pylist(rows, SCHEMA))
    assert gzip.decompress(found.column("data")[0].as_py()) == b"x"
    assert found.column("headers").to_pylist() == [rows[0]["headers"][:1]]


@pytest.mark.parametrize("bare", [False, True])
def test_payloads_stay_as_they_came_whatever_is_around_them(bare: bool) -> None:
    around = Framing("confluent", "gzip")
    inner = [b'{"a": 1}', b'{"a": "x"}', b"no object"]
    payloads = [gzip.compress(confluent(1, one)) for one in inner]
    payloads += [confluent(1, b"{}"), gzip.compress(b"{}")]
    decoding = Decoding(PayloadSchema("json", "a INT"), around, keep_payload=True)
    found = rows_of(replace(decoding, unframed_payload=bare), batch(payloads))
    assert [row["data"] for row in found] == payloads
    assert [row["a"] for row in found] == [1] + [None] * 4
    assert [row[REASON] is None for row in found] == [True] + [False] * 4
    unpacked = [*inner, payloads[3], b"{}"]
    texts = [None, *(one.decode("utf-8", "replace") for one in unpacked[1:])]
    assert [row[CORRUPT] for row in found] == texts
    assert [row.get(UNFRAMED_PAYLOAD) for row in found] == (unpacked if bare else [None] * 5)
    of_frames = replace(decoding, framing=Framing("confluent"), unframed_payload=bare)
    found = rows_of(of_frames, batch([gzip.decompress(one) for one in payloads[:3]]))
    assert [row["data"] for row in found] == [confluent(1, one) for one in inner]


def test_headers_name_schemas() -> None:
    registry = Registry(OTHER, OLD, NEW)
    decoding = Decoding(payload_schema(NEW), Framing("nats"), lookup=registry)
    old, new = written(OLD, {"a": 1}), written(NEW, {"a": 2, "b": "x"})
    headers = [{"Nats-Schema": "R", "Nats-Schema-Version": "1"}, {"nats-schema": "R"}, {}]
    found = rows_of(decoding, batch([old, new, new], headers))
    assert [row["b"] for row in found] == ["none", "x", "x"]
    assert registry.asked == [("R", 1), ("R", None)]
    azure = Framing("azure")
    number = "0123456789abcdef0123456789abcdef"
    bare = azure.unframe(
        batch([old, old], [{"Content-Type": f"avro/binary+{number}"}, {"Content-Type": "x"}])
    )
    assert bare.keys == [SchemaKey(name=number), SchemaKey()]


def test_a_frame_of_protobuf_says_which_message_it_has() -> None:
    schema = PayloadSchema("protobuf", SOURCE, "Order")
    framed = Framing("confluent", with_message=True)
    decoding = Decoding(schema, framed, fields=("f_int32",), lookup=Registry(schema))
    order = Order(f_int32=5).SerializeToString()
    payloads = [
        confluent(0, b"\x02\x02" + order),  # the path [1]: after Part
        confluent(0, b"\x00"),  # [0], the first one
        confluent(0, b"\x04\x02\x00"),  # [1, 0]: Order.Deep
        confluent(0, b"\x02\x0c"),
        confluent(0, b"\x04\x02"),
        confluent(0, b"\xff\xff\xff\xff\xff\x01"),
    ]
    found = rows_of(decoding, batch(payloads))
    assert found[0] == {"f_int32": 5, CORRUPT: None, REASON: None}
    assert [row[REASON] for row in found[1:]] == [
        "The payload is shop.Part, not shop.Order.",
        "The payload is shop.Order.Deep, not shop.Order.",
        "The schema of the payload has no message (6,).",
        "The payload ends before its frame says which message it is.",
        "The frame of the payload has a number of more than 32 bits.",
    ]
    first = PayloadSchema("protobuf", SOURCE)
    found = rows_of(Decoding(first, framed), batch([confluent(9, b"\x00\x08\x05")] * 2))
    assert [row["y"] for row in found] == [5, 5]
    assert "message" not in Decoding.make("protobuf", schema=SOURCE).schema.text  # compiled
    apicurio = Framing("apicurio", with_message=True)
    ref = b"\x0a\x05Order"
    assert apicurio.parse_frame(bytes(9) + bytes([len(ref)]) + ref + order) == (
        SchemaKey(0, message="Order"),
        9 + 1 + len(ref),
    )
    assert ORDER.name == "shop.Order"


def packed(name: str, payload: bytes) -> bytes:
    match name:
        case "gzip":
            return gzip.compress(payload)
        case "zstd":
            return bytes(cramjam.zstd.compress(payload))
    return bytes(cramjam.snappy.compress_raw(payload))


@pytest.mark.parametrize("name", ["gzip", "zstd", "snappy"])
def test_payloads_are_decompressed_as_a_header_or_the_option_says(name: str) -> None:
    plain = written(OLD, {"a": 7})
    small = packed(name, plain)
    by_header = Decoding(payload_schema(OLD), Framing())
    found = rows_of(
        by_header,
        batch(
            [small, plain, small],
            [{"Content-Encoding": name.upper()}, {}, {"content-encoding": "br"}],
        ),
    )
    assert [row["a"] for row in found] == [7, 7, None]
    assert found[2][REASON] == (
        "The payload is compressed with br; jetspark knows gzip, zstd and snappy."
    )
    by_option = Decoding(payload_schema(OLD), Framing(compression=name))
    found = rows_of(by_option, batch([small, small[:-1], plain * 3]))
    assert [row["a"] for row in found] == [7, None, None]
    assert f"The payload is not compressed with {name}" in found[1][REASON]


@pytest.mark.parametrize("name", ["gzip", "zstd", "snappy"])
def test_unpacking_beyond_the_limit_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_UNPACKED_BYTES", 1 << 20)
    small = packed(name, bytes(1 << 20))
    assert len(decompress_payload(small, name)) == 1 << 20
    with pytest.raises(BadFrame, match="has more than"):
        decompress_payload(packed(name, bytes((1 << 20) + 1)), name)


@given(
    st.sampled_from(
        [
            Framing(a, b, c)
            for a in ("confluent", "apicurio", "none")
            for b in ("none", "gzip", "snappy", "zstd")
            for c in (True, False)
        ]
    ),
    st.lists(
        st.one_of(st.binary(max_size=30), st.binary(max_size=20).map(lambda b: bytes(9) + b)),
        max_size=6,
    ),
)
def test_no_row_is_lost_whatever_is_in_it(how: Framing, payloads: list[bytes]) -> None:
    found = rows_of(Decoding(payload_schema(OLD), how), batch(payloads))
    assert [row[CORRUPT] is None for row in found] == [row[REASON] is None for row in found]
    assert [row[CORRUPT] for row in found if row[CORRUPT] is not None] == [
        payload for payload, row in zip(payloads, found, strict=True) if row[REASON] is not None
    ]

"""Rows of record batches as messages, and DataFrames that cannot be written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from jetspark.errors import BadHeaderError, BadSubjectError, ConfigError
from jetspark.ranges.arrow import to_batch
from jetspark.spark.data_source import SCHEMA
from jetspark.spark.stream_sink.row_encoders import RowEncoder
from jetspark.spark.stream_sink.written_columns import check_message_columns
from jetspark.stream_writes.encoded_messages import pack_messages, unpack_messages
from jetspark.wire.kernel import Deliveries

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
MAP = pa.map_(pa.string(), pa.string())


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def messages(rows: pa.RecordBatch, largest: int = 100) -> list[Any]:
    encoder = RowEncoder("S", ["s.*", "t.>"], subject=None, max_bytes=largest)
    return list(encoder.messages([rows]))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_and_bytes_are_payloads_and_null_is_an_empty_one(kind: pa.DataType) -> None:
    data = pa.array(["ä", None, ""]).cast(kind)
    encoder = RowEncoder("S", ["s.*"], subject="s.a", max_bytes=100)
    rows = list(encoder.messages([batch(data=data)]))
    assert rows == [(b"s.a", None, "ä".encode()), (b"s.a", None, b""), (b"s.a", None, b"")]


def test_subjects_come_from_the_column_and_must_belong_to_the_stream() -> None:
    rows = messages(batch(subject=["s.a", "t.b.c", "s.a"], data=["1", "2", "3"]))
    assert [row[0] for row in rows] == [b"s.a", b"t.b.c", b"s.a"]
    with pytest.raises(ConfigError, match=r"'s\.a\.b' does not belong to the stream 'S'"):
        messages(batch(subject=["s.a.b"], data=["1"]))
    with pytest.raises(ConfigError, match="no subject"):
        messages(batch(subject=pa.array([None], pa.string()), data=["1"]))
    with pytest.raises(BadSubjectError):
        messages(batch(subject=["t.a b"], data=["1"]))


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([[{"key": key, "value": key * 2} for key in "aba"], None, []], HEADERS),
        pa.array([[(key, key * 2) for key in "aba"], None, []], MAP),
    ],
)
def test_headers_keep_order_and_repeats(headers: pa.Array) -> None:
    rows = messages(batch(subject=["s.a"] * 3, data=["1"] * 3, headers=headers))
    whole = b"NATS/1.0\r\na: aa\r\nb: bb\r\na: aa\r\n\r\n"
    assert [row[1] for row in rows] == [whole, None, b"NATS/1.0\r\n\r\n"]


# No "Nats-": those are a server's. No blanks at the edges: they do not survive the wire.
header_names = st.sampled_from(["a", "A", "b", "naïve", "x-y"])
header_values = st.text(st.characters(exclude_characters="\r\n\x00", codec="utf-8"), max_size=5)
header_pairs = st.tuples(header_names, header_values.map(lambda value: value.strip(" \t")))


@given(st.lists(st.none() | st.lists(header_pairs, max_size=6), max_size=6))
def test_headers_are_read_as_they_were_written(headers: list[list[tuple[str, str]] | None]) -> None:
    written = [
        pairs if pairs is None else [{"key": key, "value": value} for key, value in pairs]
        for pairs in headers
    ]
    others = dict.fromkeys(("subject", "data"), ["s.a"] * len(headers))
    rows = messages(batch(**others, headers=pa.array(written, HEADERS)), 10_000)
    stored = Deliveries()
    for seq, (subject, block, payload) in enumerate(unpack_messages(pack_messages(rows)), 1):
        stored.append(subject, seq, 0, block, payload)
    assert to_batch("S", stored.take()).column("headers").to_pylist() == written


def test_notes_and_orders_of_a_server_are_not_written() -> None:
    headers = pa.array([[("Nats-Batch-Id", "x"), ("nats-rollup", "sub"), ("b", "1")]], MAP)
    rows = messages(batch(subject=["s.a"], data=["1"], headers=headers))
    assert rows[0][1] == b"NATS/1.0\r\nb: 1\r\n\r\n"
    only_notes = pa.array([[("Nats-Batch-Id", "x")]], MAP)
    assert messages(batch(subject=["s.a"], data=["1"], headers=only_notes))[0][1] is None


def test_a_header_that_would_break_the_protocol_or_without_a_key_is_refused() -> None:
    headers = pa.array([[("a", "1\r\nb: 2")]], MAP)
    with pytest.raises(BadHeaderError):
        messages(batch(subject=["s.a"], data=["1"], headers=headers))
    for nothing in ({"key": None, "value": "1"}, None):
        with pytest.raises(ConfigError, match="a header without a key"):
            messages(batch(subject=["s.a"], data=["1"], headers=pa.array([[nothing]], HEADERS)))


def test_column_msg_id_becomes_the_message_id() -> None:
    rows = messages(batch(subject=["s.a"], data=["1"], msg_id=["o-1"]))
    assert rows[0][1] == b"NATS/1.0\r\nNats-Msg-Id: o-1\r\n\r\n"
    with pytest.raises(ConfigError, match="no msg_id"):
        messages(batch(subject=["s.a"], data=["1"], msg_id=pa.array([None], pa.string())))


def test_a_row_that_is_too_large_is_reported_with_its_size() -> None:
    assert len(messages(batch(subject=["s.a"], data=["x" * 100]))) == 1
    with pytest.raises(ConfigError, match="has 101 bytes"):
        messages(batch(subject=["s.a"], data=["x" * 101]))


PAIRS = ArrayType(StructType().add("key", "string").add("value", "string"))


def frame(**columns: DataType | str) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"subject": "string"}, {}, "column 'data'"),
        ({"data": "binary"}, {}, "Say the subject"),
        ({"subject": "string", "data": "binary"}, {"subject": "s"}, "not both"),
        ({"subject": "string", "value": "string"}, {}, "Did you mean data"),
        ({"topic": "string", "data": "string"}, {}, "Did you mean subject"),
        ({"subject": "integer", "data": "binary"}, {}, "must be string, not int"),
        ({"subject": "string", "data": "integer"}, {}, "must be binary or string"),
        ({"data": "binary", "headers": "string"}, {"subject": "s"}, "map<string,string> or array"),
        ({"data": "binary", "msg_id": "string"}, {"subject": "s"}, "only: drop it"),
        ({"subject": "string", "data": "binary"}, {"msg_id": True}, "needs a column 'msg_id'"),
        ({"data": "binary", "price": "double"}, {"subject": "s"}, "'price' cannot be written"),
    ],
)
def test_frame_with_wrong_columns_is_refused(
    columns: dict[str, str], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        check_message_columns(frame(**columns), **{"subject": None, "msg_id": False} | options)


def test_the_source_s_own_rows_can_be_written() -> None:
    check_message_columns(SCHEMA, subject=None, msg_id=False)
    headers = MapType(StringType(), StringType())
    check_message_columns(
        frame(data="string", headers=headers, msg_id="string"), subject="s", msg_id=True
    )
    check_message_columns(frame(data="string", headers=PAIRS), subject="s", msg_id=False)

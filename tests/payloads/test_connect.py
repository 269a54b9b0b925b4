"""Values of Kafka Connect and Debezium, with their schemas and without."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.payloads.connect import ConnectDecoder
from jetspark.payloads.connect_schema import Schema, arrow_type, days_schema

_DATA, _TIME = "org.apache.kafka.connect.data", "io.debezium.time"


def decode(kind: pa.DataType, schema: Schema | None, *values: Any) -> list[Any]:
    """Values of one column. Raises ValueError with the reason of the first bad record."""
    texts = (one if isinstance(one, bytes) else json.dumps(one).encode() for one in values)
    payloads = pa.array([b'{"v":%s}' % text for text in texts], pa.binary())
    decoder = ConnectDecoder(pa.schema([("v", kind)]), {"v": schema})
    (column,), reasons = decoder.decode(payloads)
    assert column.type == kind
    column.validate(full=True)
    for value, reason in zip(column, reasons.to_pylist(), strict=True):
        if reason is not None:
            assert not value.is_valid
            raise ValueError(reason)
    found: list[Any] = column.to_pylist()
    return found


def said(kind: str, name: str | None = None, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "parameters": parameters}


CASES = [
    (said("boolean"), True, pa.bool_(), True),
    (said("int16"), -7, pa.int16(), -7),
    (said("int64"), 2**63 - 1, pa.int64(), 2**63 - 1),
    (said("float"), 1.5, pa.float32(), 1.5),
    (said("double"), 3, pa.float64(), 3.0),
    (said("string"), "Zoë", pa.string(), "Zoë"),
    (said("bytes"), "AAEC", pa.binary(), b"\0\1\2"),
    (said("bytes", "io.debezium.data.Bits", length="3"), "BQ==", pa.binary(), b"\5"),
    (said("int32", f"{_TIME}.Date"), 20000, pa.date32(), date(2024, 10, 4)),
    (said("int32", f"{_DATA}.Date"), -1, pa.date32(), date(1969, 12, 31)),
    (said("int64", f"{_TIME}.Timestamp"), -1, pa.timestamp("us"),
     datetime(1969, 12, 31, 23, 59, 59, 999000)),
    (said("int64", f"{_DATA}.Timestamp"), 1000, pa.timestamp("us"), datetime(1970, 1, 1, 0, 0, 1)),
    (said("int64", f"{_TIME}.MicroTimestamp"), 1, pa.timestamp("us"),
     datetime(1970, 1, 1, 0, 0, 0, 1)),
    (said("int64", f"{_TIME}.NanoTimestamp"), -1000, pa.timestamp("us"),
     datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (said("string", f"{_TIME}.ZonedTimestamp"), "2024-10-04T12:00:00.123456000+02:00",
     pa.timestamp("us", tz="UTC"), datetime(2024, 10, 4, 10, 0, 0, 123456, UTC)),
    (said("int32", f"{_TIME}.Time"), 45_296_000, pa.string(), "12:34:56"),
    (said("int64", f"{_TIME}.MicroTime"), 45_296_000_001, pa.string(), "12:34:56.000001"),
    (said("int64", f"{_TIME}.NanoTime"), 86_399_999_999_999, pa.string(), "23:59:59.999999999"),
    (said("int32", f"{_TIME}.Time"), -1000, pa.string(), "-00:00:01"),
    (said("int64", f"{_TIME}.MicroTime"), -3_020_399_000_001, pa.string(), "-838:59:59.000001"),
    (said("double"), "NaN", pa.float64(), pytest.approx(float("nan"), nan_ok=True)),
    (said("int64", f"{_TIME}.MicroDuration"), 1, pa.int64(), 1),
    (said("int32", f"{_TIME}.Year"), 2024, pa.int32(), 2024),
    (said("bytes", f"{_DATA}.Decimal", **{"scale": "2", "connect.decimal.precision": "5"}), "//8=",
     pa.decimal128(5, 2), Decimal("-0.01")),
    (said("bytes", f"{_DATA}.Decimal", scale="2"), "AN4=", pa.decimal128(38, 2), Decimal("2.22")),
    (said("bytes", f"{_DATA}.Decimal", **{"scale": "-2", "connect.decimal.precision": "3"}), "Bw==",
     pa.decimal128(5, 0), Decimal(700)),
    (said("bytes", f"{_DATA}.Decimal", **{"scale": "3", "connect.decimal.precision": "60"}), "AQ==",
     pa.string(), "0.001"),
    (said("struct", "io.debezium.data.VariableScaleDecimal"), {"scale": 3, "value": "AfQ="},
     pa.string(), "0.500"),
    (said("string", "io.debezium.data.Json"), '{"a": 1}', pa.string(), '{"a": 1}'),
    (said("string", "io.debezium.data.Uuid"), "0-0", pa.string(), "0-0"),
    ({"type": "array", "items": said("int32", f"{_TIME}.Date")}, [0, None],
     pa.list_(pa.date32()), [date(1970, 1, 1), None]),
    ({"type": "map", "keys": said("string"), "values": said("bytes")}, {"a": "AA=="},
     pa.map_(pa.string(), pa.binary()), [("a", b"\0")]),
    ({"type": "map", "keys": said("int32"), "values": said("string")}, [[1, "x"]],
     pa.string(), '[[1, "x"]]'),
    (said("int64", f"{_TIME}.NanoTimestamp"), 1_790_000_000_123_456_000, pa.timestamp("us"),
     datetime(2026, 9, 21, 14, 13, 20, 123456)),
    ({"type": "struct", "name": "io.debezium.data.geometry.Point",
      "fields": [said("bytes") | {"field": "wkb"}, said("int32") | {"field": "srid"}]},
     {"wkb": "AA==", "srid": None}, pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]),
     {"wkb": b"\0", "srid": None}),
]  # fmt: skip


OTHER_COLUMNS = [
    (said("int64", f"{_TIME}.Timestamp"), 1_700_000_000_001, pa.int64(), 1_700_000_000_001),
    (said("int64", f"{_TIME}.NanoTimestamp"), 1, pa.string(), "1970-01-01T00:00:00.000000001"),
    (said("int64", f"{_TIME}.Timestamp"), 86_400_000, pa.date32(), date(1970, 1, 2)),
    (said("int32", f"{_TIME}.Date"), 20000, pa.string(), "2024-10-04"),
    (said("bytes"), "AAEC", pa.string(), "AAEC"),
    (said("bytes", f"{_DATA}.Decimal", scale="2"), "AN4=", pa.float64(), 2.22),
]  # fmt: skip
"""Values in columns of another type than their schema's."""


@pytest.mark.parametrize(("schema", "value", "kind", "wanted"), [*CASES, *OTHER_COLUMNS])
def test_a_value_has_the_type_and_the_meaning_that_its_schema_says(
    schema: dict[str, Any], value: Any, kind: pa.DataType, wanted: Any
) -> None:
    if (schema, value, kind, wanted) in CASES:
        assert arrow_type(schema) == kind
    assert decode(kind, schema, value, None) == [wanted, None]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.string(), 7, "7"),
        (pa.string(), {"a": "ö"}, '{"a": "\\u00f6"}'),
        (pa.date32(), "2024-10-04Z", date(2024, 10, 4)),
        (pa.timestamp("us"), "1970-01-01T00:00:01", datetime(1970, 1, 1, 0, 0, 1)),
        (pa.decimal128(4, 2), "1.50", Decimal("1.50")),
        (pa.decimal128(4, 2), 1.5, Decimal("1.50")),
        (pa.float64(), "1e3", 1000.0),
        (pa.binary(), "AA==", b"\0"),
    ],
)
def test_a_value_without_a_schema_is_taken_for_what_the_column_says(
    kind: pa.DataType, value: Any, wanted: Any
) -> None:
    assert decode(kind, None, value) == [wanted]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.timestamp("us"), 1_700_000_000, "only a schema says the unit of a number"),
        (pa.timestamp("us"), "tomorrow", '"tomorrow" is not a TIMESTAMP_NTZ.'),
        (pa.decimal128(4, 2), "AfQ=", '"AfQ=" is not a DECIMAL(4,2).'),
        (pa.decimal128(4, 2), "1.505", "is not a DECIMAL(4,2)."),
        (pa.decimal128(4, 2), "100.00", "is not a DECIMAL(4,2)."),
        (pa.decimal128(4, 2), "NaN", "is not a DECIMAL(4,2)."),
        (pa.int8(), 128, "128 is not a TINYINT."),
        (pa.int64(), True, "true is not a BIGINT."),
        (pa.int64(), 1.0, "1.0 is not a BIGINT."),
        (pa.bool_(), 1, "1 is not a BOOLEAN."),
        (pa.float64(), "much", '"much" is not a DOUBLE.'),
        (pa.float64(), 10**400, "is not a DOUBLE."),
        (pa.binary(), "?", '"?" is not a BINARY in Base64.'),
        (pa.date32(), "soon", '"soon" is not a DATE.'),
        (pa.list_(pa.int8()), {}, "{} is not an ARRAY."),
        (pa.struct([("a", pa.int8())]), [], "[] is not a STRUCT."),
        (pa.map_(pa.string(), pa.int8()), ["a"], '["a"] is not a MAP'),
        (pa.float64(), "1_000", '"1_000" is not a DOUBLE.'),
        (pa.float64(), " 1", '" 1" is not a DOUBLE.'),
        (pa.float64(), "1e400", "is not a DOUBLE."),
        (pa.float64(), 2**53 + 1, "is not a DOUBLE."),
        (pa.float32(), 1e39, "is not a FLOAT."),
        (pa.decimal128(8, 0), "1_000", "is not a DECIMAL(8,0)."),
        (pa.decimal128(8, 0), True, "is not a DECIMAL(8,0)."),
        (pa.date32(), 20000, "20000 is not a DATE."),
        (pa.date32(), "20241004", "is not a DATE."),
        (pa.date32(), "2024-W01-1", "is not a DATE."),
        (pa.timestamp("us"), "2024-10-04", "is not a TIMESTAMP_NTZ."),
        (pa.timestamp("us"), "infinity", "is not a TIMESTAMP_NTZ."),
        (pa.timestamp("us"), "2024-10-04T12:00:00.1234567", "is not a TIMESTAMP_NTZ."),
        (pa.timestamp("us"), "2024-10-04T12:00:00+02:00", "is not a TIMESTAMP_NTZ."),
        (
            pa.timestamp("us", tz="UTC"),
            "0001-01-01T00:00:00+10:00",
            '"0001-01-01T00:00:00+10:00" is not a TIMESTAMP.',
        ),
        (pa.timestamp("us", tz="UTC"), "9999-12-31T23:59:59-10:00", "is not a TIMESTAMP."),
    ],
)
def test_a_misfit_is_refused_with_the_reason(kind: pa.DataType, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        decode(kind, None, value)


def test_values_of_one_batch_have_either_form() -> None:
    """Decimals come as bytes or as numbers, dates as days or as texts."""
    decimal = said("bytes", f"{_DATA}.Decimal", scale="2")
    wanted = [Decimal("2.22"), Decimal("12.50"), None, Decimal("-26588.24")]
    assert decode(pa.decimal128(38, 2), decimal, "AN4=", 12.5, None, "1234") == wanted
    days = days_schema(pa.date32())
    assert decode(pa.date32(), days, 0, "1970-01-02", "1970-01-03Z", None) == [
        date(1970, 1, 1), date(1970, 1, 2), date(1970, 1, 3), None,
    ]  # fmt: skip
    fields = pa.schema([("a", pa.date32()), ("b", pa.date32())])
    decoder = ConnectDecoder(fields, dict.fromkeys(fields.names, days))
    columns, reasons = decoder.decode(
        pa.array([b'{"a": 1, "b": "1970-01-02"}', b'{"a": "1", "b": 1}', b'{"b": 3}'], pa.binary())
    )
    assert reasons.to_pylist() == [None, "a: 1 is not a DATE.", None]
    assert [one.cast(pa.int32()).to_pylist() for one in columns] == [[1, None, None], [1, 1, 3]]


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        (said("bytes", f"{_DATA}.Decimal", scale="2"), 1_790_000_000, pa.timestamp("us", tz="UTC")),
        (said("bytes", f"{_DATA}.Decimal", scale="0"), "IAQ=", pa.timestamp("us", tz="UTC")),
        (said("bytes", f"{_DATA}.Decimal", scale="0"), "IAQ=", pa.date32()),
        (said("bytes", f"{_DATA}.Decimal", scale="0"), "IAQ=", pa.binary()),
        (said("bytes", f"{_DATA}.Decimal", scale="2"), "s2ayp8VnG30=", pa.float64()),
        (said("bytes", f"{_DATA}.Decimal", scale="2"), "AN4=", pa.float32()),
        (said("bytes"), "1234", pa.float64()),
        (said("bytes"), "1234", pa.decimal128(8, 0)),
        (said("string"), 1_790_000_000, pa.timestamp("us", tz="UTC")),
    ],
)
def test_a_value_of_another_type_is_never_guessed(
    schema: dict[str, Any], value: Any, kind: pa.DataType
) -> None:
    with pytest.raises(ValueError, match=r"^v: .* is not a"):
        decode(kind, schema, value)


_DAY, _MS, _US, _NS = (
    said("int32", f"{_TIME}.Date"), said("int64", f"{_TIME}.Timestamp"),
    said("int64", f"{_TIME}.MicroTimestamp"), said("int64", f"{_TIME}.NanoTimestamp"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        (_DAY, 2**31 - 1, pa.date32()),  # infinity of PostgreSQL
        (_DAY, -719_163, pa.date32()),
        (_DAY, 2_932_897, pa.date32()),
        (_DAY, 2_932_897, pa.string()),
        (_MS, 9223372036825200, pa.timestamp("us")),  # infinity
        (_US, 2**63 - 1, pa.timestamp("us")),
        (_MS, 1_700_000_000_000_000, pa.timestamp("us")),  # microseconds instead
        (_MS, 2**70, pa.timestamp("us")),
        (_NS, 1, pa.timestamp("us")),
        (_MS, 5, pa.date32()),
        (_DAY, 1.5, pa.date32()),
        (_DAY, 5, pa.timestamp("us")),
        (_MS, True, pa.timestamp("us")),
    ],
)
def test_a_time_that_the_column_cannot_have_is_refused(
    schema: dict[str, Any], value: Any, kind: pa.DataType
) -> None:
    with pytest.raises(ValueError, match=f"^v: {re.escape(json.dumps(value))} is not"):
        decode(kind, schema, value)


@pytest.mark.parametrize("schema", [_DAY, _MS, _NS, said("int64", f"{_TIME}.MicroTime")])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.decimal128(38, 0)])
def test_a_column_of_numbers_has_a_time_as_it_came(
    schema: dict[str, Any], kind: pa.DataType
) -> None:
    assert decode(kind, schema, 1_700_000_000_123) == [1_700_000_000_123]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (said("bytes", f"{_DATA}.Decimal", scale="2"), ""),
        (said("struct", "io.debezium.data.VariableScaleDecimal"), {"scale": 0, "value": ""}),
    ],
)
@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.string()])
def test_no_bytes_are_no_decimal(schema: dict[str, Any], value: Any, kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match=r'^v: .*"".* is not a'):
        decode(kind, schema, value)


def test_dates_without_a_schema_are_days_where_events_of_debezium_are_read() -> None:
    kind = pa.struct([("d", pa.date32()), ("l", pa.list_(pa.map_(pa.string(), pa.date32())))])
    days = {"d": 20000, "l": [{"a": 0}, {"b": 1}]}
    texts = {"d": "2024-10-04", "l": [{"a": "1970-01-01Z"}, {"b": "1970-01-02"}]}
    wanted = {"d": date(2024, 10, 4), "l": [[("a", date(1970, 1, 1))], [("b", date(1970, 1, 2))]]}
    assert decode(kind, days_schema(kind), days, texts) == [wanted, wanted]
    assert days_schema(pa.list_(pa.int8())) is None


def test_a_text_of_json_has_each_number_as_it_was_written() -> None:
    written = b'{"a":[1.10,12345678901234567890.1234567890123456789],"b":1e5}'
    assert decode(pa.string(), None, written) == [written.decode()]
    deep = b"[" * 190 + b"]" * 190
    assert decode(pa.string(), None, deep) == [deep.decode()]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(case=st.sampled_from(CASES), value=_JSON)
def test_any_value_is_read_or_refused(case: tuple[Any, Any, pa.DataType, Any], value: Any) -> None:
    schema, _, kind, _ = case
    for one in (schema, None):
        with suppress(ValueError):
            decode(kind, one, value)


def test_a_number_of_a_scale_that_no_database_has_is_refused() -> None:
    schema = said("struct", "io.debezium.data.VariableScaleDecimal")
    with pytest.raises(ValueError, match=r'^v: .*"scale":1000000000.* is not a STRING'):
        decode(pa.string(), schema, {"scale": 10**9, "value": "AQ=="})


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="'uint8' is no type of Kafka Connect"):
        arrow_type({"type": "uint8"})

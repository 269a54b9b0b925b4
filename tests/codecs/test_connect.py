"""Values of Kafka Connect and Debezium, with their schemas and without."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.codecs.connect import arrow_type, reader

_DATA, _TIME = "org.apache.kafka.connect.data", "io.debezium.time"


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
    (said("int64", f"{_TIME}.NanoTimestamp"), -1, pa.timestamp("us"),
     datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (said("string", f"{_TIME}.ZonedTimestamp"), "2024-10-04T12:00:00.1234567+02:00",
     pa.timestamp("us", tz="UTC"), datetime(2024, 10, 4, 10, 0, 0, 123456, UTC)),
    (said("int32", f"{_TIME}.Time"), 45_296_000, pa.string(), "12:34:56"),
    (said("int64", f"{_TIME}.MicroTime"), 45_296_000_001, pa.string(), "12:34:56.000001"),
    (said("int64", f"{_TIME}.NanoTime"), 86_399_999_999_999, pa.string(), "23:59:59.999999"),
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
     pa.map_(pa.int32(), pa.string()), [(1, "x")]),
    ({"type": "struct", "name": "io.debezium.data.geometry.Point",
      "fields": [said("bytes") | {"field": "wkb"}, said("int32") | {"field": "srid"}]},
     {"wkb": "AA==", "srid": None}, pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]),
     {"wkb": b"\0", "srid": None}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "kind", "wanted"), CASES)
def test_a_value_has_the_type_and_the_meaning_that_its_schema_says(
    schema: dict[str, Any], value: Any, kind: pa.DataType, wanted: Any
) -> None:
    assert arrow_type(schema) == kind
    read = reader(kind, schema)
    assert pa.array([read(value), read(None)], kind).to_pylist() == [wanted, None]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.string(), 7, "7"),
        (pa.string(), {"a": "ö"}, '{"a": "ö"}'),
        (pa.date32(), "2024-10-04Z", date(2024, 10, 4)),
        (pa.date32(), 0, date(1970, 1, 1)),
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
    assert pa.array([reader(kind, None)(value)], kind).to_pylist() == [wanted]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.timestamp("us"), 1_700_000_000, "only a schema says the unit of a number"),
        (pa.timestamp("us"), "tomorrow", '"tomorrow" is not a time'),
        (pa.decimal128(4, 2), "AfQ=", '"AfQ=" is not a number that fits'),
        (pa.decimal128(4, 2), "1.505", "is not a number that fits"),
        (pa.decimal128(4, 2), "100.00", "is not a number that fits"),
        (pa.decimal128(4, 2), "NaN", "is not a number that fits"),
        (pa.int8(), 128, "128 is too large for int8"),
        (pa.int64(), True, "true is not a whole number"),
        (pa.int64(), 1.0, "1.0 is not a whole number"),
        (pa.bool_(), 1, "1 is not true or false"),
        (pa.float64(), "much", '"much" is not a number'),
        (pa.float64(), 10**400, "is not a number"),
        (pa.binary(), "?", "is not bytes in base64"),
        (pa.date32(), "soon", '"soon" is not a date'),
        (pa.list_(pa.int8()), {}, "{} is not a list"),
        (pa.struct([("a", pa.int8())]), [], "[] is not an object"),
        (pa.map_(pa.string(), pa.int8()), ["a"], '["a"] is not a map'),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_reason(
    kind: pa.DataType, value: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        reader(kind, None)(value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(case=st.sampled_from(CASES), value=_JSON)
def test_any_value_is_read_or_refused(case: tuple[Any, Any, pa.DataType, Any], value: Any) -> None:
    schema, _, kind, _ = case
    for one in (schema, None):
        try:
            found = reader(kind, one)(value)
        except ValueError:
            continue
        pa.array([found], kind)


def test_a_number_of_a_scale_that_no_database_has_is_refused() -> None:
    schema = said("struct", "io.debezium.data.VariableScaleDecimal")
    with pytest.raises(ValueError, match="1000000000 is not the scale of a number"):
        reader(pa.string(), schema)({"scale": 10**9, "value": "AQ=="})


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="'uint8' is no type of Kafka Connect"):
        arrow_type({"type": "uint8"})

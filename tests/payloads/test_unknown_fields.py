"""What a schema leaves of an object."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.payloads.field_names import MESSAGE_COLUMNS, FieldNames
from jetspark.payloads.unknown_fields import common_type, find_unknown, known_fields, new_columns
from jetspark.reserved_names import UNFRAMED_PAYLOAD
from jetspark.tables.row_expressions import RowExpression

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), VALUES, max_size=6), st.sets(st.text()), st.booleans())
def test_every_field_is_in_the_schema_or_in_the_rest(
    whole: dict[str, Any], more: set[str], ascii_only: bool
) -> None:
    names = frozenset([*list(whole)[::2], *more])
    known = dict.fromkeys(names)
    rest = find_unknown(json.dumps(whole, ensure_ascii=ascii_only).encode(), known)
    wanted = {name: value for name, value in whole.items() if name not in names}
    assert (None if rest is None else json.loads(rest)) == (wanted or None)


@pytest.mark.parametrize(
    ("payload", "rest"),
    [
        (b'{"a": 1, "b": 1.50, "c" : 99999999999999999999}', '{"b":1.50,"c":99999999999999999999}'),
        (b'{"b": "\\u00e9", "B": {"a": [ 1 ]}}', '{"b":"\\u00e9","B":{"a": [ 1 ]}}'),
        (b'{"b": "\xff"}', None),
        (b'{"b": 1, "b": 2}', '{"b":2}'),
        (b'{"a": NaN, "b": [-Infinity, "NaN"], "c": 1}', '{"b":["-Infinity", "NaN"],"c":1}'),
        (b'{"b": %s}' % (b"1" * 4301), '{"b":%s}' % ("1" * 4301)),
        (b'{"a": 5}', None),
        (b"{}", None),
        (b"[1]", None),
        (b"", None),
        (None, None),
        (b'{"b": 1} {}', None),
        (b'{"b": 1', None),
        (b'{"b": ' + b"[" * 100_000, None),
    ],
)
def test_values_stay_as_they_came(payload: bytes | None, rest: str | None) -> None:
    assert find_unknown(payload, {"a": None}) == rest
    assert find_unknown(payload and bytearray(payload), {"a": None}) == rest


NESTED = (
    "pos STRUCT<lat: DOUBLE, at: STRUCT<x: INT>>, items ARRAY<STRUCT<n: INT>>, text STRING, "
    "by MAP<STRING, STRUCT<n: INT>>, rows ARRAY<ARRAY<STRUCT<n: INT>>>, plain MAP<STRING, INT>"
)


@pytest.mark.parametrize(
    ("payload", "rest"),
    [
        ('{"pos": {"lat": 1, "alt": 2.50}}', '{"pos":{"alt":2.50}}'),
        ('{"pos": {"lat": 1, "at": {"x": 1, "y": {"z": [ ]}}}}', '{"pos":{"at":{"y":{"z": [ ]}}}}'),
        ('{"pos": {"Lat": 1}, "more": true}', '{"pos":{"Lat":1},"more":true}'),
        ('{"items": [{"n": 1}, null, {"n": 2, "m": "x"}]}', '{"items":[null,null,{"m":"x"}]}'),
        ('{"items": [{"n": 1}], "text": {"n": 1}, "plain": {"k": 1}}', None),
        ('{"by": {"k": {"n": 1}, "\u00e9": {"m": null}}}', '{"by":{"\u00e9":{"m":null}}}'),
        ('{"rows": [[], [{"n": 1}, {"m": 1}]]}', '{"rows":[null,[null,{"m":1}]]}'),
        ('{"pos": {"lat": 1, "at": null}}', None),
        ('{"pos": {"lat": NaN, "alt": NaN}}', '{"pos":{"alt":"NaN"}}'),
        ('{"pos": 5, "items": {"n": 1}, "by": [1]}', None),  # a bad record
    ],
)
def test_the_rest_has_the_unknown_fields_of_objects_too(payload: str, rest: str | None) -> None:
    assert find_unknown(payload.encode(), known_fields(NESTED)) == rest
    value = RowExpression.parse("made", RowExpression.rest(NESTED).text)
    assert value.of_payload(payload.encode()) == rest


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("true", "BOOLEAN"),
        ("-5", "BIGINT"),
        ("9007199254740993", "LONG"),
        ("9223372036854775808", "STRING"),
        ("1" * 4301, "STRING"),
        ("0.5", "DOUBLE"),
        ("1e400", "STRING"),
        ("NaN", "STRING"),
        ('"x"', "STRING"),
        ('{"a": 1}', "STRING"),
        ("[" * 150 + "]" * 150, "STRING"),
    ],
)
def test_a_new_field_has_the_type_of_its_value(text: str, kind: str) -> None:
    payload = b'{"a": 1, "n": null, "timestamp": %s, "x": %s}' % (text.encode(), text.encode())
    found = new_columns(payload, {"a"}, FieldNames({"x": "y"}))
    assert json.loads(found or "") == {"payload_timestamp": kind, "y": kind}


def test_whole_numbers_beside_others_are_not_rounded() -> None:
    assert common_type("BIGINT", "DOUBLE") == "DOUBLE"
    assert common_type("LONG", "BIGINT") == "LONG"
    assert common_type("DOUBLE", "LONG") == "STRING"


@given(st.dictionaries(st.text(), VALUES, max_size=6))
def test_different_fields_have_different_columns(whole: dict[str, Any]) -> None:
    names = FieldNames({"a": "b1"})
    fields = [*whole, "data", "payload_data", "payload_payload_Data", "Seq", "payload_x", "a"]
    columns = [names.column(one) for one in fields]
    assert [names.field(one) for one in columns] == fields
    assert not {one.casefold() for one in columns} & set(MESSAGE_COLUMNS)


def test_the_rest_is_a_value_of_a_row() -> None:
    value = RowExpression.rest('a INT, `b "c]` STRING')
    assert RowExpression.parse("made", value.text) == value
    rows = pa.record_batch({UNFRAMED_PAYLOAD: [b'{"b \\"c]": 1, "d": 2}', b'{"a": 1}']})
    assert value.of(rows).to_pylist() == ['{"d":2}', None]

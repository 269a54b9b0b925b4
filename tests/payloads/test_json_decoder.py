"""What JSON payloads mean: each value exactly, or a reason with its path; docs/payloads.md."""

from __future__ import annotations

import base64
import json
import random
import time
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.json_payloads import FIELDS, NESTED, Kind, payload
from tests.wire.test_kernels import both

from jetspark.errors import ConfigError
from jetspark.payloads.ddl import arrow_fields, type_in_ddl
from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.json_decoder import JsonDecoder
from jetspark.payloads.json_objects import MAX_DEPTH
from jetspark.payloads.json_plain import PlainJsonDecoder

_NESTED_KINDS = {name: kind for name, (_, kind) in NESTED.items()}
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def decode(ddl: str, *payloads: bytes) -> tuple[list[dict[str, Any]], list[str | None]]:
    """The rows, and the reasons, on which the kernel and the decoder agree."""
    fields = arrow_fields(ddl, "json:")
    documents = pa.array(payloads, pa.binary())
    columns, reasons = PlainJsonDecoder(fields).decode(documents)
    rows = pa.RecordBatch.from_arrays(columns, schema=fields)
    rows.validate(full=True)
    columns, why = JsonDecoder(fields).decode(documents)
    assert repr(pa.RecordBatch.from_arrays(columns, schema=fields).to_pylist()) == repr(
        rows.to_pylist()
    )
    assert why.equals(reasons)
    return rows.to_pylist(maps_as_pydicts="strict"), reasons.to_pylist()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("BOOLEAN", "true", True),
        ("TINYINT", "-128", -128),
        ("BIGINT", "-9223372036854775808", -(2**63)),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("FLOAT", "16777216", 16777216.0),
        ("DOUBLE", "1", 1.0),
        ("DOUBLE", "9007199254740992", 2.0**53),
        ("DOUBLE", "147573952589676410000", 2.0**67),
        ("DOUBLE", "-Infinity", float("-inf")),
        ("DOUBLE", '"Infinity"', float("inf")),
        ("DECIMAL(10,2)", "12.50", Decimal("12.50")),
        ("DECIMAL(10,2)", "12.5000", Decimal("12.50")),
        ("DECIMAL(10,2)", '"12.5"', Decimal("12.50")),
        ("DECIMAL(10,2)", "1e3", Decimal(1000)),
        ("DECIMAL(10,2)", "99999999.99", Decimal("99999999.99")),
        ("DECIMAL(38,0)", "9" * 38, Decimal("9" * 38)),
        ("DECIMAL(38,38)", "0." + "1" * 38, Decimal("0." + "1" * 38)),
        ("STRING", '"a\\u0000\\ud83d\\ude00"', "a\0😀"),
        ("STRING", "1.50", "1.50"),
        ("STRING", '{"a": [1]}', '{"a": [1]}'),
        ("BINARY", '"AP8="', b"\0\xff"),
        ("DATE", '"2024-02-29"', date(2024, 2, 29)),
        ("DATE", '"0001-01-01"', date(1, 1, 1)),
        ("DATE", '"9999-12-31"', date(9999, 12, 31)),
        ("TIMESTAMP", '"2026-01-31T12:00:00Z"', AT),
        ("TIMESTAMP", '"2026-01-31t12:00:00z"', AT),
        ("TIMESTAMP", '"2026-01-31 17:30:00.000+05:30"', AT),
        ("TIMESTAMP", '"2026-01-31T12:00"', AT),
        ("TIMESTAMP", '"2026-01-31T12:00:00.123456789Z"', AT + timedelta(microseconds=123456)),
        ("TIMESTAMP", "1769860800", AT),
        ("TIMESTAMP_NTZ", '"2026-01-31T12:00:00"', AT.replace(tzinfo=None)),
        ("ARRAY<INT>", "[1, null, 2]", [1, None, 2]),
        ("MAP<STRING, INT>", '{"a": 1, "b": null}', {"a": 1, "b": None}),
        ("STRUCT<a: INT, b: STRING>", '{"b": "x", "c": 1}', {"a": None, "b": "x"}),
        ("ARRAY<MAP<STRING, STRUCT<x: ARRAY<INT>>>>", '[{"k": {"x": [1]}}]', [{"k": {"x": [1]}}]),
    ],
)
def test_a_value_that_fits_is_taken_exactly(kind: str, text: str, value: object) -> None:
    for beside in ((), (b"{}", b'{"v": {"odd": []}}')):
        rows, reasons = decode(f"v {kind}", *beside, b'{"v": %s}' % text.encode())
        assert (rows[-1]["v"], reasons[-1]) == (value, None)


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_a_zero_keeps_its_sign(kind: str) -> None:
    rows, _ = decode(f"v {kind}", b'{"v": -0}', b'{"v": -0.0}', b'{"v": 0}')
    assert [str(row["v"]) for row in rows] == ["-0.0", "-0.0", "0.0"]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("BOOLEAN", ['"true"', "1"]),
        ("TINYINT", ["200", "-129"]),
        ("SMALLINT", ["32768"]),
        ("INT", ["2147483648", "12.5", "1.0", '"5"']),
        ("BIGINT", ["9223372036854775808", "1" * 4301]),
        ("FLOAT", ["1e39", "16777217"]),
        ("DOUBLE", ["1e400", "9007199254740993", '"1.5"', '"1_000"']),
        ("DECIMAL(10,2)", ["1.005", "100000000", '"NaN"', '" 1_0"', "1e999999999999", "1" * 5000]),
        ("BINARY", ['"YQ"', '"Y Q=="']),
        ("DATE", ['"1"', "20000", '"2026-02-29"', '"2026-1-1"', '"0000-01-01"', '"10000-01-01"']),
        ("DATE", ['"2026-01-31T12:00:00Z"']),
        ("TIMESTAMP", ['"12:30:00"', '"2026-01-31"', '"now"', '"infinity"']),
        ("TIMESTAMP", ['"2026-01-31T24:00:00Z"', '"2026-01-31T12:00:60Z"']),
        ("TIMESTAMP", ['"2026-01-31T12:00:00+18:30"', '"2026-01-31T12:00:00 UTC"']),
        ("TIMESTAMP", ['"0001-01-01T00:00:00+10:00"', '"9999-12-31T23:59:59-10:00"']),
        ("TIMESTAMP", ["1769860800000", "1.5", "1" * 30]),
        ("TIMESTAMP_NTZ", ['"2026-01-31T12:00:00Z"', "1769860800"]),
        ("ARRAY<INT>", ['{"a": 1}', '"x"']),
        ("MAP<STRING, INT>", ["[[null, 1]]"]),
        ("STRUCT<a: INT>", ["[1]"]),
    ],
)
@both
def test_a_value_that_does_not_fit_is_a_bad_record(kind: str, texts: list[str]) -> None:
    fields = arrow_fields(f"v {kind}, w INT", "json:")
    for text in texts:
        for decoder in (JsonDecoder(fields), PlainJsonDecoder(fields)):
            payloads = [b'{"v": null, "w": 1}', b'{"v": %s, "w": 2}' % text.encode(), b'{"w": 3}']
            columns, reasons = decoder.decode(pa.array(payloads, pa.binary()))
            assert columns[0].to_pylist() == [None] * 3
            assert columns[1].to_pylist() == [1, 2, 3]
            shown = text if len(text) <= 60 else f"{text[:60]}…"
            assert reasons.to_pylist()[::2] == [None, None]
            assert reasons[1].as_py().startswith(f"v: {shown} is not a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"items": [{"price": 1}, {"price": 12.5}]}', "items[1].price: 12.5 is not an INT."),
        ('{"items": [{"tags": {"k": ["a", 1]}}]}', None),
        ('{"items": [{"by": {"k": [true, 1]}}]}', "items[0].by['k'][1]: 1 is not a BOOLEAN."),
        ('{"items": [1]}', "items[0]: 1 is not a STRUCT."),
    ],
)
def test_the_reason_has_the_path_of_the_value(text: str, reason: str | None) -> None:
    ddl = "items ARRAY<STRUCT<price: INT, tags: MAP<STRING, ARRAY<STRING>>, "
    rows, reasons = decode(ddl + "by: MAP<STRING, ARRAY<BOOLEAN>>>>", b"{}", text.encode(), b"{}")
    assert reasons == [None, reason, None]
    assert (rows[1]["items"] is None) == (reason is not None)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"null", "is null, not an object"),
        (b"[1]", "is a list, not an object"),
        (b'"x"', "is a text, not an object"),
        (b"17", "is a number, not an object"),
        (b'{"a": 1}\n{"a": 2}', "not one JSON object"),
        (b'{"a": 1}, {"a": 2}', "not one JSON object"),
        (b'{"a": 1', "not one JSON object"),
        (b"{'a': 1}", "not one JSON object"),
        (b'{"a": 01}', "not one JSON object"),
        (b'{"a": 1, "b": nan}', "not one JSON object"),
        (b'{"\\ud800": 1}', "not one JSON object"),
        (b'{"a": 1, "b": "\xff"}', "is not UTF-8: byte 15 is 0xff"),
        (b'\xef\xbb\xbf{"a": 1}', "not one JSON object"),
        (b'{"b": %s1%s}' % (b"[" * 5000, b"]" * 5000), f"nested more than {MAX_DEPTH} deep"),
        (b'{"b": [%s1]}' % (b"1," * 1_000_001), "more than 1,000,000 values"),
    ],
)
def test_a_payload_that_is_not_one_object_is_a_bad_record(data: bytes, says: str) -> None:
    rows, reasons = decode("a INT, t STRUCT<x: INT>", b'{"a": 3}', data, b'{"a": 4}')
    assert [row["a"] for row in rows] == [3, None, 4]
    assert reasons[0] is reasons[2] is None
    assert reasons[1] is not None
    assert says in reasons[1]


def test_constants_of_python_are_numbers_and_texts_keep_them() -> None:
    data = b'{"d": NaN, "t": "NaN \\" Infinity", "u": -Infinity}'
    (row,), reasons = decode("d DOUBLE, t STRING, u STRING", data)
    assert reasons == [None]
    assert row["d"] != row["d"]
    assert (row["t"], row["u"]) == ('NaN " Infinity', "-Infinity")
    assert decode("d INT", b'{"d": NaN}')[1] == ['d: "NaN" is not an INT.']


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "\x00", "é", " ", "`"])
def test_a_field_may_have_any_name(name: str) -> None:
    inside = {name: 1, "z": 2}
    data = json.dumps({name: inside, "z": 3}).encode()
    quoted = name.replace("`", "``")
    rows, reasons = decode(f"`{quoted}` STRUCT<`{quoted}`: INT, z: INT>, z INT", data, b"{}")
    assert (rows[0], reasons) == ({name: inside, "z": 3}, [None, None])


def _documents(seed: int, kinds: Any, count: int = 2_000) -> pa.BinaryArray:
    rng = random.Random(seed)
    return pa.array([payload(rng, kinds) for _ in range(count)], pa.binary())


@pytest.mark.full
@both
@pytest.mark.parametrize("kinds", [FIELDS, _NESTED_KINDS])
def test_the_kernel_and_the_decoder_agree(kinds: dict[str, Kind]) -> None:
    types = FIELDS if kinds is FIELDS else {name: ddl for name, (ddl, _) in NESTED.items()}
    fields = arrow_fields(", ".join(f"`{name}` {kind}" for name, kind in types.items()), "json:")
    documents = _documents(5, kinds, 20_000)
    columns, reasons = JsonDecoder(fields).decode(documents)
    expected, why = PlainJsonDecoder(fields).decode(documents)
    for field, one, other in zip(fields, columns, expected, strict=True):
        one.validate(full=True)
        assert repr(one.to_pylist()) == repr(other.to_pylist()), field
    assert reasons.equals(why)
    assert 2_000 < reasons.null_count < 18_000


@both
def test_columns_that_would_become_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetspark.payloads.columns.MAX_DECODED_BYTES", 100_000)
    wide = ", ".join(f"f{at}: BIGINT" for at in range(100))
    decoder = JsonDecoder(arrow_fields(f"l ARRAY<STRUCT<{wide}>>", "json:"))
    decoder.decode(pa.array([b'{"l": [{}, {}]}'] * 50, pa.binary()))
    for payloads in ([b'{"l": [%s{}]}' % (b"{}," * 111)], [b'{"l": [{}, {}]}'] * 60):
        with pytest.raises(Undecodable, match="MiB"):
            decoder.decode(pa.array(payloads, pa.binary()))


def test_columns_that_are_nested_more_deeply_than_the_kernel_builds_have_the_same_values() -> None:
    ddl = "a " + "ARRAY<" * 31 + "INT" + ">" * 31
    rows, reasons = decode(ddl, b'{"a": %s7%s}' % (b"[" * 31, b"]" * 31), b'{"a": [7]}')
    assert str(rows[0]["a"]) == "[" * 31 + "7" + "]" * 31
    assert reasons == [None, "a[0]: 7 is not an ARRAY."]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_what_is_beside_a_record_does_not_matter(seed: int) -> None:
    ddl = ", ".join(f"`{name}` {kind}" for name, (kind, _) in NESTED.items())
    fields = arrow_fields(ddl, "json:")
    decoder = PlainJsonDecoder(fields)
    documents = _documents(seed, _NESTED_KINDS)
    columns, reasons = decoder.decode(documents)
    assert 100 < reasons.null_count < 1_900
    for row in range(0, 2_000, 7):
        alone, why = decoder.decode(documents.slice(row, 1))
        assert why[0] == reasons[row]
        assert repr([one[0] for one in alone]) == repr([one[row] for one in columns])


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "DECIMAL(12,3)": st.decimals(-999_999_999, 999_999_999, places=3),
    "STRING": st.text(),
    "BINARY": st.binary(),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(timezones=st.just(UTC)),
    "TIMESTAMP_NTZ": st.datetimes(),
}


def _typed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """(type, strategy of its values), nested."""
    return st.one_of(
        inner.map(lambda of: (f"ARRAY<{of[0]}>", st.lists(of[1] | st.none(), max_size=3))),
        inner.map(
            lambda of: (
                f"MAP<STRING, {of[0]}>",
                st.dictionaries(st.text(max_size=3), of[1] | st.none(), max_size=3),
            )
        ),
        st.tuples(inner, inner).map(
            lambda of: (
                f"STRUCT<`a b`: {of[0][0]}, b: {of[1][0]}>",
                st.fixed_dictionaries({"a b": of[0][1] | st.none(), "b": of[1][1] | st.none()}),
            )
        ),
    )


def _in_json(value: Any) -> Any:
    match value:
        case datetime() | date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case list():
            return [_in_json(one) for one in value]
        case dict():
            return {name: _in_json(one) for name, one in value.items()}
    return value


@given(st.data())
def test_what_is_written_comes_back(data: st.DataObject) -> None:
    flat = st.sampled_from(sorted(_VALUES)).map(lambda name: (name, _VALUES[name]))
    kind, values = data.draw(st.recursive(flat, _typed, max_leaves=4))
    written = data.draw(st.lists(values | st.none(), max_size=4))
    texts = [json.dumps({"v": _in_json(one)}).encode() for one in written]
    rows, reasons = decode(f"v {kind}", *texts)
    assert [row["v"] for row in rows] == written
    assert reasons == [None] * len(written)


@given(st.data())
def test_a_type_has_the_same_form_in_ddl(data: st.DataObject) -> None:
    flat = st.sampled_from(sorted(_VALUES)).map(lambda name: (name, _VALUES[name]))
    kind, _ = data.draw(st.recursive(flat, _typed, max_leaves=4))
    fields = arrow_fields(f"v {kind}", "json:")
    assert arrow_fields(f"v {type_in_ddl(fields.field('v').type)}", "json:").equals(fields)


@pytest.mark.parametrize(
    ("ddl", "says"),
    [
        ("a VARCHAR(3)", "is no type that payloads have"),
        ("a VARIANT", "is no type that payloads have"),
        ("a DECIMAL(50,2)", "is no type that payloads have"),
        ("m MAP<INT, STRING>", "the keys of objects are texts"),
        ("a ARRAY", "lacks what is in it"),
        ("a STRUCT<b: INT, B: INT>", "B is there twice"),
        ("a ARRAY<INT, INT>", "not one type in brackets"),
        ("a STRUCT<b: STRNG>", "no type STRNG .did you mean STRING"),
    ],
)
def test_a_schema_of_other_types_is_refused(ddl: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        arrow_fields(ddl, "json:")


@pytest.mark.full
def test_memory_is_bounded_by_parts_of_a_batch() -> None:
    item = b'{"l": [%s1]}' % (b"1," * 250_000)
    documents = pa.array([item] * 12, pa.binary())
    decoder = PlainJsonDecoder(arrow_fields("l ARRAY<BIGINT>", "json:"))
    tracemalloc.start()
    decoder.decode(documents)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150_000_000


@pytest.mark.parametrize(
    ("kind", "item", "wrong"),
    [
        ("ARRAY<INT>", "1", '"x"'),
        ("ARRAY<ARRAY<DATE>>", '["2026-01-31"]', "[null, 5]"),
        ("ARRAY<STRUCT<b: INT, c: STRING>>", '{"b": 1, "c": "y"}', '{"b": "x"}'),
        ("ARRAY<STRUCT<b: INT>>", '{"b": 1}', "5"),
        ("ARRAY<MAP<STRING, INT>>", '{"k": 1, "l": 2}', '{"k": "x", "l": "x"}'),
    ],
)
def test_one_record_has_one_reason_for_many_values(kind: str, item: str, wrong: str) -> None:
    good, bad = [item] * 3, [item, *[wrong] * 1000, item]
    payloads = [f'{{"a": [{", ".join(one)}]}}'.encode() for one in (good, bad, good, bad, [], good)]
    decoder = PlainJsonDecoder(arrow_fields(f"a {kind}", "json"))
    (column,), reasons = decoder.decode(pa.array(payloads, pa.binary()))
    column.validate(full=True)
    assert [one is None for one in reasons.to_pylist()] == [True, False, True, False, True, True]
    assert all(one.startswith("a[1]") for one in reasons.drop_null().to_pylist())
    lengths = [None if one is None else len(one) for one in column.to_pylist()]
    assert lengths == [3, None, 3, None, 0, 3]
    times = []
    for one in (item, wrong):
        large = pa.array([f'{{"a": [{", ".join([one] * 20_000)}]}}'.encode()], pa.binary())
        start = time.process_time()
        decoder.decode(large)
        times.append(time.process_time() - start)
    assert times[1] < 5 * times[0] + 0.05

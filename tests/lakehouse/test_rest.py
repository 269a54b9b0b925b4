"""What a schema leaves of an object."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.lakehouse.rest import rest_of
from jetspark.lakehouse.routes import ValueOf

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
    rest = rest_of(json.dumps(whole, ensure_ascii=ascii_only).encode(), names)
    wanted = {name: value for name, value in whole.items() if name not in names}
    assert (None if rest is None else json.loads(rest)) == (wanted or None)


@pytest.mark.parametrize(
    ("payload", "rest"),
    [
        (b'{"a": 1, "b": 1.50, "c" : 99999999999999999999}', '{"b":1.50,"c":99999999999999999999}'),
        (b'{"b": "\\u00e9\xff", "B": {"a": [ 1 ]}}', '{"b":"\\u00e9\ufffd","B":{"a": [ 1 ]}}'),
        (b'{"b": 1, "b": 2}', '{"b":2}'),
        (b'{"a": "\\ud800", "b": ["\\ud800", 1.5]}', '{"b":["\\ud800",1.5]}'),
        (b'{"b": NaN}', None),
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
    assert rest_of(payload, {"a"}) == rest
    assert rest_of(payload and bytearray(payload), {"a"}) == rest


def test_the_rest_is_a_value_of_a_row() -> None:
    value = ValueOf.rest(["a", 'b "c]'])
    assert ValueOf.parse("made", value.said) == value
    rows = pa.record_batch({"data": [b'{"b \\"c]": 1, "d": 2}', b'{"a": 1}']})
    assert value.of(rows).to_pylist() == ['{"d":2}', None]

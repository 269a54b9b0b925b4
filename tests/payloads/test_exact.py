"""A number in any form and any DECIMAL or FLOAT: the right one, or a bad record."""

from __future__ import annotations

import json
from decimal import Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jetspark.payloads.connect import ConnectDecoder
from jetspark.payloads.ddl import arrow_fields
from jetspark.payloads.exact import cast_exactly, decimals_from_bytes
from jetspark.payloads.json_plain import PlainJsonDecoder

_WIDE = Context(prec=400)
_digits = st.text("0123456789", min_size=1, max_size=60).map(lambda text: text.lstrip("0") or "0")
_numbers = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    _digits,
    st.text("0123456789", max_size=60).map(lambda text: text and f".{text}"),
    st.integers(-120, 120).map(lambda of: f"e{of}") | st.sampled_from(["", "E-9999"]),
)


@st.composite
def _types(draw: st.DrawFn) -> pa.Decimal128Type:
    precision = draw(st.integers(1, 38))
    return pa.decimal128(precision, draw(st.integers(0, precision)))


def _fitting(number: Decimal, kind: pa.Decimal128Type) -> Decimal | None:
    """The number with the places of the type; None: it is not one of this type."""
    exact = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        return number.quantize(Decimal(1).scaleb(-kind.scale), context=exact)
    except (Inexact, InvalidOperation):
        return None


def _decoded(kind: str, *texts: str) -> list[Any]:
    payloads = pa.array([f'{{"a":{text}}}'.encode() for text in texts], pa.binary())
    (column,), reasons = PlainJsonDecoder(arrow_fields(f"a {kind}", "json:")).decode(payloads)
    assert [one is None for one in column.to_pylist()] == [one.is_valid for one in reasons]
    return list(column.to_pylist())


@given(_types(), st.lists(_numbers, min_size=1, max_size=3))
@example(pa.decimal128(10, 2), ["1e-999999999"])
@example(pa.decimal128(38, 2), ["86709885029924616469855132629032008352731"])
@example(pa.decimal128(5, 5), ["1." + "5" + "0" * 44])
def test_a_decimal_of_json(kind: pa.Decimal128Type, texts: list[str]) -> None:
    expected = [_fitting(Decimal(text), kind) for text in texts]
    name = f"DECIMAL({kind.precision},{kind.scale})"
    assert _decoded(name, *texts) == expected
    assert _decoded(name, *map(json.dumps, texts)) == expected


@given(st.lists(st.none() | st.integers(-(2**119), 2**119 - 1)), st.integers(0, 15))
@example([None, 0, -1, 127, -128, 255, 2**119 - 1, -(2**119)], 15)
def test_decimals_of_big_endian_bytes(numbers: list[int | None], size: int) -> None:
    def digits(number: int) -> bytes:
        shortest = (number ^ number >> 119).bit_length() // 8 + 1
        return number.to_bytes(max(shortest, size), "big", signed=True)

    values = [None if number is None else digits(number) for number in numbers]
    kind = pa.decimal128(38, 0)
    decimals = decimals_from_bytes(pa.array(values, pa.binary()), 0, kind)
    assert decimals is not None
    assert decimals.to_pylist() == numbers
    for bad in (b"", (10**38).to_bytes(17, "big")):
        assert decimals_from_bytes(pa.array([bad], pa.binary()), 0, kind) is None


def _nearest(number: Decimal) -> float | None:
    """The nearest FLOAT; None if it is not finite."""
    with np.errstate(over="ignore"):
        about = np.float32(float(number))
        if not np.isfinite(about):
            about = np.copysign(np.finfo(np.float32).max, about)
        near = [about, *(np.nextafter(about, np.float32(to)) for to in (np.inf, -np.inf))]
    largest = 2 * Fraction(2) ** 127
    exact = Fraction(number)
    found = min(
        near,
        key=lambda one: (
            abs(
                (Fraction(float(one)) if np.isfinite(one) else largest * int(np.sign(one))) - exact
            ),
            int(one.view(np.uint32)) & 1,
        ),
    )
    return float(found) if np.isfinite(found) else None


@st.composite
def _near_a_middle(draw: st.DrawFn) -> str:
    """A number on the middle of two FLOATs, or just beside it."""
    low = np.float32(draw(st.floats(2.0**-100, 2.0**23, width=32)))
    high = np.nextafter(low, np.float32(np.inf))
    middle = _WIDE.divide(_WIDE.add(Decimal(float(low)), Decimal(float(high))), Decimal(2))
    beside = middle.scaleb(-draw(st.integers(18, 60)), _WIDE)
    return str(_WIDE.add(middle, beside * draw(st.sampled_from([-1, 0, 1]))))


@given(st.lists(_near_a_middle(), min_size=1, max_size=3))
@example(["1.00000017881393432617187499"])
@example(["3.4028235677973366e38"])
@example(["3.4028235677973365e38"])
def test_a_float_is_the_nearest_one(texts: list[str]) -> None:
    expected = [_nearest(Decimal(text)) for text in texts]
    assert _decoded("FLOAT", *texts) == expected
    payloads = pa.array([f'{{"a":{text}}}'.encode() for text in texts], pa.binary())
    for schema in ({"type": "float"}, None):
        decoder = ConnectDecoder(pa.schema([("a", pa.float32())]), {"a": schema})
        assert decoder.decode(payloads)[0][0].to_pylist() == expected


@given(_types(), _types(), st.data())
def test_a_decimal_in_another_type(kind: pa.Any, wanted: pa.Any, data: st.DataObject) -> None:
    most = 10**kind.precision - 1
    whole = data.draw(st.integers(-most, most) | st.integers(-1000, 1000).map(lambda n: n % most))
    number = Decimal(whole).scaleb(-kind.scale, _WIDE)
    values = pa.array([[number], None], pa.list_(kind))
    expected = _fitting(number, wanted)
    if expected is None:
        with pytest.raises(pa.ArrowInvalid):
            cast_exactly(values, pa.list_(wanted))
    else:
        assert cast_exactly(values, pa.list_(wanted)).to_pylist() == [[expected], None]

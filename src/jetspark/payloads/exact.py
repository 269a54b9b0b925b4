"""Casts of Arrow that would change a value without a word, made exact.

Arrow checks neither that a decimal has room for more places nor that a text has at most 38 digits:
such values wrap into others, and a text with a large negative exponent ends the process. Its way
from a text to a FLOAT is right, while Python's goes by a DOUBLE and rounds twice.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_MAX_DIGITS: Final = 38
_MAX_BYTES: Final = 1_000
"""Bytes of the digits of a decimal."""
_MAX_SCALE: Final = 20_000
"""PostgreSQL has up to 16,383."""


def cast_exactly(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to a type; raise ArrowInvalid where Arrow would make another number of a decimal.

    A text is not taken for a decimal: use `parse_decimals`.
    """
    if values.type == kind:
        return values
    converted = values.cast(kind)
    # A decimal that wrapped is another one on the way back.
    if _has_decimals(kind) and not converted.cast(values.type).equals(values):
        raise pa.ArrowInvalid(f"a number does not fit {kind}")
    return converted


def parse_decimals(texts: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Parse texts such as -12.50 as decimals.

    Raises ArrowInvalid if any has an exponent, or more digits than the type.
    """
    digits_before = kind.precision - kind.scale
    before = f"[1-9][0-9]{{0,{digits_before - 1}}}" if digits_before else "0"
    after = rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    form = f"^-?(?:0|{before}){after}$"
    if not pc.all(pc.match_substring_regex(texts, form), min_count=0).as_py():
        raise pa.ArrowInvalid(f"a text is no {kind}")
    return texts.cast(kind)


def decimals_from_bytes(
    values: pa.BinaryArray, scale: int, kind: pa.Decimal128Type
) -> pa.Array | None:
    """Return decimals of one scale from their unscaled numbers (1250 for 12.50), each a big-endian
    two's complement.

    Returns None if one has no bytes or more than 15, or does not fit into `kind`: use
    `decimal_texts`, which takes these, too.
    """
    shortest, longest = pc.min_max(pc.binary_length(values)).as_py().values()
    if not 0 <= scale <= _MAX_DIGITS or (shortest is not None and not 0 < shortest <= longest < 16):
        return None
    is_negative = pc.greater_equal(values, pa.scalar(b"\x80", pa.binary()))
    sign = pc.if_else(
        is_negative, *(pa.scalar(byte * 16, pa.binary()) for byte in (b"\xff", b"\0"))
    )
    # Arrow has decimals as 16 bytes in little-endian order.
    digits = pc.binary_join_element_wise(pc.binary_reverse(values), sign, b"")
    padded = pc.binary_slice(digits, 0, 16).cast(pa.binary(16))
    try:
        return cast_exactly(padded.view(pa.decimal128(_MAX_DIGITS, scale)), kind)
    except pa.ArrowInvalid:
        return None


def decimal_texts(digits: pa.BinaryArray, scales: pa.Array) -> pa.StringArray:
    """Return decimals, each with a scale of its own, as texts such as -12.50; null for one without
    bytes, or with a scale that no database has. `digits`: as for `decimals_from_bytes`."""
    texts: list[str | None] = []
    for data, scale in zip(digits.to_pylist(), scales.to_pylist(), strict=True):
        text = None
        if data and len(data) <= _MAX_BYTES and scale is not None and abs(scale) <= _MAX_SCALE:
            number = int.from_bytes(data, "big", signed=True)
            text = f"{Decimal(f'{number}e{-scale}'):f}"
        texts.append(text)
    return pa.array(texts, pa.string())


def parse_real(text: str, kind: pa.DataType) -> float:
    """Return the nearest FLOAT or DOUBLE of a number's text. Raises ValueError for another text."""
    return float(pa.scalar(text).cast(kind).as_py())


def _has_decimals(kind: pa.DataType) -> bool:
    """Return whether a type is a decimal, or has one in it."""
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(at).type) for at in range(kind.num_fields))

"""Casts of Arrow that would change a value without a word, made exact.

Arrow checks neither that a decimal has room for more places nor that a text has at most 38 digits:
such values wrap into others, and a text with a large negative exponent ends the process. Its way
from a text to a FLOAT is right, while Python's goes by a DOUBLE and rounds twice.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def cast_exactly(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """As `values.cast(kind)`, but raises ArrowInvalid where a decimal would become another number.

    A text is not taken for a decimal: use `decimals_of`.
    """
    if values.type == kind:
        return values
    found = values.cast(kind)
    if _has_decimals(kind) and not found.cast(values.type).equals(values):
        raise pa.ArrowInvalid(f"a number does not fit {kind}")
    return found


def decimals_of(texts: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Decimals of texts in the plain form, such as -12.50.

    Raises ArrowInvalid if any has an exponent, or more digits than the type.
    """
    whole = kind.precision - kind.scale
    before = f"[1-9][0-9]{{0,{whole - 1}}}" if whole else "0"
    after = rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    form = f"^-?(?:0|{before}){after}$"
    if not pc.all(pc.match_substring_regex(texts, form), min_count=0).as_py():
        raise pa.ArrowInvalid(f"a text is no {kind}")
    return texts.cast(kind)


def single_of(text: str) -> float:
    """The nearest FLOAT of a number's text. Raises ValueError for a text that is none."""
    return float(pa.scalar(text.removeprefix("+")).cast(pa.float32()).as_py())


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(at).type) for at in range(kind.num_fields))

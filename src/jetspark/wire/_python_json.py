"""The Python twin of `_json.c`: plain JSON objects as columns."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from datetime import date
from enum import IntEnum
from itertools import pairwise
from math import isfinite
from typing import Any, Final

MOST_DEPTH: Final = 32
MOST_NAME: Final = 1000
MOST_TEXT: Final = 1 << 20
MOST_NUMBER: Final = 40


class JsonKind(IntEnum):
    """What a field holds; the numbers are those of the C kernel."""

    TEXT = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    DOUBLE = 5
    TRUTH = 6
    DAY = 7
    """A date: days since 1970."""
    TIME = 8
    """A date, a time and an offset: microseconds since 1970."""


_FORMATS = {
    JsonKind.INT8: "b",
    JsonKind.INT16: "h",
    JsonKind.INT32: "i",
    JsonKind.INT64: "q",
    JsonKind.DOUBLE: "d",
    JsonKind.DAY: "i",
    JsonKind.TIME: "q",
}
_WHOLE = {
    JsonKind.INT8: 2**7 - 1,
    JsonKind.INT16: 2**15 - 1,
    JsonKind.INT32: 2**31 - 1,
    JsonKind.INT64: 2**63 - 1,
}


_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_INSTANT = re.compile(
    _DATE.pattern + r"[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.]([0-9]{1,9}))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH = date(1970, 1, 1).toordinal()


class _Left(Exception):
    """This payload is left to Spark."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """The members in order."""


def json_columns(
    data: bytes | memoryview, offsets: bytes | memoryview, names: tuple[bytes, ...], kinds: bytes
) -> tuple[bytes, list[tuple[bytes, bytes, bytes]]]:
    """Payloads that are plain JSON objects, as the columns of their fields.

    `offsets`: 32 bits each, one more than there are payloads in `data`. `names`, of `kinds`
    (`JsonKind`): the fields. Returns a bit for each payload that is left out, because Spark's
    parser has to decide what it means or whether it is right; and for each field its bits of
    validity, values, and offsets if it is a text, as Arrow has them.
    """
    limits = memoryview(offsets).cast("B").cast("i")
    if len(names) != len(kinds) or not len(limits):
        raise ValueError("a kind for each name, and rows + 1 offsets")
    payloads = [_payload(data, start, end) for start, end in pairwise(limits)]
    fields = {name: JsonKind(kind) for name, kind in zip(names, kinds, strict=True)}
    rows = [_parsed(payload, fields) for payload in payloads]
    left = _bits([row is None for row in rows])
    return left, [
        _column(kind, [None if row is None else row.get(name) for row in rows])
        for name, kind in fields.items()
    ]


def _payload(data: bytes | memoryview, start: int, end: int) -> bytes:
    if not 0 <= start <= end <= len(data):
        raise ValueError("offsets outside of the data")
    return bytes(data[start:end])


def _column(kind: JsonKind, values: Sequence[Any]) -> tuple[bytes, bytes, bytes]:
    valid = _bits([value is not None for value in values])
    if kind is JsonKind.TRUTH:
        return valid, _bits([bool(value) for value in values]), b""
    if kind is not JsonKind.TEXT:
        numbers = [0 if value is None else value for value in values]
        return valid, struct.pack(f"={len(values)}{_FORMATS[kind]}", *numbers), b""
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or b""))
    return valid, b"".join(value or b"" for value in values), struct.pack(f"={len(ends)}i", *ends)


def _bits(truths: Sequence[bool]) -> bytes:
    bits = bytearray((len(truths) + 7) // 8)
    for row, truth in enumerate(truths):
        bits[row >> 3] |= truth << (row & 7)
    return bytes(bits)


# -- one payload -------------------------------------------------------------------------------


def _parsed(payload: bytes, fields: dict[bytes, JsonKind]) -> dict[bytes, Any] | None:
    """The fields that are there and not null; None if it is left to Spark."""
    try:
        found = _DECODER.decode(payload.decode())
        if not isinstance(found, _Object):
            return None
        row: dict[bytes, Any] = {}
        seen = set()
        for name, value in found:
            key = _plain(name, MOST_NAME)
            kind = fields.get(key)
            if kind is None:
                _check(value, 1)
                continue
            if key in seen:
                return None
            seen.add(key)
            if value is not None:
                row[key] = _value(kind, value)
    except (ValueError, RecursionError, _Left):
        return None
    return row


def _refuse(constant: str) -> Any:
    raise _Left(constant)  # NaN, Infinity


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_float=_Number, parse_int=_Number, parse_constant=_refuse
)


def _plain(text: str, most: int) -> bytes:
    plain = text.encode()  # UnicodeEncodeError for half of a surrogate pair
    if len(plain) > most:
        raise _Left
    return plain


def _check(value: Any, depth: int) -> None:
    """A value that is not asked for."""
    if isinstance(value, _Number):
        _number(value)
    elif isinstance(value, str):
        _plain(value, MOST_TEXT)
    elif isinstance(value, list):
        if depth == MOST_DEPTH:
            raise _Left
        for one in _inner(value):
            _check(one, depth + 1)


def _inner(value: list[Any]) -> Iterator[Any]:
    if not isinstance(value, _Object):
        yield from value
        return
    for name, one in value:
        _plain(name, MOST_NAME)
        yield one


def _value(kind: JsonKind, value: Any) -> Any:
    if kind is JsonKind.TRUTH:
        if not isinstance(value, bool):
            raise _Left
        return value
    if kind is JsonKind.TEXT:
        return _text(value)
    if kind in (JsonKind.DAY, JsonKind.TIME):
        return _time(kind, value)
    if not isinstance(value, _Number):
        raise _Left
    if kind is not JsonKind.DOUBLE:
        return _whole(value, _WHOLE[kind])
    text = _number(value)
    real = float(text)
    if not isfinite(real) or (_is_whole(text) and text.startswith("-") and real == 0):
        raise _Left  # the zero of a whole number has no sign
    return real


def _text(value: Any) -> bytes:
    """Of a whole number, of true and of false it is what is written."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, _Number):
        _whole(value, 2**63 - 1)
    elif not isinstance(value, str):
        raise _Left
    return _plain(value, MOST_TEXT)


def _time(kind: JsonKind, value: Any) -> int:
    pattern = _DATE if kind is JsonKind.DAY else _INSTANT
    found = None if not isinstance(value, str) else pattern.fullmatch(value)
    if found is None:
        raise _Left
    days = date(int(found[1]), int(found[2]), int(found[3])).toordinal() - _EPOCH
    if kind is JsonKind.DAY:
        return days
    hours, minutes, seconds = int(found[4]), int(found[5]), int(found[6])
    over, more = int(found[9] or 0), int(found[10] or 0)
    if hours > 23 or minutes > 59 or seconds > 59 or over > 17 or more > 59:
        raise _Left
    offset = (over * 60 + more) * (-60 if found[8] == "-" else 60)
    second = days * 86400 + hours * 3600 + minutes * 60 + seconds - offset
    return second * 1_000_000 + int((found[7] or "0").ljust(6, "0")[:6])


def _whole(value: _Number, most: int) -> int:
    text = _number(value)
    number = int(text) if _is_whole(text) and len(text.lstrip("-")) <= 18 else most + 1
    if not -most - 1 <= number <= most or (not number and text.startswith("-")):
        raise _Left
    return number


def _is_whole(text: str) -> bool:
    return text.lstrip("-").isdigit()


def _number(text: _Number) -> _Number:
    if len(text) > MOST_NUMBER:
        raise _Left
    return text

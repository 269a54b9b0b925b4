"""Messages of Protobuf as columns, and the reverse, by Protobuf's library, without the C kernel."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from jetspark.codecs.columns import Misfit, Problem, bytes_of_value, check_decoded
from jetspark.codecs.protobuf_schema import Kind, is_map, kind_of, library
from jetspark.years import FIRST_SECOND, LAST_SECOND

_NANOS: Final = 1_000_000_000
_LONGEST: Final = 315_576_000_000
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()


def decode(
    message: Any, parsed: Any, fields: Sequence[pa.Field], payloads: pa.BinaryArray, name: str
) -> tuple[list[pa.Array], list[str | None], list[tuple[int, int, bytes, bytes]]]:
    """Return the columns; why payloads are no messages, or null; and what does not fit.

    `message`: the descriptor; `parsed`: that with `maps_as_lists`, since the library would keep
    only the last entry of a key. Raises Undecodable for what becomes too large.
    """
    parse = library("google.protobuf.message_factory").GetMessageClass(parsed).FromString
    decode_error = library("google.protobuf.message").DecodeError
    rows, misfits = [], []
    reasons: list[str | None] = []
    size = 0
    for number, payload in enumerate(payloads.to_pylist()):
        row: dict[str, Any] = {}
        reason = None
        try:
            row = _row(parse(payload or b""), message, frozenset({message.full_name}))
        except Misfit as error:
            misfits.append(error.of_row(number))
        except (decode_error, UnicodeDecodeError) as error:
            reason = f"The payload is not {name}: {error}."
        size += sum(_size(row.get(one.name), one.type) for one in fields)
        check_decoded(size)
        rows.append(row)
        reasons.append(reason)
    columns = [pa.array([row.get(one.name) for row in rows], one.type) for one in fields]
    return columns, reasons, misfits


def _size(value: Any, kind: pa.DataType) -> int:
    """The bytes of items in lists and maps, and of texts, which may be symbols."""
    if value is None or not pa.types.is_nested(kind):
        return len(value) if kind == pa.string() and value else 0
    if pa.types.is_struct(kind):
        return sum(_size(value[one.name], one.type) for one in kind)
    of = kind.item_type if pa.types.is_map(kind) else kind.value_type
    each = bytes_of_value(of)
    items = [one[1] for one in value] if pa.types.is_map(kind) else value
    return sum(each + _size(one, of) for one in items)


def _row(message: Any, descriptor: Any, around: frozenset[str]) -> dict[str, Any]:
    found = {}
    for one in descriptor.fields:
        try:
            found[one.name] = _of_field(message, one, around)
        except Misfit as error:
            error.path = f".{one.name}{error.path}"
            raise
    return found


def _of_field(message: Any, field: Any, around: frozenset[str]) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        item = field.message_type.fields_by_name["value"]
        return [
            (entry.key, None)
            if item.message_type is not None and not entry.HasField("value")
            else (entry.key, _value(item, entry.value, around))
            for entry in value
        ]
    if field.is_repeated:
        return [_value(field, one, around) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, value, around)


def _value(field: Any, value: Any, around: frozenset[str]) -> Any:
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    match kind_of(field, around):
        case Kind.UINT64 | Kind.FIXED64:
            return Decimal(value)
        case Kind.WRAPPER:
            return _value(field.message_type.fields_by_name["value"], value.value, around)
        case Kind.BYTES if field.message_type is not None:
            return value.SerializeToString()
        case Kind.TIMESTAMP:
            if not 0 <= value.nanos < _NANOS or not FIRST_SECOND <= value.seconds <= LAST_SECOND:
                raise Misfit(Problem.TIME)
            return value.seconds * 1_000_000 + value.nanos // 1000
        case Kind.DURATION:
            return _duration(value.seconds, value.nanos)
        case Kind.DATE:
            return _date(value)
        case Kind.TIME_OF_DAY:
            return _time_of_day(value)
        case Kind.MESSAGE:
            return _row(value, field.message_type, around | {field.message_type.full_name})
    return value


def _duration(seconds: int, nanos: int) -> int:
    if abs(seconds) > _LONGEST or abs(nanos) >= _NANOS or seconds * nanos < 0:
        raise Misfit(Problem.TIME)
    micros = abs(nanos) // 1000
    return seconds * 1_000_000 + (micros if nanos > 0 else -micros)


def _date(value: Any) -> int:
    try:
        return date(value.year, value.month, value.day).toordinal() - _FIRST_DAY
    except (ValueError, OverflowError):
        raise Misfit(Problem.TIME) from None


def _time_of_day(value: Any) -> int:
    parts = (value.hours, value.minutes, value.seconds, value.nanos)
    most = (24, 59, 60, _NANOS - 1)
    if not all(0 <= one <= limit for one, limit in zip(parts, most, strict=True)):
        raise Misfit(Problem.TIME)
    hours, minutes, seconds, nanos = map(int, parts)
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + nanos // 1000


# -- writing -------------------------------------------------------------------------------------


def encode(message: Any, rows: pa.StructArray) -> list[bytes]:
    """The messages of rows. `rows`: a result of `ProtobufEncoder.checked`."""
    create = library("google.protobuf.message_factory").GetMessageClass(message)
    payloads = []
    for row in rows.to_pylist():
        one = create()
        _fill(one, row)
        payloads.append(one.SerializeToString())
    return payloads


def _fill(message: Any, row: dict[str, Any] | bytes) -> None:
    """Give a message the values of a row, or of one that contains itself, which is bytes."""
    if isinstance(row, bytes):
        message.MergeFromString(row)
        return
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        field = fields[name]
        inner = field.message_type
        if value is None:
            continue
        if is_map(field):
            items = getattr(message, name)
            for entry in value:
                if inner.fields_by_name["value"].message_type is None:
                    items[entry["key"]] = entry["value"]
                else:
                    items[entry["key"]].Clear()
                    _fill(items[entry["key"]], entry["value"])
        elif inner is None and field.is_repeated:
            getattr(message, name).extend(value)
        elif inner is None:
            setattr(message, name, value)
        elif field.is_repeated:
            for one in value:
                _fill(getattr(message, name).add(), one)
        else:
            getattr(message, name).SetInParent()
            _fill(getattr(message, name), value)

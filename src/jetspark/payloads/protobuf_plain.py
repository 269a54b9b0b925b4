"""Messages of Protobuf as columns, and the reverse, by Protobuf's library, without the C kernel."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from jetspark.payloads.columns import (
    KernelMisfit,
    PayloadMisfit,
    Problem,
    check_decoded_size,
    min_value_bytes,
)
from jetspark.payloads.protobuf_schema import ProtobufKind, is_map, kind_of, library
from jetspark.years import FIRST_SECOND, LAST_SECOND

_NANOS: Final = 1_000_000_000
_MAX_DURATION_SECONDS: Final = 315_576_000_000
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()


def decode(
    message: Any, parsed: Any, fields: Sequence[pa.Field], payloads: pa.BinaryArray, name: str
) -> tuple[list[pa.Array], list[str | None], list[KernelMisfit]]:
    """Decode payloads in Protobuf without the C kernel. Return the columns; for each payload why it
    is no message, or None; and the values that do not fit, as the kernel describes them.

    `message`: the descriptor; `parsed`: that with `maps_as_lists`, since the library would keep
    only the last entry of a key; `name`: what payloads should be. Raises Undecodable if the columns
    become too large.
    """
    parse = library("google.protobuf.message_factory").GetMessageClass(parsed).FromString
    decode_error = library("google.protobuf.message").DecodeError
    rows: list[dict[str, Any]] = []
    misfits: list[KernelMisfit] = []
    reasons: list[str | None] = []
    size = 0
    for number, payload in enumerate(payloads.to_pylist()):
        row: dict[str, Any] = {}
        reason = None
        try:
            row = _read_message(parse(payload or b""), message, frozenset({message.full_name}))
        except PayloadMisfit as error:
            misfits.append(error.at_row(number))
        except (decode_error, UnicodeDecodeError) as error:
            reason = f"The payload is not {name}: {error}."
        size += sum(_item_bytes(row.get(field.name), field.type) for field in fields)
        check_decoded_size(size)
        rows.append(row)
        reasons.append(reason)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in fields]
    return columns, reasons, misfits


def _item_bytes(value: Any, kind: pa.DataType) -> int:
    """Count the bytes of a value that a few bytes of a payload can become: of items in lists and
    maps, and of texts, which may be symbols of an enum."""
    if value is None or not pa.types.is_nested(kind):
        return len(value) if kind == pa.string() and value else 0
    if pa.types.is_struct(kind):
        return sum(_item_bytes(value[field.name], field.type) for field in kind)
    item_type = kind.item_type if pa.types.is_map(kind) else kind.value_type
    item_size = min_value_bytes(item_type)
    items = [entry[1] for entry in value] if pa.types.is_map(kind) else value
    return sum(item_size + _item_bytes(item, item_type) for item in items)


def _read_message(message: Any, descriptor: Any, ancestors: frozenset[str]) -> dict[str, Any]:
    """Return the fields of a parsed message by name, for PyArrow. `ancestors`: the names of the
    messages that it is in, and its own. Raises PayloadMisfit."""
    row = {}
    for field in descriptor.fields:
        try:
            row[field.name] = _read_field(message, field, ancestors)
        except PayloadMisfit as error:
            error.path = f".{field.name}{error.path}"
            raise
    return row


def _read_field(message: Any, field: Any, ancestors: frozenset[str]) -> Any:
    """Return the value of a field in a parsed message, for PyArrow: None if it is not set; of a map
    the pairs of key and value."""
    value = getattr(message, field.name)
    if is_map(field):
        item = field.message_type.fields_by_name["value"]
        return [
            (entry.key, None)
            if item.message_type is not None and not entry.HasField("value")
            else (entry.key, _read_value(item, entry.value, ancestors))
            for entry in value
        ]
    if field.is_repeated:
        return [_read_value(field, item, ancestors) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _read_value(field, value, ancestors)


def _read_value(field: Any, value: Any, ancestors: frozenset[str]) -> Any:
    """Return a single value of a field, for PyArrow: of an enum the symbol's name, of a time the
    microseconds. Raises PayloadMisfit."""
    if field.enum_type is not None:
        symbol = field.enum_type.values_by_number.get(value)
        return str(value) if symbol is None else symbol.name
    match kind_of(field, ancestors):
        case ProtobufKind.UINT64 | ProtobufKind.FIXED64:
            return Decimal(value)
        case ProtobufKind.WRAPPER:
            return _read_value(field.message_type.fields_by_name["value"], value.value, ancestors)
        case ProtobufKind.BYTES if field.message_type is not None:
            return value.SerializeToString()
        case ProtobufKind.TIMESTAMP:
            if not 0 <= value.nanos < _NANOS or not FIRST_SECOND <= value.seconds <= LAST_SECOND:
                raise PayloadMisfit(Problem.TIME)
            return value.seconds * 1_000_000 + value.nanos // 1000
        case ProtobufKind.DURATION:
            return _duration(value.seconds, value.nanos)
        case ProtobufKind.DATE:
            return _date(value)
        case ProtobufKind.TIME_OF_DAY:
            return _time_of_day(value)
        case ProtobufKind.MESSAGE:
            return _read_message(
                value, field.message_type, ancestors | {field.message_type.full_name}
            )
    return value


def _duration(seconds: int, nanos: int) -> int:
    """Return the microseconds of a duration. Raises PayloadMisfit if it is too long, or its parts
    have different signs."""
    if abs(seconds) > _MAX_DURATION_SECONDS or abs(nanos) >= _NANOS or seconds * nanos < 0:
        raise PayloadMisfit(Problem.TIME)
    micros = abs(nanos) // 1000
    return seconds * 1_000_000 + (micros if nanos > 0 else -micros)


def _date(value: Any) -> int:
    """Return the days since 1970 of a google.type.Date. Raises PayloadMisfit if it is no whole
    date."""
    try:
        return date(value.year, value.month, value.day).toordinal() - _FIRST_DAY
    except (ValueError, OverflowError):
        raise PayloadMisfit(Problem.TIME) from None


def _time_of_day(value: Any) -> int:
    """Return the microseconds since midnight of a google.type.TimeOfDay. Raises PayloadMisfit for a
    time that it may not have."""
    parts = (value.hours, value.minutes, value.seconds, value.nanos)
    limits = (24, 59, 60, _NANOS - 1)  # 24: the end of a day; 60: a leap second
    if not all(0 <= number <= limit for number, limit in zip(parts, limits, strict=True)):
        raise PayloadMisfit(Problem.TIME)
    hours, minutes, seconds, nanos = map(int, parts)
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + nanos // 1000


# -- writing -------------------------------------------------------------------------------------


def encode(message: Any, rows: pa.StructArray) -> list[bytes]:
    """Return each row as a message of Protobuf. `rows`: a result of
    `ProtobufEncoder.convert_rows`."""
    create = library("google.protobuf.message_factory").GetMessageClass(message)
    payloads = []
    for row in rows.to_pylist():
        written = create()
        _set_fields(written, row)
        payloads.append(written.SerializeToString())
    return payloads


def _set_fields(message: Any, row: dict[str, Any] | bytes) -> None:
    """Set the fields of a message to the values of a row, except nulls. A message that contains
    itself comes encoded, as bytes."""
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
                    _set_fields(items[entry["key"]], entry["value"])
        elif inner is None and field.is_repeated:
            getattr(message, name).extend(value)
        elif inner is None:
            setattr(message, name, value)
        elif field.is_repeated:
            for item in value:
                _set_fields(getattr(message, name).add(), item)
        else:
            getattr(message, name).SetInParent()
            _set_fields(getattr(message, name), value)

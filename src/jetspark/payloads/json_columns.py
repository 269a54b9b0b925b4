"""What a JSON value may be, for each type of column (`_Integer`, `_Real`, …), and the column of it.

A column takes the raw values of many records at once, `None` where a record has none, and builds
one Arrow array, which has each value exactly; or it says why a value does not fit. Most columns
decode all their values in one call; if one of them is odd, each value is looked at alone.
docs/payloads.md describes for users what each type takes.

A record with a bad value is bad as a whole, and one reason is enough: what follows the first bad
value of a record in the same column is not looked at. `end_of(i)` is the index behind the last
value of the record that value `i` belongs to; a record has many values where these are in lists.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError
from jetspark.payloads.columns import check_decoded_size, min_value_bytes
from jetspark.payloads.exact import parse_decimals, parse_real
from jetspark.years import DAY_SECONDS, FIRST_DAY, FIRST_MICROS, LAST_DAY, LAST_MICROS

MAX_DIGITS: Final = 1_000
"""Characters of a DECIMAL."""
_MAX_SHOWN_CHARS: Final = 60
"""Characters of a value in a reason."""

_Raw: TypeAlias = "msgspec.Raw | bytes"
_Values: TypeAlias = "list[_Raw | None]"
_EndOf: TypeAlias = Callable[[int], int]


class BadValue(NamedTuple):
    """A value that does not fit its column, with its place and the reason."""

    row: int
    path: str
    """The way to it in the column's value: `[1].price`; empty: it is the whole value."""
    problem: str
    """`12.5 is not an INT`."""


def _next(row: int) -> int:
    """`end_of` for records of one value each."""
    return row + 1


class _Column(ABC):
    """Builds the Arrow array of a column from the raw JSON values of many records."""

    name: str
    """The type's name in Spark."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind

    @abstractmethod
    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        """Return the array of these values, and the first bad value of each record. The array is
        null for bad values, and for what follows one in its record.

        `end_of(i)`: the index behind the last value of the record that value `i` belongs to.
        """


_NULL: Final = b"null"


def _decode_all(decoder: msgspec.json.Decoder[list[Any]], values: _Values) -> list[Any]:
    """Decode raw JSON values in one call, as the items of a list; None counts as null. Raises
    msgspec's errors if one of them does not fit."""
    decoded = decoder.decode(
        b"[" + b",".join([_NULL if raw is None else raw for raw in values]) + b"]"
    )
    if len(decoded) != len(values):  # one of them was not a single value
        raise msgspec.DecodeError
    return decoded


def _decode_each(
    decode: Callable[[bytes], Any], values: _Values, name: str, end_of: _EndOf
) -> tuple[list[Any], list[BadValue]]:
    """Decode raw JSON values one by one; return them, and the first of each record that does not
    fit. After that the rest of its record is None.

    `name`: the type's, for reasons; `end_of(i)`: the index behind the last value of the record that
    value `i` belongs to.
    """
    decoded: list[Any] = []
    bad_values: list[BadValue] = []
    for row, raw in enumerate(values):
        if row < len(decoded):  # it is behind a bad value of its record
            continue
        value = None
        if raw is not None and (text := bytes(raw)) != _NULL:
            try:
                value = decode(text)
            except (msgspec.MsgspecError, ValueError, OverflowError, ArithmeticError):
                bad_values.append(BadValue(row, "", misfit_text(text, name)))
                decoded += [None] * (end_of(row) - row - 1)
        decoded.append(value)
    return decoded, bad_values


def misfit_text(value: bytes, name: str, hint: str = "") -> str:
    """Return what is wrong with a value in JSON: `12.5 is not an INT`. `name`: the type's; `hint`:
    goes behind that."""
    text = value.decode("utf-8", "replace")
    text = text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
    article = "an" if name[0] in "AI" else "a"
    return f"{text} is not {article} {name}{hint}"


class _Leaf(_Column):
    """A column of values that are not nested. `_decode_usual` takes all values at once if they have
    their usual form; else `decode_one` takes each, and says what the type takes."""

    def __init__(self, kind: pa.DataType, name: str) -> None:
        super().__init__(kind)
        self.name = name

    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        """Return the array, and the first bad value of each record; see `_Column.build`. If the
        fast way does not take all values, each is decoded alone."""
        try:
            return self._decode_usual(values), []
        except (msgspec.MsgspecError, pa.ArrowException, ValueError, OverflowError):
            decoded, bad_values = _decode_each(self.decode_one, values, self.name, end_of)
            return self._to_array(decoded), bad_values

    def _to_array(self, values: list[Any]) -> pa.Array:
        """Return the array of values of `decode_one`."""
        return pa.array(values, self.kind)

    @abstractmethod
    def _decode_usual(self, values: _Values) -> pa.Array:
        """Return the array of values of the usual form. Raises any of the errors that `build`
        catches if a value does not fit or has another form."""

    @abstractmethod
    def decode_one(self, raw: bytes) -> Any:
        """Decode a value, which is not null, for `_to_array`. Raises ValueError or msgspec's errors
        if the type does not take it."""


class _Plain(_Leaf):
    """A column of values that msgspec decodes as they are: `true`, or BINARY in Base64."""

    def __init__(self, kind: pa.DataType, name: str, python_type: Any) -> None:
        """`name`: the type's in reasons; `python_type`: what msgspec decodes values to."""
        super().__init__(kind, name)
        self._list_decoder = msgspec.json.Decoder(list[python_type | None])
        self._value_decoder = msgspec.json.Decoder(python_type)

    def _decode_usual(self, values: _Values) -> pa.Array:
        """See _Leaf."""
        return pa.array(_decode_all(self._list_decoder, values), self.kind)

    def decode_one(self, raw: bytes) -> Any:
        """See _Leaf."""
        return self._value_decoder.decode(raw)


class _Integer(_Plain):
    """TINYINT to BIGINT: a whole number in the range of the type."""

    def __init__(self, kind: pa.DataType, name: str) -> None:
        """`kind`: one of Arrow's integer types; `name`: the type's in reasons."""
        super().__init__(kind, name, int)
        self._limit = 1 << (kind.bit_width - 1)  # the range ends below it

    def decode_one(self, raw: bytes) -> int:
        """Decode a whole number. Raises ValueError if it is out of the type's range."""
        value: int = self._value_decoder.decode(raw)
        if not -self._limit <= value < self._limit:
            raise ValueError
        return value


_REALS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Real(_Leaf):
    """FLOAT and DOUBLE: the nearest number, but of a whole number only the same one."""

    def __init__(self, kind: pa.DataType, name: str) -> None:
        """`kind`: FLOAT or DOUBLE; `name`: the type's in reasons."""
        super().__init__(kind, name)
        self._exact_limit = float(1 << (24 if kind == pa.float32() else 53))
        """Each whole number below it is one of this type."""

    def _decode_usual(self, values: _Values) -> pa.Array:
        """Decode numbers at once. Raises ValueError if one is so large that a whole number might be
        rounded."""
        numbers = _raw_texts(values).cast(self.kind)
        largest = pc.max(pc.abs(numbers)).as_py()
        if largest is not None and not largest < self._exact_limit:
            raise ValueError
        return numbers

    def _to_array(self, values: list[Any]) -> pa.Array:
        return pa.array(values, pa.float64()).cast(self.kind)

    def decode_one(self, raw: bytes) -> float:
        """Decode a number, or a text such as "NaN". Raises ValueError if it is too large, or is a
        whole number that the type does not have."""
        if raw.startswith(b'"'):
            text = msgspec.json.decode(raw, type=str)
            if text not in _REALS:
                raise ValueError
            return _REALS[text]
        value = parse_real(raw.decode(), self.kind)
        if abs(value) == float("inf"):
            raise ValueError
        if (
            abs(value) >= self._exact_limit
            and raw.lstrip(b"-").isdigit()
            and not self._is_exact(raw, value)
        ):
            raise ValueError
        return value

    def _is_exact(self, raw: bytes, value: float) -> bool:
        """Return whether a whole number is the same in the column. JavaScript writes large DOUBLEs
        with zeros in place of digits: such a number counts as the same."""
        stored = pa.scalar(value, pa.float64()).cast(self.kind).as_py()
        return int(raw) == int(stored) or (
            self.kind == pa.float64() and Decimal(repr(stored)) == int(raw)
        )


class _Text(_Plain):
    """STRING: a text, and of any other value its JSON as it came."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "STRING", str)

    def decode_one(self, raw: bytes) -> str:
        """See _Leaf."""
        return self._value_decoder.decode(raw) if raw.startswith(b'"') else raw.decode()


_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,4})?")


def _raw_texts(values: _Values) -> pa.Array:
    """Return the raw values as texts, null for null. Raises ArrowInvalid if one is not UTF-8."""
    texts = pa.array([None if raw is None else bytes(raw) for raw in values], pa.binary())
    return pc.if_else(pc.equal(texts, _NULL), None, texts).cast(pa.string())


class _Decimal(_Leaf):
    """DECIMAL: a number, or a text that is one, without a digit too many."""

    def __init__(self, kind: pa.Decimal128Type) -> None:
        """Prepare rounding that raises if it would change a number."""
        super().__init__(kind, f"DECIMAL({kind.precision},{kind.scale})")
        self._unit = Decimal(1).scaleb(-kind.scale)
        self._context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])

    def _decode_usual(self, values: _Values) -> pa.Array:
        return parse_decimals(_raw_texts(values), self.kind)

    def decode_one(self, raw: bytes) -> Decimal:
        """Decode a decimal, also as a text. Raises ValueError or Inexact for what is no number, and
        for one with more digits than the type."""
        if raw.startswith(b'"'):
            raw = msgspec.json.decode(raw, type=str).encode()
        if len(raw) > MAX_DIGITS or _NUMBER.fullmatch(raw) is None:
            raise ValueError
        return Decimal(raw.decode()).quantize(self._unit, context=self._context)


_DATE_FORM = r"^\d{4}-\d{2}-\d{2}$"
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_SECOND = 1_000_000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
    r"(?:([Zz])|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_TIME_FORM = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?"
_OFFSET_FORM = r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)$"
_MAX_OFFSET = 18 * 60
"""Minutes."""


class _Temporal(_Leaf):
    """A date or a time, as a text in the form of ISO 8601, of the years 1 to 9999."""

    _form: str
    """A regular expression of texts that Arrow parses as we do."""
    _first: int
    _last: int
    """The limits of the years 1 to 9999, in the unit of the type."""

    def __init__(self, kind: pa.DataType, name: str) -> None:
        """`kind`: a date or a timestamp; `name`: the type's in reasons."""
        super().__init__(kind, name)
        self._list_decoder = msgspec.json.Decoder(list[str | None])
        self._number_type = pa.int32() if pa.types.is_date(kind) else pa.int64()

    def _decode_usual(self, values: _Values) -> pa.Array:
        """Decode texts of the usual form at once. Raises ValueError if one has another form, or is
        outside of the years 1 to 9999."""
        texts = pa.array(_decode_all(self._list_decoder, values), pa.string())
        fits = pc.all(pc.match_substring_regex(texts, self._form), min_count=0)
        if not fits.as_py():
            raise ValueError
        times = texts.cast(self.kind)
        earliest, latest = pc.min_max(times.cast(self._number_type)).as_py().values()
        if earliest is not None and not self._first <= earliest <= latest <= self._last:
            raise ValueError
        return times

    def _to_array(self, values: list[Any]) -> pa.Array:
        return pa.array(values, self._number_type).cast(self.kind)

    def decode_one(self, raw: bytes) -> int:
        """Return the days or microseconds since 1970 of a date or a time. Raises ValueError if it
        is none, or is outside of the years 1 to 9999."""
        value = self._parse_number(raw)
        if not self._first <= value <= self._last:
            raise ValueError
        return value

    @abstractmethod
    def _parse_number(self, raw: bytes) -> int:
        """Return the days or microseconds since 1970 of a value, of any year."""


class _Date(_Temporal):
    """DATE."""

    _form, _first, _last = _DATE_FORM, FIRST_DAY, LAST_DAY

    def _parse_number(self, raw: bytes) -> int:
        return _parse_date(msgspec.json.decode(raw, type=str))


class _Timestamp(_Temporal):
    """TIMESTAMP, with an offset or in UTC, or whole seconds since 1970; and TIMESTAMP_NTZ, without
    an offset. Digits beyond microseconds are left out."""

    _first, _last = FIRST_MICROS, LAST_MICROS

    def __init__(self, kind: pa.DataType, name: str) -> None:
        """`kind`: TIMESTAMP if it has a zone, else TIMESTAMP_NTZ; `name`: the type's in reasons."""
        super().__init__(kind, name)
        self._has_zone = kind.tz is not None
        self._form = _TIME_FORM + (_OFFSET_FORM if self._has_zone else "$")

    def _parse_number(self, raw: bytes) -> int:
        """Return the microseconds since 1970 of a time: a text, or with a zone also whole
        seconds."""
        if self._has_zone and not raw.startswith(b'"'):
            return int(msgspec.json.decode(raw, type=int)) * _SECOND
        return _parse_time(msgspec.json.decode(raw, type=str), self._has_zone)


def _parse_time(text: str, has_zone: bool) -> int:
    """Return the microseconds since 1970 of a time in ISO 8601. `has_zone`: it may have an offset,
    and is in UTC without one; else it may have none. Raises ValueError."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError
    day, hour, minute, second, fraction, _, sign, hours, minutes = match.groups()
    if not has_zone and (match[6] or sign):  # "Z", or an offset
        raise ValueError
    clock_hour, clock_minute, clock_second = int(hour), int(minute), int(second or 0)
    offset = int(hours or 0) * 60 + int(minutes or 0)
    if clock_hour > 23 or clock_minute > 59 or clock_second > 59:
        raise ValueError
    if offset > _MAX_OFFSET or int(minutes or 0) > 59:
        raise ValueError
    offset = -offset if sign == "-" else offset
    minutes_of_day = clock_hour * 60 + clock_minute - offset
    seconds = _parse_date(day) * DAY_SECONDS + minutes_of_day * 60 + clock_second
    return seconds * _SECOND + int((fraction or "0")[:6].ljust(6, "0"))


def _parse_date(text: str) -> int:
    """Return the days since 1970 of a date such as 2026-01-31. Raises ValueError."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError
    return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH_ORDINAL


# -- nested ----------------------------------------------------------------------------------------


class _Nested(_Column):
    """A column of values that have others in them. They are decoded in two steps, the values in
    them with the columns of these."""

    def __init__(self, kind: pa.DataType, python_type: Any) -> None:
        """`python_type`: msgspec's type of a value, with the values in it undecoded."""
        super().__init__(kind)
        self._list_decoder = msgspec.json.Decoder(list[python_type | None])
        self._value_decoder = msgspec.json.Decoder(python_type)

    def _decode(self, values: _Values, end_of: _EndOf) -> tuple[list[Any], list[BadValue]]:
        """Decode objects or lists, with the values in them still raw. Return them, None for null
        and for a value that is none, and the values that are none. `end_of`: see
        `_Column.build`."""
        try:
            return _decode_all(self._list_decoder, values), []
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _decode_each(self._value_decoder.decode, values, self.name, end_of)


_NO_MEMBER = re.compile(r"[\\\"\x00-\x1f]")
"""Characters that msgspec does not find in a member's name: it compares the text as it came."""


class ObjectColumns:
    """Builds a column for each field of JSON objects."""

    def __init__(self, fields: Sequence[pa.Field], names: Sequence[str] | None = None) -> None:
        """`fields`: the columns; `names`: of the fields in the objects, if the columns have others.
        Raises ConfigError for a type that JSON has no values of."""
        self._fields = list(fields)
        self._names = [field.name for field in fields] if names is None else list(names)
        self._columns = [column_of(field.type) for field in fields]
        keys = [f"f{at}" for at in range(len(self._fields))]
        self._get: Callable[[Any, str], Any] = getattr
        self._keys = keys
        if any(map(_NO_MEMBER.search, self._names)):  # a struct type would not find such a name
            self.type: Any = dict[str, msgspec.Raw]
            """msgspec's type of the objects, with undecoded values."""
            self._get, self._keys = dict.get, self._names
            return
        # A struct type decodes faster; its attributes are `f0`, `f1`, …, since they are names in
        # Python.
        self.type = msgspec.defstruct(
            "Fields",
            [(key, msgspec.Raw, None) for key in keys],
            rename=dict(zip(keys, self._names, strict=True)),
            gc=False,
        )

    def build(
        self, objects: Sequence[Any], end_of: _EndOf = _next
    ) -> Iterator[tuple[pa.Array, list[BadValue]]]:
        """Yield the array of each field, and its bad values. `objects`: of the type `type`, None
        counts as an object without fields; `end_of`: see `_Column.build`."""
        empty, get = self.type(), self._get
        filled = [empty if item is None else item for item in objects]
        size = 0
        for name, key, column in zip(self._names, self._keys, self._columns, strict=True):
            array, bad_values = column.build([get(item, key) for item in filled], end_of)
            size += array.nbytes
            check_decoded_size(size)
            yield array, [bad._replace(path=f".{name}{bad.path}") for bad in bad_values]


class _Struct(_Nested):
    """STRUCT: an object."""

    name = "STRUCT"

    def __init__(self, kind: pa.StructType) -> None:
        self._fields = ObjectColumns(list(kind))
        super().__init__(kind, self._fields.type)

    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        """Return the array of a STRUCT, and the first bad value of each record in each of its
        columns; see `_Column.build`."""
        objects, bad_values = self._decode(values, end_of)
        built = list(self._fields.build(objects, end_of))
        array = pa.StructArray.from_arrays(
            [column for column, _ in built], fields=list(self.kind), mask=_null_mask(objects)
        )
        return array, bad_values + [bad for _, more in built for bad in more]


class _List(_Nested):
    """ARRAY: a list."""

    name = "ARRAY"

    def __init__(self, kind: pa.ListType) -> None:
        super().__init__(kind, list[msgspec.Raw])
        self._items = column_of(kind.value_type)

    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        """Return the array of an ARRAY, whose items are built as one column, and the bad values,
        with the lists that they are in; see `_Column.build`."""
        lists, bad_values = self._decode(values, end_of)
        offsets = _offsets(lists, self.kind.value_type)
        flat = list(chain.from_iterable(items or () for items in lists))
        items, bad_items = self._items.build(flat, _end_of_items(offsets, end_of))
        array = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), items, type=self.kind, mask=_null_mask(lists)
        )
        return array, bad_values + rows_of_items(bad_items, offsets, lambda _, at: f"[{at}]")


class _Map(_Nested):
    """MAP: an object, whose keys are data."""

    name = "MAP"

    def __init__(self, kind: pa.MapType) -> None:
        super().__init__(kind, dict[str, msgspec.Raw])
        self._items = column_of(kind.item_type)

    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        """Return the array of a MAP, whose values are built as one column, and the bad values, with
        the objects that they are in; see `_Column.build`."""
        maps, bad_values = self._decode(values, end_of)
        offsets = _offsets(maps, self.kind.item_type)
        keys = [key for entries in maps if entries for key in entries]
        flat = [raw for entries in maps if entries for raw in entries.values()]
        items, bad_items = self._items.build(flat, _end_of_items(offsets, end_of))
        array = pa.MapArray.from_arrays(
            *(pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), items),
            type=self.kind,
            mask=_null_mask(maps),
        )
        return array, bad_values + rows_of_items(
            bad_items, offsets, lambda start, at: f"[{keys[start + at][:_MAX_SHOWN_CHARS]!r}]"
        )


def _null_mask(values: Sequence[Any]) -> pa.BooleanArray:
    """Return a mask for Arrow's arrays: true where a value is None."""
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: Iterable[Any], item_type: pa.DataType) -> list[int]:
    """Return the index at which the items of each list or map begin when all items are in one list,
    and the end of the last ones. Raises Undecodable if the items become too large."""
    offsets = list(accumulate((len(items) if items else 0 for items in values), initial=0))
    check_decoded_size(offsets[-1] * min_value_bytes(item_type))
    return offsets


def _end_of_items(offsets: list[int], end_of: _EndOf) -> _EndOf:
    """Return a function for items of lists or maps, by their index among all items: the index
    behind the last item of the same record. `end_of`: that of the lists or maps themselves."""
    return lambda item: offsets[end_of(bisect_right(offsets, item) - 1)]


def rows_of_items(
    bad_items: list[BadValue], offsets: list[int], path: Callable[[int, int], str]
) -> list[BadValue]:
    """Return bad items of lists or maps as bad values of the rows that these lists or maps are in.

    `offsets`: where the items of each row begin; `path`: returns the path of an item in its row,
    from the row's first item and the item's place behind that.
    """
    bad_values = []
    for bad in bad_items:
        row = bisect_right(offsets, bad.row) - 1
        item = path(offsets[row], bad.row - offsets[row])
        bad_values.append(BadValue(row, item + bad.path, bad.problem))
    return bad_values


def null_rows(array: pa.Array, rows: Iterable[int]) -> pa.Array:
    """Return an array with null in these rows."""
    positions: list[int | None] = list(range(len(array)))
    for row in rows:
        positions[row] = None
    return array.take(pa.array(positions, pa.int64()))


_LEAVES: Final[dict[pa.DataType, Callable[[], _Leaf]]] = {
    pa.bool_(): partial(_Plain, pa.bool_(), "BOOLEAN", bool),
    pa.int8(): partial(_Integer, pa.int8(), "TINYINT"),
    pa.int16(): partial(_Integer, pa.int16(), "SMALLINT"),
    pa.int32(): partial(_Integer, pa.int32(), "INT"),
    pa.int64(): partial(_Integer, pa.int64(), "BIGINT"),
    pa.float32(): partial(_Real, pa.float32(), "FLOAT"),
    pa.float64(): partial(_Real, pa.float64(), "DOUBLE"),
    pa.string(): _Text,
    pa.binary(): partial(_Plain, pa.binary(), "BINARY in Base64", bytes),
    pa.date32(): partial(_Date, pa.date32(), "DATE"),
    pa.timestamp("us", tz="UTC"): partial(_Timestamp, pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    pa.timestamp("us"): partial(_Timestamp, pa.timestamp("us"), "TIMESTAMP_NTZ"),
}


def column_of(kind: pa.DataType) -> _Column:
    """Return what builds columns of this type. Raises ConfigError for a type that JSON has no
    values of."""
    if (leaf := _LEAVES.get(kind)) is not None:
        return leaf()
    if pa.types.is_decimal128(kind):
        return _Decimal(kind)
    if pa.types.is_struct(kind):
        return _Struct(kind)
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return _Map(kind)
    if pa.types.is_list(kind):
        return _List(kind)
    raise ConfigError(f"JSON payloads have no values of the type {kind}.")


def is_json_type(kind: pa.DataType) -> bool:
    """Return whether JSON payloads have values of this type."""
    try:
        column_of(kind)
    except ConfigError:
        return False
    return True


def build_column(kind: pa.DataType, values: Sequence[bytes | None]) -> pa.Array:
    """Return a column of raw JSON values, each its own record; null for each that does not fit."""
    array, _ = column_of(kind).build(list(values))
    return array


def fits_type(kind: pa.DataType, raw: bytes) -> bool:
    """Return whether a column of this type takes a value in JSON."""
    _, bad_values = column_of(kind).build([raw])
    return not bad_values

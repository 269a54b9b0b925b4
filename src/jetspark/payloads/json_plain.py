"""JSON payloads as Arrow columns: each value exactly, or a reason why the record does not fit.

A schema becomes a tree of columns. A column takes the raw JSON values of many records at once,
`None` where a record has none, and builds one Arrow array. Most columns decode all their values in
one call; if one of them is odd, each value is looked at alone. docs/payloads.md is the page that
says what each type takes.

Payloads are written by others. A payload beyond the bounds below is refused before it is decoded,
and a batch is decoded in parts of at most `_PART_BYTES`, so that memory is bounded.
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
from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.exact import parse_decimals, parse_real
from jetspark.years import FIRST_DAY, FIRST_MICROS, LAST_DAY, LAST_MICROS

MAX_DEPTH: Final = 200
"""Objects and lists within each other."""
MAX_VALUES: Final = 1_000_000
"""Values in one payload."""
MAX_DIGITS: Final = 1_000
"""Characters of a DECIMAL."""
_PART_BYTES: Final = 1 << 20
_MAX_SHOWN_CHARS: Final = 60
"""Characters of a value in a reason."""

_Raw: TypeAlias = "msgspec.Raw | bytes"
_Values: TypeAlias = "list[_Raw | None]"


class BadValue(NamedTuple):
    """A value that does not fit its column."""

    row: int
    path: str
    """The way to it in the column's value: `[1].price`; empty: it is the whole value."""
    problem: str
    """`12.5 is not an INT`."""


# -------------------------------------------------------------------------------------------------
# Payloads as objects.


# A text without an end is one, too: otherwise each quote in it would begin a search to the end.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.?)*+"?|-?\bInfinity\b|\bNaN\b', re.DOTALL)
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.?)*+"?|[\[\]{}]', re.DOTALL)


def parse_object(payload: bytes, decode: Callable[[bytes], Any]) -> Any:
    """Decode a payload that is one JSON object, within the bounds.

    `decode` is that of a msgspec decoder, which takes an object. The words NaN, Infinity and
    -Infinity, which Python writes, become texts. Raises Undecodable.
    """
    _check_bounds(payload)
    try:
        return decode(payload)
    except msgspec.ValidationError as error:
        raise Undecodable(_not_an_object(payload)) from error
    except RecursionError:
        raise Undecodable("The payload is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if b"NaN" in payload or b"Infinity" in payload:
            quoted = _TOKEN.sub(_quote_constant, payload)
            if quoted != payload:
                return parse_object(quoted, decode)
        raise Undecodable(_not_json(payload, error)) from None


def _check_text(payload: bytes) -> None:
    """Raise Undecodable for bytes that are not UTF-8."""
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        byte = payload[error.start]
        raise Undecodable(
            f"The payload is not UTF-8: byte {error.start} is 0x{byte:02x}."
        ) from None


def _check_bounds(payload: bytes) -> None:
    """Raise Undecodable for a payload beyond the bounds."""
    if payload.count(b"{") + payload.count(b"[") > MAX_DEPTH:
        depth = 0
        for bracket in _BRACKET.findall(payload):
            depth += (bracket in b"{[") - (bracket in b"}]")
            if depth > MAX_DEPTH:
                raise Undecodable(f"The payload is nested more than {MAX_DEPTH} deep.")
    if len(payload) > MAX_VALUES and payload.count(b",") > MAX_VALUES:
        raise Undecodable(f"The payload has more than {MAX_VALUES:,} values.")


def _quote_constant(match: re.Match[bytes]) -> bytes:
    return match[0] if match[0].startswith(b'"') else b'"%s"' % match[0]


def _not_an_object(payload: bytes) -> str:
    kind = {b'"': "a text", b"[": "a list", b"t": "true", b"f": "false", b"n": "null"}
    return f"The payload is {kind.get(payload.strip()[:1], 'a number')}, not an object."


def _not_json(payload: bytes, error: Exception) -> str:
    if not payload.strip():
        return "The payload is empty."
    problem = str(error).removeprefix("JSON is malformed: ")
    if problem == "Input data was truncated":
        half = rb"\u" in payload.lower()
        problem = f"it ends too early{', or in half of a pair of surrogates' if half else ''}"
    return f"The payload is not one JSON object: {problem[:1].lower()}{problem[1:]}."


# -------------------------------------------------------------------------------------------------
# Columns.


_EndOf: TypeAlias = Callable[[int], int]
"""Returns the end of the values of the record that has a value."""


def _next(row: int) -> int:
    """The end of a record that is one value."""
    return row + 1


class _Column(ABC):
    """Builds the array of one type."""

    name: str
    """The type's name in Spark."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind

    @abstractmethod
    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        """The array, null where a value does not fit, and behind the first of these in a record."""


_NULL: Final = b"null"


def _decode_all(decoder: msgspec.json.Decoder[list[Any]], values: _Values) -> list[Any]:
    """All values in one call; they are whole JSON values. Raises msgspec's errors, for one too."""
    decoded = decoder.decode(
        b"[" + b",".join([_NULL if raw is None else raw for raw in values]) + b"]"
    )
    if len(decoded) != len(values):
        raise msgspec.DecodeError
    return decoded


def _decode_each(
    decode: Callable[[bytes], Any], values: _Values, name: str, end_of: _EndOf
) -> tuple[list[Any], list[BadValue]]:
    """The values one by one, and the first of each record that is no value of the type."""
    decoded: list[Any] = []
    misfits: list[BadValue] = []
    for row, raw in enumerate(values):
        if row < len(decoded):  # behind one that does not fit
            continue
        value = None
        if raw is not None and (text := bytes(raw)) != _NULL:
            try:
                value = decode(text)
            except (msgspec.MsgspecError, ValueError, OverflowError, ArithmeticError):
                misfits.append(BadValue(row, "", misfit_text(text, name)))
                decoded += [None] * (end_of(row) - row - 1)
        decoded.append(value)
    return decoded, misfits


def misfit_text(value: bytes, name: str, hint: str = "") -> str:
    text = value.decode("utf-8", "replace")
    text = text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
    article = "an" if name[0] in "AI" else "a"
    return f"{text} is not {article} {name}{hint}"


class _Leaf(_Column):
    """A type of single values: `decode_one` says what is taken, `_fast` decodes many usual ones."""

    def __init__(self, kind: pa.DataType, name: str) -> None:
        super().__init__(kind)
        self.name = name

    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        """See _Column."""
        try:
            return self._fast(values), []
        except (msgspec.MsgspecError, pa.ArrowException, ValueError, OverflowError):
            decoded, misfits = _decode_each(self.decode_one, values, self.name, end_of)
            return self._array(decoded), misfits

    def _array(self, values: list[Any]) -> pa.Array:
        return pa.array(values, self.kind)

    @abstractmethod
    def _fast(self, values: _Values) -> pa.Array:
        """The array, or any of the errors that `build` takes for a reason to look at each."""

    @abstractmethod
    def decode_one(self, raw: bytes) -> Any:
        """The value of one raw value, which is not null, for `_array`. Raises ValueError or
        msgspec's errors."""


class _Plain(_Leaf):
    """A type that msgspec decodes as it is."""

    def __init__(self, kind: pa.DataType, name: str, of: Any) -> None:
        super().__init__(kind, name)
        self._list_decoder = msgspec.json.Decoder(list[of | None])
        self._value_decoder = msgspec.json.Decoder(of)

    def _fast(self, values: _Values) -> pa.Array:
        return pa.array(_decode_all(self._list_decoder, values), self.kind)

    def decode_one(self, raw: bytes) -> Any:
        return self._value_decoder.decode(raw)


class _Integer(_Plain):
    """TINYINT to BIGINT."""

    def __init__(self, kind: pa.DataType, name: str) -> None:
        super().__init__(kind, name, int)
        self._limit = 1 << (kind.bit_width - 1)

    def decode_one(self, raw: bytes) -> int:
        value: int = self._value_decoder.decode(raw)
        if not -self._limit <= value < self._limit:
            raise ValueError
        return value


_REALS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Real(_Leaf):
    """FLOAT and DOUBLE: the nearest number, but of a whole number only the same one."""

    def __init__(self, kind: pa.DataType, name: str) -> None:
        super().__init__(kind, name)
        self._exact = float(1 << (24 if kind == pa.float32() else 53))
        """Below it, each whole number is one of this type."""

    def _fast(self, values: _Values) -> pa.Array:
        numbers = _texts_of(values).cast(self.kind)
        largest = pc.max(pc.abs(numbers)).as_py()
        if largest is not None and not largest < self._exact:
            raise ValueError
        return numbers

    def _array(self, values: list[Any]) -> pa.Array:
        return pa.array(values, pa.float64()).cast(self.kind)

    def decode_one(self, raw: bytes) -> float:
        if raw.startswith(b'"'):
            text = msgspec.json.decode(raw, type=str)
            if text not in _REALS:
                raise ValueError
            return _REALS[text]
        value = parse_real(raw.decode(), self.kind)
        if abs(value) == float("inf"):
            raise ValueError
        if (
            abs(value) >= self._exact
            and raw.lstrip(b"-").isdigit()
            and not self._is_same(raw, value)
        ):
            raise ValueError
        return value

    def _is_same(self, raw: bytes, value: float) -> bool:
        """Whether a whole number is this one, or how JavaScript writes this one."""
        stored = pa.scalar(value, pa.float64()).cast(self.kind).as_py()
        return int(raw) == int(stored) or (
            self.kind == pa.float64() and Decimal(repr(stored)) == int(raw)
        )


class _Text(_Plain):
    """STRING: a text, and of any other value its JSON as it came."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "STRING", str)

    def decode_one(self, raw: bytes) -> str:
        return self._value_decoder.decode(raw) if raw.startswith(b'"') else raw.decode()


_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,4})?")


def _texts_of(values: _Values) -> pa.Array:
    """The raw values as texts, null for null."""
    texts = pa.array([None if raw is None else bytes(raw) for raw in values], pa.binary())
    return pc.if_else(pc.equal(texts, _NULL), None, texts).cast(pa.string())


class _Exact(_Leaf):
    """DECIMAL: a number, or a text that is one, without a digit too many."""

    def __init__(self, kind: pa.Decimal128Type) -> None:
        super().__init__(kind, f"DECIMAL({kind.precision},{kind.scale})")
        self._unit = Decimal(1).scaleb(-kind.scale)
        self._context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])

    def _fast(self, values: _Values) -> pa.Array:
        return parse_decimals(_texts_of(values), self.kind)

    def decode_one(self, raw: bytes) -> Decimal:
        if raw.startswith(b'"'):
            raw = msgspec.json.decode(raw, type=str).encode()
        if len(raw) > MAX_DIGITS or _NUMBER.fullmatch(raw) is None:
            raise ValueError
        return Decimal(raw.decode()).quantize(self._unit, context=self._context)


class _Bytes(_Plain):
    """BINARY: a text in Base64."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "BINARY in Base64", bytes)


_DATE_FORM = r"^\d{4}-\d{2}-\d{2}$"
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_SECOND = 1_000_000
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
    r"(?:([Zz])|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_TIME_FORM = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?"
_OFFSET_FORM = r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)$"
_MAX_OFFSET = 18 * 60


class _Temporal(_Leaf):
    """A date or a time, as a text in the form of ISO 8601, of the years 1 to 9999."""

    _form: str
    _first: int
    _last: int

    def __init__(self, kind: pa.DataType, name: str) -> None:
        super().__init__(kind, name)
        self._list_decoder = msgspec.json.Decoder(list[str | None])
        self._number_type = pa.int32() if pa.types.is_date(kind) else pa.int64()

    def _fast(self, values: _Values) -> pa.Array:
        texts = pa.array(_decode_all(self._list_decoder, values), pa.string())
        fits = pc.all(pc.match_substring_regex(texts, self._form), min_count=0)
        if not fits.as_py():
            raise ValueError
        times = texts.cast(self.kind)
        earliest, latest = pc.min_max(times.cast(self._number_type)).as_py().values()
        if earliest is not None and not self._first <= earliest <= latest <= self._last:
            raise ValueError
        return times

    def _array(self, values: list[Any]) -> pa.Array:
        return pa.array(values, self._number_type).cast(self.kind)

    def decode_one(self, raw: bytes) -> int:
        value = self._number_of(raw)
        if not self._first <= value <= self._last:
            raise ValueError
        return value

    @abstractmethod
    def _number_of(self, raw: bytes) -> int:
        """Days or microseconds since 1970."""


class _Day(_Temporal):
    """DATE."""

    _form, _first, _last = _DATE_FORM, FIRST_DAY, LAST_DAY

    def _number_of(self, raw: bytes) -> int:
        return _days(msgspec.json.decode(raw, type=str))


class _Time(_Temporal):
    """TIMESTAMP, with an offset or in UTC, or whole seconds since 1970; and TIMESTAMP_NTZ, without
    an offset. Digits beyond microseconds are left out."""

    _first, _last = FIRST_MICROS, LAST_MICROS

    def __init__(self, kind: pa.DataType, name: str) -> None:
        super().__init__(kind, name)
        self._has_zone = kind.tz is not None
        self._form = _TIME_FORM + (_OFFSET_FORM if self._has_zone else "$")

    def _number_of(self, raw: bytes) -> int:
        if self._has_zone and not raw.startswith(b'"'):
            return int(msgspec.json.decode(raw, type=int)) * _SECOND
        return _micros(msgspec.json.decode(raw, type=str), self._has_zone)


def _micros(text: str, has_zone: bool) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError
    day, hour, minute, second, fraction, _, sign, hours, minutes = match.groups()
    if not has_zone and (match[6] or sign):
        raise ValueError
    clock = [int(hour), int(minute), int(second or 0)]
    offset = int(hours or 0) * 60 + int(minutes or 0)
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise ValueError
    if offset > _MAX_OFFSET or int(minutes or 0) > 59:
        raise ValueError
    offset = -offset if sign == "-" else offset
    seconds = _days(day) * 86_400 + clock[0] * 3600 + (clock[1] - offset) * 60 + clock[2]
    return seconds * _SECOND + int((fraction or "0")[:6].ljust(6, "0"))


def _days(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError
    return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - 719_163


# -- nested ----------------------------------------------------------------------------------------


class _Nested(_Column):
    """A type of values that are made of others."""

    _list_decoder: msgspec.json.Decoder[list[Any]]
    _value_decoder: msgspec.json.Decoder[Any]

    def _decode(self, values: _Values, end_of: _EndOf) -> tuple[list[Any], list[BadValue]]:
        try:
            return _decode_all(self._list_decoder, values), []
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _decode_each(self._value_decoder.decode, values, self.name, end_of)


_NO_MEMBER = re.compile(r"[\\\"\x00-\x1f]")
"""Characters that msgspec does not find in a member's name: it compares the text as it came."""


class _Fields:
    """The fields of objects, as columns."""

    def __init__(self, fields: Sequence[pa.Field], names: Sequence[str] | None = None) -> None:
        """`names`: those in the objects, if the columns have others."""
        self._fields = list(fields)
        self._names = [field.name for field in fields] if names is None else list(names)
        self._columns = [column_of(field.type) for field in fields]
        keys = [f"f{at}" for at in range(len(self._fields))]
        self._get: Callable[[Any, str], Any] = getattr
        self._keys = keys
        if any(map(_NO_MEMBER.search, self._names)):
            self.type: Any = dict[str, msgspec.Raw]
            self._get, self._keys = dict.get, self._names
            return
        self.type = msgspec.defstruct(
            "Fields",
            [(key, msgspec.Raw, None) for key in keys],
            rename=dict(zip(keys, self._names, strict=True)),
            gc=False,
        )

    def build(
        self, objects: Sequence[Any], end_of: _EndOf = _next
    ) -> Iterator[tuple[pa.Array, list[BadValue]]]:
        """An array for each field, and what does not fit; None is no object."""
        empty, get = self.type(), self._get
        present = [empty if item is None else item for item in objects]
        size = 0
        for name, key, column in zip(self._names, self._keys, self._columns, strict=True):
            array, misfits = column.build([get(item, key) for item in present], end_of)
            size += array.nbytes
            check_decoded_size(size)
            yield array, [misfit._replace(path=f".{name}{misfit.path}") for misfit in misfits]


class _Struct(_Nested):
    name = "STRUCT"

    def __init__(self, kind: pa.StructType) -> None:
        super().__init__(kind)
        self._fields = _Fields(list(kind))
        kind_of_objects: Any = self._fields.type
        self._list_decoder = msgspec.json.Decoder(list[kind_of_objects | None])
        self._value_decoder = msgspec.json.Decoder(kind_of_objects)

    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        objects, misfits = self._decode(values, end_of)
        built = list(self._fields.build(objects, end_of))
        array = pa.StructArray.from_arrays(
            [column for column, _ in built], fields=list(self.kind), mask=_null_mask(objects)
        )
        return array, misfits + [misfit for _, more in built for misfit in more]


class _List(_Nested):
    name = "ARRAY"

    def __init__(self, kind: pa.ListType) -> None:
        super().__init__(kind)
        self._items = column_of(kind.value_type)
        self._list_decoder = msgspec.json.Decoder(list[list[msgspec.Raw] | None])
        self._value_decoder = msgspec.json.Decoder(list[msgspec.Raw])

    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        lists, misfits = self._decode(values, end_of)
        offsets = _offsets(lists)
        check_decoded_size(offsets[-1] * min_value_bytes(self.kind.value_type))
        flat = list(chain.from_iterable(items or () for items in lists))
        items, more = self._items.build(flat, _end_of_items(offsets, end_of))
        array = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), items, type=self.kind, mask=_null_mask(lists)
        )
        return array, misfits + rows_of_items(more, offsets, lambda _, at: f"[{at}]")


class _Map(_Nested):
    name = "MAP"

    def __init__(self, kind: pa.MapType) -> None:
        super().__init__(kind)
        self._items = column_of(kind.item_type)
        self._list_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw] | None])
        self._value_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def build(self, values: _Values, end_of: _EndOf = _next) -> tuple[pa.Array, list[BadValue]]:
        maps, misfits = self._decode(values, end_of)
        offsets = _offsets(maps)
        check_decoded_size(offsets[-1] * min_value_bytes(self.kind.item_type))
        keys = [key for entries in maps if entries for key in entries]
        flat = [raw for entries in maps if entries for raw in entries.values()]
        items, more = self._items.build(flat, _end_of_items(offsets, end_of))
        array = pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), items, type=self.kind
        )
        if any(entries is None for entries in maps):
            array = null_rows(array, [row for row, entries in enumerate(maps) if entries is None])
        return array, misfits + rows_of_items(
            more, offsets, lambda start, at: f"[{keys[start + at][:_MAX_SHOWN_CHARS]!r}]"
        )


def _null_mask(values: Sequence[Any]) -> pa.BooleanArray | None:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: Iterable[Any]) -> list[int]:
    return list(accumulate((len(items) if items else 0 for items in values), initial=0))


def _end_of_items(offsets: list[int], end_of: _EndOf) -> _EndOf:
    """`end_of` for the items of lists or maps."""
    return lambda item: offsets[end_of(bisect_right(offsets, item) - 1)]


def rows_of_items(
    bad_items: list[BadValue], offsets: list[int], path: Callable[[int, int], str]
) -> list[BadValue]:
    """Return bad items of lists or maps as bad values of the rows that have them.

    `path`: of an item in its row, from the row's first item and the item's place behind that.
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
    pa.binary(): _Bytes,
    pa.date32(): partial(_Day, pa.date32(), "DATE"),
    pa.timestamp("us", tz="UTC"): partial(_Time, pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    pa.timestamp("us"): partial(_Time, pa.timestamp("us"), "TIMESTAMP_NTZ"),
}


def column_of(kind: pa.DataType) -> _Column:
    """Raises ConfigError for a type that JSON has no values of."""
    if (leaf := _LEAVES.get(kind)) is not None:
        return leaf()
    if pa.types.is_decimal128(kind):
        return _Exact(kind)
    if pa.types.is_struct(kind):
        return _Struct(kind)
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return _Map(kind)
    if pa.types.is_list(kind):
        return _List(kind)
    raise ConfigError(f"JSON payloads have no values of the type {kind}.")


def is_json_type(kind: pa.DataType) -> bool:
    """Whether JSON payloads have values of this type."""
    try:
        column_of(kind)
    except ConfigError:
        return False
    return True


def build_column(kind: pa.DataType, values: Sequence[bytes | None]) -> pa.Array:
    """Return a column of single JSON values, null for each that does not fit."""
    array, _ = column_of(kind).build(list(values))
    return array


def takes(kind: pa.DataType, raw: bytes) -> bool:
    """Return whether a column of this type takes a value, in JSON."""
    _, bad_values = column_of(kind).build([raw])
    return not bad_values


# -------------------------------------------------------------------------------------------------


class PlainJsonDecoder:
    """Decodes payloads into the columns of a schema."""

    def __init__(self, fields: pa.Schema, names: Sequence[str] | None = None) -> None:
        """`names`: those of the fields in payloads, if the columns have others. Raises ConfigError
        for a type that JSON has no values of."""
        self.schema = fields
        self._fields = _Fields(list(fields), names)
        self._decode = msgspec.json.Decoder(self._fields.type).decode

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """The columns, and for each payload why it does not fit, or null.

        A payload that is no JSON object has no values. Of one whose value does not fit, this column
        is null.
        """
        try:
            payloads.cast(pa.string())
            is_text = True
        except pa.ArrowInvalid:
            is_text = False
        parts = [self._decode_part(part, is_text) for part in _parts(payloads)]
        if len(parts) == 1:
            return parts[0]
        columns = [
            pa.concat_arrays([pa.nulls(0, field.type), *(columns[at] for columns, _ in parts)])
            for at, field in enumerate(self.schema)
        ]
        return columns, pa.concat_arrays([pa.nulls(0, pa.string()), *(part for _, part in parts)])

    def _decode_part(
        self, payloads: list[bytes | None], is_text: bool
    ) -> tuple[list[pa.Array], pa.StringArray]:
        """`is_text`: all of them are UTF-8."""
        objects: list[Any] = []
        reasons: list[str | None] = [None] * len(payloads)
        for row, payload in enumerate(payloads):
            try:
                if not is_text:
                    _check_text(payload or b"")
                objects.append(parse_object(payload or b"", self._decode))
            except Undecodable as error:
                objects.append(None)
                reasons[row] = str(error)
        columns = []
        for array, bad_values in self._fields.build(objects):
            columns.append(
                null_rows(array, {bad.row for bad in bad_values}) if bad_values else array
            )
            for bad in bad_values:
                if reasons[bad.row] is None:
                    reasons[bad.row] = f"{bad.path.removeprefix('.')}: {bad.problem}."
        return columns, pa.array(reasons, pa.string())


def _parts(payloads: pa.BinaryArray) -> Iterator[list[bytes | None]]:
    """The payloads in parts of limited size."""
    part: list[bytes | None] = []
    size = 0
    for payload in payloads.to_pylist():
        part.append(payload)
        size += len(payload or b"")
        if size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part

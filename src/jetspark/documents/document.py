"""The base of JetStream's JSON documents: typed, without losing anything of the wire.

Contract: field names are those of the wire. None means "not given" and is not sent, so an update
keeps other values; 0, False and empty values are sent. Durations are `timedelta`, times aware
`datetime` (with nanoseconds, see `exact_times`). Unknown fields are in `extra`, at every level, and
are sent back. Documents are frozen; `replace` makes a changed copy. Words such as "limits" or
"explicit" are plain strings, so words of newer servers pass through (`NewWord`). What callers send
is checked: `configuration`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum, EnumType
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

from jetspark.errors import ConfigError, shown
from jetspark.subjects import nearest_name
from jetspark.timestamps import (
    datetime_to_ns,
    duration_to_ns,
    format_isotime,
    ns_to_datetime,
    ns_to_timedelta,
    parse_isotime,
)
from jetspark.wire.documents import convert_document, plain_value

if TYPE_CHECKING:
    from typing import Self

# -------------------------------------------------------------------------------------------------
# Durations and times that keep the wire's nanoseconds.
#
# JetStream's durations are integers of nanoseconds, its times RFC 3339 text with up to nine
# digits; `timedelta` and `datetime` hold microseconds. The two classes here are a `timedelta` and
# an aware `datetime`, and keep the exact number, which `exact_ns(value)` returns. Results of
# arithmetic have microseconds again.


ZERO_TIME = "0001-01-01T00:00:00Z"
"""How the server writes "never"."""


class _Exact:
    """What both classes share: the number, equality by it, and pickling it.

    Values without a number of their own, such as results of arithmetic, have whole microseconds.
    """

    __slots__ = ()
    _ns: int

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        raise NotImplementedError

    @property
    def ns(self) -> int:
        """Nanoseconds, exact; of a time since the epoch."""
        try:
            return self._ns
        except AttributeError:
            return _whole_microseconds(self)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return self.ns == other.ns if isinstance(other, type(self)) else super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other  # the bases have a __ne__ of their own

    def __hash__(self) -> int:
        return super().__hash__()  # equal values are equal in microseconds too

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(self).from_ns, (self.ns,)


class Duration(_Exact, timedelta):
    """A timedelta that keeps its nanoseconds."""

    __slots__ = ("_ns",)

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        near = ns_to_timedelta(ns)
        self = cls(near.days, near.seconds, near.microseconds)
        self._ns = ns
        return self


class Timestamp(_Exact, datetime):
    """An aware datetime, UTC, that keeps its nanoseconds."""

    __slots__ = ("_ns",)

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        near = ns_to_datetime(ns)
        self = cls.combine(near.date(), near.timetz())
        self._ns = ns
        return self


def exact_ns(value: timedelta | datetime) -> int:
    """Nanoseconds of a duration, or since the epoch of a time.

    Exact for what came from the server, microseconds for what did not. Raises ValueError for a
    datetime without a zone.
    """
    if isinstance(value, Duration | Timestamp):
        return value.ns
    return _whole_microseconds(value)


def _whole_microseconds(value: timedelta | datetime) -> int:
    return datetime_to_ns(value) if isinstance(value, datetime) else duration_to_ns(value)


def to_duration(value: timedelta) -> Duration:
    """The same duration, remembering nanoseconds. Raises TypeError for a bare number."""
    if isinstance(value, Duration):
        return value
    if not isinstance(value, timedelta):
        # Seconds to one reader, nanoseconds to the next: no bare numbers.
        raise TypeError(
            f"{shown(value)} is not a timedelta; write for example timedelta(seconds=5)"
        )
    return Duration.from_ns(duration_to_ns(value))


def to_timestamp(value: datetime) -> Timestamp:
    """The same time. Raises ValueError for a datetime without a zone, TypeError for no datetime."""
    if isinstance(value, Timestamp):
        return value
    if not isinstance(value, datetime):
        raise TypeError(f"{shown(value)} is not a datetime")
    return Timestamp.from_ns(datetime_to_ns(value))


def timestamp_of_text(text: str) -> Timestamp:
    """Raises ValueError for text that is not an RFC 3339 time with a zone."""
    return Timestamp.from_ns(parse_isotime(text))


def text_of_time(value: datetime) -> str:
    """RFC 3339 with nine digits, or none when the second is whole."""
    return format_isotime(exact_ns(value))


if TYPE_CHECKING:
    from typing import Self

    # To users and type checkers these are an ordinary timedelta and datetime.
    Span: TypeAlias = timedelta
    Moment: TypeAlias = datetime
else:
    Span = Duration
    Moment = Timestamp

_EXTRA = "<extra>"  # no JSON document of the server has a field of this name

DocumentT = TypeVar("DocumentT", bound="Document")


class NewWord(str):
    """A word that a server said, or that stands in `extra`, and that its field does not know."""

    __slots__ = ()


class Document(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Base class. Raises ConfigError for a naive datetime, or a plain number as a duration."""

    extra: dict[str, Any] = msgspec.field(default_factory=dict, name=_EXTRA)
    """Fields that this class does not know, as parsed JSON."""

    def __post_init__(self) -> None:
        if not isinstance(self.extra, dict):
            raise ConfigError(f"extra is a dict of fields, not {shown(self.extra)}.")
        for name in _list_fields(type(self)):
            value = getattr(self, name)
            if type(value) is not list and isinstance(value, Iterable) and not _is_one(value):
                msgspec.structs.force_setattr(self, name, list(value))
        for name, exact in time_fields(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            try:
                better = [exact(one) for one in value] if type(value) is list else exact(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{name}: {str(error).removesuffix('.')}.") from None
            msgspec.structs.force_setattr(self, name, better)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed. Raises ConfigError for an unknown name."""
        check_names(type(self), changes)
        return msgspec.structs.replace(self, **changes)


def _is_one(value: Any) -> bool:
    """No list, though it could be iterated."""
    return isinstance(value, str | bytes | bytearray | Mapping)


@cache
def _list_fields(cls: type[Document]) -> list[str]:
    fields = msgspec.structs.fields(cls)
    return [field.name for field in fields if str(field.type).startswith("list[")]


@cache
def time_fields(cls: type[Document]) -> list[tuple[str, Any]]:
    """The fields that are times, and what makes them exact."""
    kinds: list[tuple[str, Any]] = []
    for field in msgspec.structs.fields(cls):
        shown = str(field.type)
        if "Duration" in shown:
            kinds.append((field.name, to_duration))
        elif "Timestamp" in shown:
            kinds.append((field.name, to_timestamp))
    return kinds


@cache
def words_of(cls: type[Document]) -> dict[str, tuple[str, ...]]:
    """The fields whose values are those of an enumeration: `Annotated[str, TheEnum]`."""
    found = {}
    for field in msgspec.structs.fields(cls):
        for one in (field.type, *get_args(field.type)):
            if get_origin(one) is Annotated and isinstance(words := get_args(one)[1], EnumType):
                found[field.encode_name] = values_of(words)
    return found


def values_of(words: EnumType) -> tuple[str, ...]:
    """The texts of an enumeration."""
    return tuple(member.value for member in cast("type[Enum]", words))


def field_names(cls: type[Document]) -> tuple[str, ...]:
    """The wire names that a document class knows."""
    return tuple(name for name in cls.__struct_encode_fields__ if name != _EXTRA)


def check_names(cls: type[Document], options: Mapping[str, Any]) -> None:
    """Raises ConfigError, which suggests a similar one, for an option that does not exist."""
    known = cls.__struct_fields__
    for name in options:
        if name not in known:
            near = nearest_name(name, known)
            hint = f"; did you mean {near!r}?" if near else "."
            raise ConfigError(f"{cls.__name__} has no option {name!r}{hint}")


# -- from the wire ---------------------------------------------------------------------------


def from_wire(cls: type[DocumentT], raw: Any) -> DocumentT:
    """A document from parsed JSON. Raises DocumentError when a known field has another type."""
    said = _without_nulls(raw)
    document = convert_document(said, cls, cls.__name__, dec_hook=_decode_time)
    _attach_extras(document, said)
    return document


def _without_nulls(value: Any) -> Any:
    # Go writes null for an empty list, and year 1 for a time that never was.
    if isinstance(value, Mapping):
        return {
            key: _without_nulls(one)
            for key, one in value.items()
            if one is not None and one != ZERO_TIME
        }
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value


def _decode_time(kind: type[Any], value: Any) -> Any:
    if kind is Duration and type(value) is int:
        return Duration.from_ns(value)
    if kind is Timestamp and type(value) is str:
        return timestamp_of_text(value)
    raise ValueError(f"{value!r} is no {kind.__name__}")


def _attach_extras(document: Document, raw: Mapping[str, Any]) -> None:
    known = field_names(type(document))
    unknown = {name: value for name, value in raw.items() if name not in known}
    if unknown:
        msgspec.structs.force_setattr(document, "extra", unknown)
    for name, words in words_of(type(document)).items():
        value = getattr(document, name)
        if value is not None and value not in words:
            msgspec.structs.force_setattr(document, name, NewWord(value))
    for name in known:
        value = getattr(document, name)
        if isinstance(value, Document):
            if name in raw:
                _attach_extras(value, raw[name])
        elif type(value) is list and value and isinstance(value[0], Document):
            for one, its_raw in zip(value, raw[name], strict=True):
                _attach_extras(one, its_raw)
        elif type(value) is dict:
            for key, one in value.items():
                if isinstance(one, Document):
                    _attach_extras(one, raw[name][key])


# -- to the wire -----------------------------------------------------------------------------


def to_wire(document: Document) -> dict[str, Any]:
    """The fields given, as plain JSON values, unknown fields included.

    Raises ConfigError for a timedelta in a field that is no time: it would become nanoseconds.
    """
    wire: dict[str, Any] = {}
    for name in field_names(type(document)):
        value = getattr(document, name)
        if type(value) is timedelta:
            raise ConfigError(f"{name} is no time, and was given {shown(value)}.")
        if value is not None:
            wire[name] = wire_value(value)
    wire.update(document.extra)
    for name in words_of(type(document)).keys() & document.extra.keys():
        if isinstance(wire[name], str):
            wire[name] = NewWord(wire[name])
    return wire


def wire_value(value: Any) -> Any:
    """The plain JSON value of a document's field, or of what a caller gives for it."""
    if type(value) is NewWord:
        return value
    if isinstance(value, Document):
        return to_wire(value)
    if isinstance(value, timedelta):
        return exact_ns(value)
    if isinstance(value, datetime):
        return text_of_time(value)
    if value is None or isinstance(value, bool):
        return value
    try:
        value = plain_value(value)
    except TypeError:
        return value  # who sends it says so
    if isinstance(value, dict):
        return {wire_value(key): wire_value(one) for key, one in value.items()}
    return [wire_value(one) for one in value] if isinstance(value, list) else value

"""The base of JSON documents: typed, but without losing anything on the wire.

Field names are those of the wire. None means "not given" and is not sent, so an update keeps other
values; 0, False and empty values are sent. `replace` notes in `extra` which fields became None,
since an update removes them. Durations are `timedelta`, times aware `datetime`, both with the
wire's nanoseconds. `extra` keeps unknown fields, at every level, and sends them back.
Documents are frozen; `replace` makes a changed copy. Words such as "limits" are plain strings, so
words of newer servers pass through.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, EnumType
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

from jetspark.errors import ConfigError, safe_repr
from jetspark.timestamps import (
    MAX_SECONDS,
    Seconds,
    datetime_to_ns,
    duration_to_ns,
    format_isotime,
    ns_to_datetime,
    ns_to_timedelta,
    parse_isotime,
)
from jetspark.validation import list_of
from jetspark.wire.documents import convert_document, plain_value

if TYPE_CHECKING:
    from typing import Self

# -------------------------------------------------------------------------------------------------
# Durations and times that keep the wire's nanoseconds.
#
# JetStream's durations are integers of nanoseconds, its times RFC 3339 text with up to nine digits;
# `timedelta` and `datetime` hold microseconds. The two classes here are a `timedelta` and an aware
# `datetime` that keep the exact number; `exact_ns` returns it. Results of arithmetic have
# microseconds again.

ZERO_TIME = "0001-01-01T00:00:00Z"
"""The server's text for "never"."""


class _ExactNanoseconds:
    """The common part of both classes: the number, equality by it, and pickling it.

    Values without a number of their own, such as results of arithmetic, have whole microseconds.
    """

    __slots__ = ()
    _ns: int

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        raise NotImplementedError

    @property
    def ns(self) -> int:
        """Exact nanoseconds; for a time, since the epoch."""
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


class Duration(_ExactNanoseconds, timedelta):
    """A timedelta that keeps its nanoseconds."""

    __slots__ = ("_ns",)

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        near = ns_to_timedelta(ns)
        self = cls(near.days, near.seconds, near.microseconds)
        self._ns = ns
        return self


class Timestamp(_ExactNanoseconds, datetime):
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

    Exact for values from the server, else microseconds. Raises ValueError for a datetime without a
    zone.
    """
    return value.ns if isinstance(value, Duration | Timestamp) else _whole_microseconds(value)


def _whole_microseconds(value: timedelta | datetime) -> int:
    return datetime_to_ns(value) if isinstance(value, datetime) else duration_to_ns(value)


def to_duration(value: Seconds) -> Duration:
    """Convert to a Duration with its nanoseconds; a number is seconds. Raises ConfigError."""
    if isinstance(value, Duration):
        return value
    if isinstance(value, Real) and not -MAX_SECONDS < value < MAX_SECONDS:  # or NaN
        raise ConfigError(
            f"{safe_repr(value)} are too many seconds; nanoseconds are for mappings and JSON"
        )
    return Duration.from_ns(duration_to_ns(value))


def to_timestamp(value: datetime) -> Timestamp:
    """Convert to a Timestamp with nanoseconds. Raises ValueError for a datetime without a zone."""
    return value if isinstance(value, Timestamp) else Timestamp.from_ns(datetime_to_ns(value))


def timestamp_of_text(text: str) -> Timestamp:
    """Raises ValueError for text that is not an RFC 3339 time with a zone."""
    return Timestamp.from_ns(parse_isotime(text))


def text_of_time(value: datetime) -> str:
    """RFC 3339 with nine digits, or none when the second is whole."""
    return format_isotime(exact_ns(value))


if TYPE_CHECKING:
    # Users and type checkers see an ordinary timedelta and datetime.
    Span: TypeAlias = timedelta
    Moment: TypeAlias = datetime
else:
    Span = Duration
    Moment = Timestamp

# -------------------------------------------------------------------------------------------------
# Documents.

_EXTRA = "<extra>"  # no JSON document of the server has a field of this name

DocumentT = TypeVar("DocumentT", bound="Document")


class Document(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Base class. A duration may be given as seconds, and one text for a list of texts.

    Raises ConfigError for a value that is not a time where a field needs one.
    """

    extra: dict[str, Any] = msgspec.field(default_factory=dict, name=_EXTRA)
    """Fields that this class does not know, as parsed JSON."""

    def __post_init__(self) -> None:
        for name in _list_fields(type(self)):
            value = getattr(self, name)
            if value is not None and type(value) is not list:
                msgspec.structs.force_setattr(self, name, list_of(name, value))
        for name, exact in time_fields(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            try:
                better = [exact(item) for item in value] if type(value) is list else exact(value)
            except ValueError as error:
                raise ConfigError(f"{name}: {str(error).removesuffix('.')}.") from None
            msgspec.structs.force_setattr(self, name, better)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed. An update removes the fields that became None."""
        if "extra" not in changes:
            removed = {
                name: None
                for name, value in changes.items()
                if value is None and getattr(self, name, None) is not None
            }
            extra = {name: value for name, value in self.extra.items() if name not in changes}
            changes["extra"] = extra | removed
        return msgspec.structs.replace(self, **changes)


@cache
def _list_fields(cls: type[Document]) -> list[str]:
    fields = msgspec.structs.fields(cls)
    return [field.name for field in fields if str(field.type).startswith("list[")]


@cache
def time_fields(cls: type[Document]) -> list[tuple[str, Any]]:
    """The fields that are times, and the functions that make them exact."""
    fields = [(field.name, str(field.type)) for field in msgspec.structs.fields(cls)]
    exact = {"Duration": to_duration, "Timestamp": to_timestamp}
    return [(name, exact[kind]) for name, text in fields for kind in exact if kind in text]


@cache
def inner_documents(cls: type[Document]) -> dict[str, type[Document]]:
    """The fields that hold documents, or lists of documents."""
    kinds = {field.encode_name: _document_in(field.type) for field in msgspec.structs.fields(cls)}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _document_in(kind: Any) -> type[Document] | None:
    if isinstance(kind, type) and issubclass(kind, Document):
        return kind
    return next(filter(None, map(_document_in, get_args(kind))), None)


@cache
def words_of(cls: type[Document]) -> dict[str, tuple[str, ...]]:
    """The fields whose values belong to an enumeration: `Annotated[str, TheEnum]`."""
    words_by_field = {}
    for field in msgspec.structs.fields(cls):
        for kind in (field.type, *get_args(field.type)):
            if get_origin(kind) is Annotated and isinstance(words := get_args(kind)[1], EnumType):
                words_by_field[field.encode_name] = values_of(words)
    return words_by_field


def values_of(words: EnumType) -> tuple[str, ...]:
    """The texts of an enumeration."""
    return tuple(member.value for member in cast("type[Enum]", words))


def field_names(cls: type[Document]) -> tuple[str, ...]:
    """The wire names that a document class knows."""
    return tuple(name for name in cls.__struct_encode_fields__ if name != _EXTRA)


# -- from the wire ---------------------------------------------------------------------------


def from_wire(cls: type[DocumentT], raw: Any) -> DocumentT:
    """A document from parsed JSON. Raises DocumentError when a known field has another type."""
    values = _without_nulls(raw)
    document = convert_document(values, cls, cls.__name__, dec_hook=_decode_time)
    _attach_extras(document, values)
    return document


def _without_nulls(value: Any) -> Any:
    # Go writes null for an empty list, and year 1 for "never".
    if isinstance(value, Mapping):
        return {
            key: _without_nulls(item)
            for key, item in value.items()
            if item is not None and item != ZERO_TIME
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _decode_time(kind: type[Any], value: Any) -> Any:
    if kind is Duration and type(value) is int:
        return Duration.from_ns(value)
    if kind is Timestamp and type(value) is str:
        return timestamp_of_text(value)
    raise ValueError(f"{value!r} is not a {kind.__name__}")


def _attach_extras(document: Document, raw: Mapping[str, Any]) -> None:
    fields = field_names(type(document))
    if unknown := {name: value for name, value in raw.items() if name not in fields}:
        msgspec.structs.force_setattr(document, "extra", unknown)
    for name in raw.keys() & fields:
        value, its_raw = getattr(document, name), raw[name]
        if isinstance(value, Document):
            _attach_extras(value, its_raw)
        elif type(value) is list and value and isinstance(value[0], Document):
            for item, item_raw in zip(value, its_raw, strict=True):
                _attach_extras(item, item_raw)
        elif type(value) is dict:
            for key, item in value.items():
                if isinstance(item, Document):
                    _attach_extras(item, its_raw[key])


# -- to the wire -----------------------------------------------------------------------------


def to_wire(document: Document) -> dict[str, Any]:
    """The fields given, as plain JSON values, unknown fields included."""
    cls = type(document)
    fields = {name: getattr(document, name) for name in field_names(cls)}
    wire = {
        name: wire_value(value, times=holds_times(cls, name))
        for name, value in fields.items()
        if value is not None
    }
    return document.extra | wire


def holds_times(cls: type[Document], name: str) -> bool:
    """Whether a field may hold durations and times: if it is one, has documents, or is unknown."""
    kinds = dict(time_fields(cls)), inner_documents(cls)
    return any(name in kind for kind in kinds) or name not in field_names(cls)


def wire_value(value: Any, *, times: bool = True) -> Any:
    """The plain JSON value of a document's field, or of a caller's value for it.

    `times=False`: durations and times stay as they are, for the check of the field's type: they
    would be a number and a text. Raises ValueError for a datetime without a zone.
    """
    if isinstance(value, Document):
        return to_wire(value)
    if isinstance(value, timedelta):
        return exact_ns(value) if times else value
    if isinstance(value, datetime):
        return text_of_time(value) if times else value
    if value is None or isinstance(value, bool):
        return value
    try:
        value = plain_value(value)
    except TypeError:
        return value  # the sender raises the error
    if isinstance(value, dict):
        return {
            wire_value(key, times=times): wire_value(item, times=times)
            for key, item in value.items()
        }
    return [wire_value(item, times=times) for item in value] if isinstance(value, list) else value

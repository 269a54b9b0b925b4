"""The base of JetStream's JSON documents: typed, without losing anything of the wire.

Contract: field names are those of the wire. None means "not given" and is not sent, so an update
keeps other values; 0, False and empty values are sent. Durations are `timedelta`, times aware
`datetime` (with nanoseconds, see `exact_times`). Unknown fields are in `extra`, at every level, and
are sent back. Documents are frozen; `replace` makes a changed copy. Words such as "limits" or
"explicit" are plain strings, so words of newer servers pass through.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from jetspark.errors import ConfigError, JetStreamError
from jetspark.jetstream.exact_times import (
    ZERO_TIME,
    Duration,
    Timestamp,
    exact_ns,
    text_of_time,
    timestamp_of_text,
    to_duration,
    to_timestamp,
)
from jetspark.kinds import plain_text, plain_value
from jetspark.subjects import nearest_name
from jetspark.wire.documents import encode_document

if TYPE_CHECKING:
    from typing import Self

    # To users and type checkers these are an ordinary timedelta and datetime.
    Span: TypeAlias = timedelta
    Moment: TypeAlias = datetime
else:
    Span = Duration
    Moment = Timestamp

_EXTRA = "<extra>"  # no JSON document of the server has a field of this name

_MISSPELT = 0.85
"""How near a name must be to a known one to be a slip, and not a new name that looks like it."""

DocumentT = TypeVar("DocumentT", bound="Document")

Configuration: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]
"""A wire document: a mapping, JSON text, or the path of a JSON file (a str is text)."""


class Document(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Base class. Raises ConfigError for a naive datetime, or a plain number as a duration."""

    extra: dict[str, Any] = msgspec.field(default_factory=dict, name=_EXTRA)
    """Fields that this class does not know, as parsed JSON."""

    def __post_init__(self) -> None:
        if not isinstance(self.extra, dict):
            raise ConfigError(f"extra is a dict of fields, not {self.extra!r:.80}.")
        for name in _list_fields(type(self)):
            value = getattr(self, name)
            if type(value) is not list and isinstance(value, Iterable) and not _is_one(value):
                msgspec.structs.force_setattr(self, name, list(value))
        for name, exact in _time_fields(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            try:
                better = [exact(one) for one in value] if type(value) is list else exact(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{name}: {error}.") from None
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
def _time_fields(cls: type[Document]) -> list[tuple[str, Any]]:
    kinds: list[tuple[str, Any]] = []
    for field in msgspec.structs.fields(cls):
        shown = str(field.type)
        if "Duration" in shown:
            kinds.append((field.name, to_duration))
        elif "Timestamp" in shown:
            kinds.append((field.name, to_timestamp))
    return kinds


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


def from_wire(cls: type[DocumentT], raw: Mapping[str, Any]) -> DocumentT:
    """A document from parsed JSON. Raises JetStreamError when a known field has another type."""
    said = _without_nulls(raw)
    try:
        document = msgspec.convert(said, cls, dec_hook=_decode_time)
    except msgspec.ValidationError as error:
        raise JetStreamError(f"Unreadable {cls.__name__}: {error}.") from None
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
    """The fields given, as plain JSON values, unknown fields included."""
    wire: dict[str, Any] = {}
    for name in field_names(type(document)):
        value = getattr(document, name)
        if type(value) is timedelta:  # what is one is a Duration
            raise _no_time(name, value)
        if value is not None:
            wire[name] = _wire_value(value)
    wire.update(document.extra)
    return wire


def _wire_value(value: Any) -> Any:
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
        return {_wire_value(key): _wire_value(one) for key, one in value.items()}
    return [_wire_value(one) for one in value] if isinstance(value, list) else value


def config_to_wire(
    cls: type[Document],
    config: Document | Configuration | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The wire document of a caller's arguments: a document or a Configuration, and options.

    A Configuration is a wire document: durations are nanoseconds, unknown fields are sent as they
    are, unless their names look misspelt. Options override `config`. One text for a list of texts
    is a list of one. Raises ConfigError for an unknown option, a misspelt field, JSON that is not
    an object, and for a value of the wrong type.
    """
    check_names(cls, options)
    if isinstance(config, Document) and not isinstance(config, cls):
        raise ConfigError(f"A {cls.__name__} is wanted, not a {type(config).__name__}.")
    try:
        if config is None:
            wire = {}
        elif isinstance(config, Document):
            wire = to_wire(config)
        else:
            wire = _wire_given(cls, config)
        wire.update(to_wire(cls(**options)))
        for name in _text_lists(cls) & wire.keys():
            if isinstance(wire[name], str):  # one subject is a list of one, as in all calls
                wire[name] = [wire[name]]
        msgspec.convert(_without_nulls(wire), cls, dec_hook=_decode_time)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"Not a usable {cls.__name__}: {error}.") from None
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"Not a usable {cls.__name__}: {error}.") from None
    return wire


def _wire_given(cls: type[Document], config: Configuration) -> dict[str, Any]:
    """A wire document as a caller has it. Raises ConfigError for a name that is misspelt."""
    if isinstance(config, Mapping):
        given = {key: value for key, value in config.items() if value is not None}
    else:
        try:
            given = msgspec.json.decode(_text_of(config), type=dict[str, Any])
        except msgspec.MsgspecError:
            if not isinstance(config, str):
                raise
            raise ConfigError(
                f"A str is the JSON text of a {cls.__name__}, and {config!r:.80} is none: "
                "give fields by name, a mapping, JSON text, or the pathlib.Path of a JSON file."
            ) from None
    known, times = field_names(cls), dict(_time_fields(cls))
    for name, value in given.items():
        if name not in known:
            # Other names may be fields of a newer server, which knows what is none.
            if near := nearest_name(name, known, cutoff=_MISSPELT):
                raise ConfigError(
                    f"{cls.__name__} has no field {name!r}; did you mean {near!r}? "
                    f"If not, give it as extra={{{name!r}: …}}."
                )
        elif isinstance(value, timedelta) and name not in times:
            raise _no_time(name, value)
    return {plain_text(name): _wire_value(value) for name, value in given.items()}


def _no_time(name: str, value: timedelta) -> ConfigError:
    return ConfigError(f"{name} is no time, and was given {value!r}.")


@cache
def _text_lists(cls: type[Document]) -> frozenset[str]:
    """The fields that are lists of texts."""
    return frozenset(
        field.encode_name
        for field in msgspec.structs.fields(cls)
        if field.type in (list[str], list[str] | None)
    )


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def json_of(document: Configuration) -> bytes:
    """A wire document as JSON, unchanged. Raises ConfigError when it is not a JSON object."""
    if isinstance(document, Mapping):
        return encode_document(_wire_value(document))
    text = _text_of(document)
    try:
        msgspec.json.decode(text, type=dict[str, Any])
        return text.encode() if isinstance(text, str) else text
    except msgspec.MsgspecError as error:
        raise ConfigError(f"Not a JSON object: {error}.") from None
    except UnicodeEncodeError:
        raise ConfigError("The document holds a lone surrogate, which no UTF-8 has.") from None


def _text_of(document: str | bytes | os.PathLike[str]) -> str | bytes:
    if isinstance(document, str | bytes):
        return document
    try:
        return Path(document).read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read {document}: {error.strerror or error}.") from None

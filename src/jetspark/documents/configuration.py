"""Configurations as callers give them: checked when they are made, and before they are sent.

Contract: annotations say what a field takes, as with arguments of calls (`kinds`). Kinds are
checked when a document is made; misspelt names, words and numbers that the server has no place for,
when it is given to a call, also in mappings and JSON, at every level. What a server itself said
passes (`NewWord`), and so does what stands in `extra`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter, contains
from typing import Annotated, Any, Final, TypeAlias, cast, get_args, get_origin

import msgspec

from jetspark.arguments import checked_value
from jetspark.documents.document import (
    Document,
    DocumentT,
    Duration,
    Moment,
    NewWord,
    Span,
    check_names,
    field_names,
    from_wire,
    time_fields,
    to_duration,
    to_timestamp,
    to_wire,
    wire_value,
    words_of,
)
from jetspark.errors import ConfigError, DocumentError, JetStreamError, shown
from jetspark.files import read_small
from jetspark.kinds import Kind, is_number, kind_of, plain_number, plain_text, whole_in
from jetspark.subjects import nearest_name
from jetspark.timestamps import LONGEST, duration_to_ns
from jetspark.wire.documents import decode_document, encode_document

_MISSPELT: Final = 0.85
"""How near a name must be to a known one to be a slip, and not a new name that looks like it."""

Configuration: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]
"""A wire document: a mapping, JSON text, or the path of a JSON file (a str is text)."""

_MOMENT: Final = Kind(
    "a datetime with a time zone, such as datetime.now(UTC)",
    "datetimes with a time zone",
    lambda value: isinstance(value, datetime) and value.utcoffset() is not None,
    to_timestamp,
    frozenset({Moment}),
)
_SPAN: Final = Kind(
    "a timedelta, such as timedelta(seconds=5)",
    "timedeltas",
    lambda value: isinstance(value, timedelta),
    to_duration,
    frozenset({Span}),
)


_A_LIST: Final = cast(Kind, kind_of(list[str]))
_TEXTS: Final = Kind(
    # One subject is a list of one, as in all calls.
    "a str or a list of str",
    "lists of str",
    lambda value: isinstance(value, str) or _A_LIST.fits(value),
    lambda value: _A_LIST.plain([value] if isinstance(value, str) else value),
)
UINT64: Final = range(2**64)
"""The numbers that the server has a place for in fields such as sequences."""
_INT64: Final = whole_in(range(-(2**63), 2**63))
_NANOSECONDS: Final = _INT64._replace(one="a time of at most 292 years, in nanoseconds")


class GivenDocument(Document, frozen=True, kw_only=True):
    """A document that callers make. Raises ConfigError for a value of a wrong kind."""

    def __post_init__(self) -> None:
        read, exact, kinds = _kinds(type(self))
        values = read(self)
        fine = map(contains, exact, map(type, values))  # most: servers' answers are made, too
        for known, value, (name, kind) in zip(fine, values, kinds, strict=True):
            if known or type(value) is NewWord:
                continue
            if (plain := checked_value(name, kind, value)) is not value:
                msgspec.structs.force_setattr(self, name, plain)
        super().__post_init__()


@cache
def _kinds(
    cls: type[Document],
) -> tuple[Callable[[Any], Any], list[frozenset[type]], list[tuple[str, Kind]]]:
    """What reads the fields that are checked, the classes that need no look, names and kinds."""
    kinds = [(field.name, kind_of(field.type, _when_made)) for field in _own_fields(cls)]
    checked = [(name, kind) for name, kind in kinds if kind is not None]
    read = attrgetter("extra", *(name for name, _ in checked))  # never one: that is no tuple
    return lambda document: read(document)[1:], [kind.exact for _, kind in checked], checked


def _own_fields(cls: type[Document]) -> list[msgspec.structs.FieldInfo]:
    return [field for field in msgspec.structs.fields(cls) if field.name != "extra"]


def _when_made(annotation: Any) -> tuple[Kind | None] | None:
    """Also what a server says is taken: words and numbers are checked when it is sent."""
    if get_origin(annotation) is Annotated:
        return (kind_of(get_args(annotation)[0]),)
    if _is_document(annotation):
        return (_document_or_mapping(annotation),)
    said = {Span: _SPAN, Moment: _MOMENT}.get(annotation)
    if said is None and annotation == list[str]:
        said = _TEXTS
    return None if said is None else (said,)


def _is_document(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Document)


def _document_or_mapping(cls: type[Document]) -> Kind:
    def plain(value: Any) -> Any:
        return value if isinstance(value, cls) else _document_of(cls, value)

    return Kind(
        f"a {cls.__name__} or a mapping",
        f"{cls.__name__} or mappings",
        lambda value: isinstance(value, cls | Mapping),
        plain,
        frozenset({cls}),
    )


def _document_of(cls: type[DocumentT], given: Mapping[str, Any]) -> DocumentT:
    wire = _wire_given(cls, given)
    _check_values(cls, wire)
    return _usable(cls, wire)


def _usable(cls: type[DocumentT], wire: Mapping[str, Any]) -> DocumentT:
    try:
        return from_wire(cls, wire)
    except JetStreamError as error:
        reason = str(error).partition(": ")[2]
        raise ConfigError(f"Not a usable {cls.__name__}: {reason}") from None


# -- what is sent ----------------------------------------------------------------------------------


def config_to_wire(
    cls: type[Document],
    config: Document | Configuration | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The wire document of a caller's arguments: a document or a Configuration, and options.

    A Configuration is a wire document: durations are nanoseconds, unknown fields are sent as they
    are, unless their names look misspelt. Options override `config`; their times may be seconds,
    too. One text for a list of texts is a list of one. Raises ConfigError for an unknown option, a
    misspelt field, JSON that is not an object, a word that a field does not take, and a value of
    the wrong kind.
    """
    check_names(cls, options)
    if isinstance(config, Document) and not isinstance(config, cls):
        raise ConfigError(f"A {cls.__name__} is wanted, not a {type(config).__name__}.")
    if config is None:
        wire = {}
    elif isinstance(config, Document):
        wire = to_wire(config)
    else:
        wire = _wire_given(cls, _mapping_given(cls, config))
    wire.update(to_wire(cls(**with_seconds(cls, options))))
    _check_values(cls, wire)
    _usable(cls, wire)
    return wire


def with_seconds(cls: type[Document], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a call, with a timedelta for each number of seconds. Raises ConfigError."""
    given = dict(options)
    for name, exact in time_fields(cls):
        if exact is to_duration and name in given:
            given[name] = _span_given(name, given[name])
    return given


def _span_given(name: str, value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_span_given(name, one) for one in value]
    if not is_number(value):
        return value  # the document says what is wrong
    if not -LONGEST < plain_number(value) < LONGEST:
        raise ConfigError(
            f"{name} is in seconds, and {shown(value)} are too many; nanoseconds are for mappings "
            "and JSON."
        )
    return Duration.from_ns(duration_to_ns(value))


def _mapping_given(cls: type[Document], config: Configuration) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    try:
        return decode_document(_text_of(config), cls.__name__)
    except DocumentError as error:
        if isinstance(config, os.PathLike):
            raise ConfigError(f"{config} is no {cls.__name__} in JSON: {error.why}.") from None
        if not isinstance(config, str):
            raise ConfigError(f"Not a usable {cls.__name__}: {error.why}.") from None
        raise ConfigError(
            f"A str is the JSON text of a {cls.__name__}, and {shown(config)} is none: "
            "give fields by name, a mapping, JSON text, or the pathlib.Path of a JSON file."
        ) from None


def _wire_given(cls: type[Document], given: Mapping[str, Any]) -> dict[str, Any]:
    """A wire document as a caller has it. Raises ConfigError for a name that is misspelt."""
    known, nested, spans = field_names(cls), _nested(cls), dict(time_fields(cls))
    wire = {}
    for name, value in given.items():
        if value is None:
            continue
        if name == "extra" and isinstance(value, Mapping):  # as in the documents
            wire.update(wire_value(value))
            continue
        if name not in known:
            # Other names may be fields of a newer server, which knows what is none.
            if near := nearest_name(name, known, cutoff=_MISSPELT):
                raise ConfigError(
                    f"{cls.__name__} has no field {name!r}; did you mean {near!r}? "
                    f"If not, put it into extra: {{{name!r}: …}}."
                )
        elif name in nested:
            value = _nested_given(nested[name], value)
        elif isinstance(value, timedelta) and name not in spans:
            raise ConfigError(f"{name} is no time, and was given {shown(value)}.")
        try:
            wire[plain_text(name)] = wire_value(value)
        except ValueError as error:  # a datetime without a zone
            raise ConfigError(f"{name}: {error}.") from None
    return wire


def _nested_given(cls: type[Document], value: Any) -> Any:
    if isinstance(value, Mapping):
        return _wire_given(cls, value)
    if isinstance(value, list | tuple):
        return [_nested_given(cls, one) for one in value]
    return value


@cache
def _nested(cls: type[Document]) -> dict[str, type[Document]]:
    """The fields that are documents, or lists of documents."""
    found = {}
    for field in _own_fields(cls):
        for one in (field.type, *get_args(field.type)):
            for kind in (one, *get_args(one)):
                if _is_document(kind):
                    found[field.encode_name] = kind
    return found


def _check_values(cls: type[Document], wire: dict[str, Any], where: str = "") -> None:
    """Raises ConfigError for what the server could not read; one text becomes a list."""
    nested = _nested(cls)
    for name, kind in _wire_kinds(cls).items():
        value = wire.get(name)
        if value is None or type(value) is NewWord:
            continue
        if not kind.fits(value):
            raise _refused(cls, where + name, name, kind, value)
        if (inner := nested.get(name)) is None:
            wire[name] = kind.plain(value)
        elif isinstance(value, dict):
            _check_values(inner, value, f"{where}{name}.")
        else:
            for index, one in enumerate(value):
                _check_values(inner, one, f"{where}{name}[{index}].")


def _refused(cls: type[Document], path: str, name: str, kind: Kind, value: Any) -> ConfigError:
    error = kind.refuse(path, value)
    if isinstance(value, str) and name in words_of(cls) and "did you mean" not in str(error):
        return ConfigError(f"{error} A word of a newer server goes into extra: {{{name!r}: …}}.")
    return error


@cache
def _wire_kinds(cls: type[Document]) -> dict[str, Kind]:
    kinds = {field.encode_name: kind_of(field.type, _when_sent) for field in _own_fields(cls)}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _when_sent(annotation: Any) -> tuple[Kind | None] | None:
    if annotation is Moment:
        return (None,)  # RFC 3339: who parses it says so
    if _is_document(annotation):
        one = f"a {annotation.__name__} or a mapping"
        return (Kind(one, f"{annotation.__name__} or mappings", lambda value: type(value) is dict),)
    said = {Span: _NANOSECONDS, int: _INT64}.get(annotation)
    if said is None and annotation == list[str]:
        said = _TEXTS
    return None if said is None else (said,)


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def json_of(document: Configuration) -> bytes:
    """A wire document as JSON, unchanged. Raises ConfigError when it is not a JSON object."""
    if isinstance(document, Mapping):
        return encode_document(wire_value(document))
    text = _text_of(document)
    try:
        decode_document(text, "document")
    except DocumentError as error:
        raise ConfigError(f"Not a JSON object: {error.why}.") from None
    return text.encode() if isinstance(text, str) else text


def _text_of(document: str | bytes | os.PathLike[str]) -> str | bytes:
    if isinstance(document, str | bytes):
        return document
    try:
        return read_small(document)
    except OSError as error:
        raise ConfigError(f"Cannot read {document}: {error.strerror or error}.") from None

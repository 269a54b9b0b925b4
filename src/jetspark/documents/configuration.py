"""Configurations as callers give them: checked before they are sent.

Contract: misspelt names, words and numbers that the server has no place for, and values of another
type than the field's are refused, also in mappings and JSON, at every level. What a server itself
said passes (`NewWord`), and so does what stands in `extra`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, get_args, get_origin

import msgspec

from jetspark.documents.document import (
    Document,
    DocumentT,
    Duration,
    NewWord,
    check_names,
    field_names,
    from_wire,
    time_fields,
    to_duration,
    to_wire,
    wire_value,
    words_of,
)
from jetspark.errors import ConfigError, DocumentError, JetStreamError, shown
from jetspark.files import read_small
from jetspark.subjects import nearest_name, plain_text
from jetspark.timestamps import LONGEST, duration_to_ns
from jetspark.validation import check_word
from jetspark.wire.documents import decode_document, encode_document

_MISSPELT: Final = 0.85
"""How near a name must be to a known one to be a slip, and not a new name that looks like it."""

Configuration: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]
"""A wire document: a mapping, JSON text, or the path of a JSON file (a str is text)."""

UINT64: Final = range(2**64)
"""The numbers that the server has a place for in fields such as sequences."""
_INT64: Final = range(-(2**63), 2**63)
_PLACE: Final = re.compile(r"(.+) - at `\$\.?(.+)`")
"""msgspec's sentence, and the path in it."""


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
    misspelt field, JSON that is not an object, a word or a number that a field does not take, and a
    value of another type.
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
    chosen = with_seconds(cls, options)
    for name in _nested(cls).keys() & chosen.keys():
        chosen[name] = _nested_given(_nested(cls)[name], chosen[name])
    wire.update(to_wire(cls(**chosen)))
    return _checked(cls, wire)


def document_to_wire(document: Document) -> dict[str, Any]:
    """The wire document of a caller's document. Raises ConfigError as `config_to_wire`."""
    return _checked(type(document), to_wire(document))


def _checked(cls: type[Document], wire: dict[str, Any]) -> dict[str, Any]:
    _check_values(cls, wire)
    _check_types(cls, wire)
    return wire


def with_seconds(cls: type[Document], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a call, with a timedelta for each number of seconds. Raises ConfigError."""
    given = dict(options)
    for name, exact in time_fields(cls):
        if exact is to_duration and name in given:
            given[name] = _span_given(name, given[name])
    return given


def _span_given(name: str, value: Any) -> Any:
    if value is None or isinstance(value, timedelta):
        return value
    if isinstance(value, list | tuple):
        return [_span_given(name, one) for one in value]
    if not -LONGEST < value < LONGEST:
        raise ConfigError(
            f"{name} is in seconds, and {shown(value)} are too many; nanoseconds are for "
            "mappings and JSON."
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


def _nested(cls: type[Document]) -> dict[str, type[Document]]:
    """The fields that are documents, or lists of documents."""
    return {name: field.inner for name, field in _fields(cls).items() if field.inner is not None}


class _Field(NamedTuple):
    """What msgspec does not check, or not in these words."""

    inner: type[Document] | None
    """The document that it is, or that its list has."""
    texts: bool
    """Whether it is a list of texts, of which one may be given alone."""
    numbers: range


@cache
def _fields(cls: type[Document]) -> dict[str, _Field]:
    found = {}
    for field in msgspec.structs.fields(cls):
        parts = {field.type, *get_args(field.type)}
        parts |= {inner for part in parts for inner in get_args(part) if part is not field.type}
        inner = [part for part in parts if isinstance(part, type) and issubclass(part, Document)]
        annotated = [part for part in parts if get_origin(part) is Annotated]
        unsigned = any(get_args(part)[1] == UINT64 for part in annotated)
        found[field.encode_name] = _Field(
            inner[0] if inner else None, list[str] in parts, UINT64 if unsigned else _INT64
        )
    return found


def _check_values(cls: type[Document], wire: dict[str, Any], where: str = "") -> None:
    """Raises ConfigError for words and numbers that the server has not; one text becomes a list."""
    words = words_of(cls)
    for name, (inner, texts, numbers) in _fields(cls).items():
        value = wire.get(name)
        if texts and isinstance(value, str):
            wire[name] = [value]
        elif isinstance(value, str) and name in words and type(value) is not NewWord:
            _check_word(name, where + name, value, words[name])
        elif isinstance(value, int) and value not in numbers:
            most = f"from {numbers.start} to {numbers.stop - 1}"
            raise ConfigError(f"{where}{name} is a whole number {most}, not {shown(value)}.")
        elif inner is not None and isinstance(value, dict):
            _check_values(inner, value, f"{where}{name}.")
        elif inner is not None and isinstance(value, list):
            for index, one in enumerate(value):
                if isinstance(one, dict):
                    _check_values(inner, one, f"{where}{name}[{index}].")


def _check_word(name: str, path: str, value: str, words: tuple[str, ...]) -> None:
    try:
        check_word(path, value, words)
    except ConfigError as error:
        if "did you mean" in str(error):
            raise
        hint = f"A word of a newer server goes into extra: {{{name!r}: …}}."
        raise ConfigError(f"{error} {hint}") from None


def _check_types(cls: type[DocumentT], wire: Mapping[str, Any]) -> None:
    try:
        from_wire(cls, wire)
    except JetStreamError as error:
        reason = str(error).partition(": ")[2].removesuffix(".")
        if at := _PLACE.fullmatch(reason):
            reason = f"{at[2]}: {at[1][0].lower()}{at[1][1:]}"
        reason = reason.replace(" | null", "").replace("`", "")
        raise ConfigError(f"Not a usable {cls.__name__}: {reason}.") from None


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

"""Configurations as callers give them, checked before they are sent.

Servers before 2.12 ignore unknown fields. So a field whose name looks misspelt is refused, at every
level, as are a misspelt word and a value of another type, and each unknown word of an option. Other
unknown fields and words, and everything in `extra`, are sent, since the server may be newer.

A field that is not given has the server's default in a new document, and its old value in one that
is updated. None is the way to say "without it": the default in both. It is given as an option, as
null in a mapping, or by `Document.replace`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from jetspark.documents.document import (
    Document,
    DocumentT,
    field_names,
    from_wire,
    holds_times,
    inner_documents,
    time_fields,
    to_timestamp,
    to_wire,
    wire_value,
    words_of,
)
from jetspark.errors import ConfigError, DocumentError, JetsparkError, JetStreamError, safe_repr
from jetspark.files import read_small
from jetspark.nearest import did_you_mean, nearest_name
from jetspark.subjects import plain_text
from jetspark.timestamps import parse_isotime
from jetspark.validation import check_text, check_word
from jetspark.wire.documents import decode_document, encode_document

_MISSPELT: Final = 0.85
"""Similarity to a known name, from which on a name counts as misspelt, not new."""

Configuration: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]
"""A wire document: a mapping, JSON text, or the path of a JSON file (a str is text)."""

_ERROR_PATH: Final = re.compile(r"(.+) - at `\$\.?(.+)`")
"""msgspec's sentence, and the path in it."""


def config_to_wire(
    cls: type[Document],
    config: Document | Configuration | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The wire document of a caller's arguments: a document or a Configuration, and options.

    In a document durations are nanoseconds. Options override `config`; they may have seconds for a
    duration, and one text for a list. Raises ConfigError for a misspelt field or word, a value of
    another type, and JSON that is not an object; TypeError for an option that is no field.
    """
    changes = changes_to_wire(cls, config, options)
    return {name: value for name, value in changes.items() if value is not None}


def merged(current: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The wire document after an update; `changes` is the result of `changes_to_wire`."""
    return {name: value for name, value in {**current, **changes}.items() if value is not None}


def document_of(
    cls: type[DocumentT], config: Document | Configuration | None, options: Mapping[str, Any]
) -> DocumentT:
    """A document of a caller's arguments, with the fields to remove as None in its `extra`."""
    wire = changes_to_wire(cls, config, options)
    document = from_wire(cls, wire)
    removed = {name: None for name, value in wire.items() if value is None}
    return document.replace(extra=document.extra | removed)


def changes_to_wire(
    cls: type[Document],
    config: Document | Configuration | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """`config_to_wire` for an update: the fields that it removes are None."""
    wire = {}
    if isinstance(config, Document):
        wire = to_wire(config)
    elif config is not None:
        document = config if isinstance(config, Mapping) else _decoded(config, cls.__name__)[1]
        wire = _wire_from_mapping(cls, document)
    inner = inner_documents(cls)
    for name in options.keys() - {*cls.__struct_fields__}:
        raise TypeError(
            f"{cls.__name__} has no field {name!r}{did_you_mean(name, cls.__struct_fields__)}"
        )
    for name, words in words_of(cls).items():
        if isinstance(word := options.get(name), str):
            check_word(name, word, words)
    chosen = {
        name: _nested_from_mapping(inner[name], value) if name in inner else value
        for name, value in options.items()
    }
    removed = dict.fromkeys(name for name, value in options.items() if value is None)
    try:
        return _checked(cls, wire | removed | to_wire(cls(**chosen)))
    except (ValueError, OverflowError) as error:
        if isinstance(error, JetsparkError):
            raise
        raise ConfigError(f"Not a usable {cls.__name__}: {str(error).rstrip('.')}.") from None


def document_to_wire(document: Document) -> dict[str, Any]:
    """The wire document of a caller's document. Raises the errors of `config_to_wire`."""
    wire = _checked(type(document), to_wire(document))
    return {name: value for name, value in wire.items() if value is not None}


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def json_of(document: Configuration) -> bytes:
    """A wire document as JSON, unchanged. Raises ConfigError when it is not a JSON object."""
    if isinstance(document, Mapping):
        return encode_document(wire_value(document))
    text = _decoded(document, "document")[0]
    return text.encode() if isinstance(text, str) else text


def _decoded(
    config: str | bytes | os.PathLike[str], noun: str
) -> tuple[str | bytes, dict[str, Any]]:
    """The JSON text and its content. Raises ConfigError."""
    source = str(config) if isinstance(config, os.PathLike) else safe_repr(config)
    try:
        text = config if isinstance(config, str | bytes) else read_small(config)
        return text, decode_document(text, noun)
    except OSError as error:
        raise ConfigError(f"Cannot read {source}: {error.strerror or error}.") from None
    except (DocumentError, TypeError) as error:
        raise ConfigError(
            f"{source} is not a {noun} in JSON ({getattr(error, 'why', error)}): give fields by "
            "name, a mapping, JSON text, or the pathlib.Path of a JSON file."
        ) from None


def _wire_from_mapping(cls: type[Document], mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A caller's mapping. Raises ConfigError for a misspelt name."""
    fields, inner = field_names(cls), inner_documents(cls)
    wire = {}
    for name, value in mapping.items():
        if name == "extra" and isinstance(value, Mapping):  # like the documents
            wire.update(wire_value(value))
            continue
        check_text(f"The name of a field of {cls.__name__}", name)
        if name in inner:
            value = _nested_from_mapping(inner[name], value)
        elif name not in fields and (near := nearest_name(name, fields, cutoff=_MISSPELT)):
            raise ConfigError(
                f"{cls.__name__} has no field {name!r}; did you mean {near!r}? "
                f"If not, put it into extra: {{{name!r}: …}}."
            )
        try:
            wire[plain_text(name)] = wire_value(value, times=holds_times(cls, name))
        except ValueError as error:  # a datetime without a zone
            raise ConfigError(f"{name}: {error}.") from None
    return wire


def _nested_from_mapping(cls: type[Document], value: Any) -> Any:
    if isinstance(value, Mapping):
        wire = _wire_from_mapping(cls, value)
        return {name: value for name, value in wire.items() if value is not None}
    if isinstance(value, list | tuple):
        return [_nested_from_mapping(cls, item) for item in value]
    return value


def comparable(cls: type[Document], wire: Mapping[str, Any]) -> dict[str, Any]:
    """A wire document with its times as nanoseconds, at every level: equal moments are equal.

    A time has several texts: servers write no zeros at the end, and other programs a time zone.
    """
    return {name: _comparable(cls, name, value) for name, value in wire.items()}


def _comparable(cls: type[Document], name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_comparable(cls, name, item) for item in value]
    if isinstance(value, Mapping):
        inner = inner_documents(cls).get(name)
        return value if inner is None else comparable(inner, value)
    if isinstance(value, str) and dict(time_fields(cls)).get(name) is to_timestamp:
        with suppress(ValueError):
            return parse_isotime(value)
    return value


def nested_names(cls: type[Document]) -> set[str]:
    """The wire names of its fields, at every level."""
    return {*field_names(cls)}.union(*map(nested_names, inner_documents(cls).values()))


def _checked(cls: type[Document], wire: dict[str, Any]) -> dict[str, Any]:
    _check_words(cls, wire)
    for name, value in wire.items():
        _check_numbers(f"{cls.__name__}: {name}", value)
    try:
        from_wire(cls, wire)
    except JetStreamError as error:
        reason = str(error).partition(": ")[2].removesuffix(".")
        if at := _ERROR_PATH.fullmatch(reason):
            reason = f"{at[2]}: {at[1][0].lower()}{at[1][1:]}"
        reason = reason.replace(" | null", "").replace("`", "")
        raise ConfigError(f"Not a usable {cls.__name__}: {reason}.") from None
    return wire


def _check_numbers(path: str, value: Any) -> None:
    """Raise ConfigError for a number that no server reads."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ConfigError(f"{path} has {safe_repr(value)}, which does not fit into 64 bits.")
    parts = value.values() if isinstance(value, Mapping) else value
    for part in parts if isinstance(parts, Iterable) and not isinstance(value, str | bytes) else ():
        _check_numbers(path, part)


def _check_words(cls: type[Document], wire: Mapping[str, Any], prefix: str = "") -> None:
    """Raise ConfigError for a misspelt word; other unknown ones may be a newer server's."""
    for name, words in words_of(cls).items():
        value = wire.get(name)
        if isinstance(value, str) and value not in words and nearest_name(value, words):
            check_word(prefix + name, value, words)
    for name, inner in inner_documents(cls).items():
        value = wire.get(name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                _check_words(inner, item, f"{prefix}{name}.")

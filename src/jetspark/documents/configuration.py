"""Configurations as callers give them, checked before they are sent.

Servers before 2.12 ignore unknown fields. So a field whose name looks misspelt is refused, at every
level, as are a misspelt word and a value of another type, and each unknown word of an option. Other
unknown fields and words, and everything in `extra`, are sent, since the server may be newer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias, get_args

import msgspec

from jetspark.documents.document import (
    Document,
    field_names,
    from_wire,
    to_wire,
    wire_value,
    words_of,
)
from jetspark.errors import ConfigError, DocumentError, JetStreamError, shown
from jetspark.files import read_small
from jetspark.nearest import meant, nearest_name
from jetspark.subjects import plain_text
from jetspark.validation import check_word
from jetspark.wire.documents import decode_document, encode_document

_MISSPELT: Final = 0.85
"""How near a name must be to a known one to count as misspelt, not new."""

Configuration: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]
"""A wire document: a mapping, JSON text, or the path of a JSON file (a str is text)."""

_PLACE: Final = re.compile(r"(.+) - at `\$\.?(.+)`")
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
    wire = {}
    if isinstance(config, Document):
        wire = to_wire(config)
    elif config is not None:
        given = config if isinstance(config, Mapping) else _decoded(config, cls.__name__)[1]
        wire = _wire_given(cls, given)
    inner = _inner(cls)
    for name in options.keys() - {*cls.__struct_fields__}:
        raise TypeError(f"{cls.__name__} has no field {name!r}{meant(name, cls.__struct_fields__)}")
    for name, words in words_of(cls).items():
        if isinstance(word := options.get(name), str):
            check_word(name, word, words)
    chosen = {
        name: _nested_given(inner[name], value) if name in inner else value
        for name, value in options.items()
    }
    return _checked(cls, wire | to_wire(cls(**chosen)))


def document_to_wire(document: Document) -> dict[str, Any]:
    """The wire document of a caller's document. Raises the errors of `config_to_wire`."""
    return _checked(type(document), to_wire(document))


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
    config: str | bytes | os.PathLike[str], what: str
) -> tuple[str | bytes, dict[str, Any]]:
    """The JSON text and its content. Raises ConfigError."""
    where = str(config) if isinstance(config, os.PathLike) else shown(config)
    try:
        text = config if isinstance(config, str | bytes) else read_small(config)
        return text, decode_document(text, what)
    except OSError as error:
        raise ConfigError(f"Cannot read {where}: {error.strerror or error}.") from None
    except (DocumentError, TypeError) as error:
        raise ConfigError(
            f"{where} is not a {what} in JSON ({getattr(error, 'why', error)}): give fields by "
            "name, a mapping, JSON text, or the pathlib.Path of a JSON file."
        ) from None


def _wire_given(cls: type[Document], given: Mapping[str, Any]) -> dict[str, Any]:
    """A caller's mapping. Raises ConfigError for a misspelt name."""
    known, inner = field_names(cls), _inner(cls)
    wire = {}
    for name, value in given.items():
        if value is None:
            continue
        if name == "extra" and isinstance(value, Mapping):  # like the documents
            wire.update(wire_value(value))
            continue
        if name in inner:
            value = _nested_given(inner[name], value)
        elif name not in known and (near := nearest_name(name, known, cutoff=_MISSPELT)):
            raise ConfigError(
                f"{cls.__name__} has no field {name!r}; did you mean {near!r}? "
                f"If not, put it into extra: {{{name!r}: …}}."
            )
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
def _inner(cls: type[Document]) -> dict[str, type[Document]]:
    """The fields that hold documents, or lists of documents."""
    found = {field.encode_name: _document_in(field.type) for field in msgspec.structs.fields(cls)}
    return {name: inner for name, inner in found.items() if inner is not None}


def nested_names(cls: type[Document]) -> set[str]:
    """The wire names of its fields, at every level."""
    return {*field_names(cls)}.union(*map(nested_names, _inner(cls).values()))


def _document_in(kind: Any) -> type[Document] | None:
    if isinstance(kind, type) and issubclass(kind, Document):
        return kind
    return next(filter(None, map(_document_in, get_args(kind))), None)


def _checked(cls: type[Document], wire: dict[str, Any]) -> dict[str, Any]:
    _check_words(cls, wire)
    try:
        from_wire(cls, wire)
    except JetStreamError as error:
        reason = str(error).partition(": ")[2].removesuffix(".")
        if at := _PLACE.fullmatch(reason):
            reason = f"{at[2]}: {at[1][0].lower()}{at[1][1:]}"
        reason = reason.replace(" | null", "").replace("`", "")
        raise ConfigError(f"Not a usable {cls.__name__}: {reason}.") from None
    return wire


def _check_words(cls: type[Document], wire: Mapping[str, Any], where: str = "") -> None:
    """Raise ConfigError for a misspelt word; other unknown ones may be a newer server's."""
    for name, words in words_of(cls).items():
        value = wire.get(name)
        if isinstance(value, str) and value not in words and nearest_name(value, words):
            check_word(where + name, value, words)
    for name, inner in _inner(cls).items():
        value = wire.get(name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                _check_words(inner, one, f"{where}{name}.")

"""Schemas of Protobuf, the messages that they describe, and the columns of these.

The types are those of Spark's `from_protobuf`; docs/payloads.md has the differences.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from jetspark.errors import ConfigError, named, safe_repr
from jetspark.own_python import module_command
from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.schema import PayloadSchema, UnusableSchema, is_proto_source

_INSTALL: Final = "pip install 'jetspark[protobuf]'"
_SCHEMA_FILE: Final = "schema.proto"
COMPILE_TIMEOUT: Final = 60.0
"""Seconds for protoc, which takes a tenth of a second for an ordinary schema."""
MAX_SOURCE_CHARS: Final = 4 << 20
MAX_FIELDS: Final = 10_000
"""Fields of a message, where each use of another message counts as all of its fields, so that a few
lines cannot become any number of columns."""
MAX_DEPTH: Final = 60
"""Messages within each other: Arrow's interface for C takes 64 types."""
_FILE_NAME: Final = re.compile(r"[^\x00-\x1f\\]{1,200}")
_POSITION: Final = re.compile(r"(\d+):(\d+): *")


# -- schemas -------------------------------------------------------------------------------------


def message_of(schema: PayloadSchema) -> PayloadSchema:
    """Return a Protobuf schema as a descriptor set (the compiled form), with the full name of the
    message that payloads are.

    Without a name in the schema it is the first message of the file. Raises ConfigError.
    """
    files, own_file = _parse_descriptors(schema)
    names = list(_message_names(own_file))
    message = schema.name or (names[0] if names else "")
    full = [name for name in names if message in (name, name.rpartition(".")[2])]
    if not full:
        raise UnusableSchema(
            f"The Protobuf schema has no message {message!r}; it has {', '.join(names) or 'none'}."
        )
    text = base64.b64encode(files.SerializeToString()).decode()
    return PayloadSchema("protobuf", text, full[0], schema.version, schema.number)


def schema_of_module(name: str) -> PayloadSchema:
    """Return the schema of a compiled class that Python can import, such as
    `package.flights_pb2:Flight`. Raises ConfigError."""
    module, _, message = name.partition(":")
    try:
        descriptor = getattr(import_module(module), message).DESCRIPTOR
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{name} is no message of a compiled module: {error}.") from None
    files = library("google.protobuf.descriptor_pb2").FileDescriptorSet()
    names: set[str] = set()

    def add(file: Any) -> None:
        """Add a file, behind those that it imports, unless it is there."""
        if file.name not in names:
            names.add(file.name)
            for dependency in file.dependencies:
                add(dependency)
            file.CopyToProto(files.file.add())

    add(descriptor.file)
    text = base64.b64encode(files.SerializeToString()).decode()
    return PayloadSchema("protobuf", text, descriptor.full_name)


def _parse_descriptors(schema: PayloadSchema) -> tuple[Any, Any]:
    """Return the descriptors of a Protobuf schema: a set with all of its files, and the one file
    that the schema itself is, which is the last. Raises ConfigError."""
    text = schema.text
    files = library("google.protobuf.descriptor_pb2").FileDescriptorSet()
    try:
        files.ParseFromString(
            _compile(schema) if is_proto_source(text) else base64.b64decode(text, validate=True)
        )
        descriptors = list(files.file)
    except (binascii.Error, library("google.protobuf.message").DecodeError):
        descriptors = []
    if not descriptors:
        raise UnusableSchema(
            "The Protobuf schema is neither a FileDescriptorSet (`protoc --include_imports "
            "--descriptor_set_out=order.binpb order.proto` makes one) nor the source of a .proto "
            "file."
        )
    return files, descriptors[-1]


def check_compiler() -> None:
    """Raise ConfigError if protoc, which compiles .proto files, is not installed."""
    library("grpc_tools")


def _compile(schema: PayloadSchema) -> bytes:
    """Return the descriptor set of a .proto file and of all that it imports. Raises ConfigError."""
    check_compiler()
    compiled = _compile_or_explain(schema)
    if isinstance(compiled, str):
        raise UnusableSchema(compiled)
    return compiled


@lru_cache(maxsize=100)
def _compile_or_explain(schema: PayloadSchema) -> bytes | str:
    """Compile a .proto file, with those that it imports: return the descriptor set, or a sentence
    that says why there is none. Both are remembered, since payloads may name the schema again."""
    if len(schema.text) + sum(len(file.text) for file in schema.references) > MAX_SOURCE_CHARS:
        return f"The Protobuf schema has more than {MAX_SOURCE_CHARS >> 20} MiB."
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        sources, descriptors = root / "sources", root / "descriptors"
        sources.mkdir()
        for file in schema.references:
            path = (sources / file.name).resolve() if _FILE_NAME.fullmatch(file.name) else sources
            if sources not in path.parents:
                return f"The Protobuf schema imports {safe_repr(file.name)}, outside of its folder."
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text, "utf-8")
        (sources / _SCHEMA_FILE).write_text(schema.text, "utf-8")
        try:
            protoc = subprocess.run(  # noqa: S603
                [
                    *module_command("grpc_tools.protoc", f"-I{sources}"),
                    *("--include_imports", f"--descriptor_set_out={descriptors}", _SCHEMA_FILE),
                ],
                capture_output=True,
                check=False,
                timeout=COMPILE_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return f"protoc does not compile the Protobuf schema in {COMPILE_TIMEOUT:.0f} seconds."
        if protoc.returncode:
            lines = protoc.stderr.decode("utf-8", "replace").strip().splitlines() or [
                "protoc failed"
            ]
            last = lines[-1].replace(f"{sources}/", "").removeprefix(f"{_SCHEMA_FILE}:")
            return f"The Protobuf schema cannot be compiled: {_readable_position(last)}"
        return descriptors.read_bytes()


def _readable_position(text: str) -> str:
    """Return an error of protoc, such as `3:5: …`, with the position in words."""
    match = _POSITION.match(text)
    return text if match is None else f"line {match[1]}, column {match[2]}: {text[match.end() :]}"


def _message_names(file: Any) -> Iterator[str]:
    """Yield the full names of a file's messages, each before those in it."""

    def names(messages: Any, before: str) -> Iterator[str]:
        """Yield the names of messages and of those in them. `before`: what they begin with."""
        for message in messages:
            if not message.options.map_entry:
                yield f"{before}{message.name}"
                yield from names(message.nested_type, f"{before}{message.name}.")

    yield from names(file.message_type, f"{file.package}." if file.package else "")


def name_at(schema: PayloadSchema, path: tuple[int, ...]) -> str:
    """Return the full name of a message by its path in the schema, which payloads in Confluent's
    frame have: the index of a message in the file, then of one in that, … Raises Undecodable."""
    _, file = _parse_descriptors(schema)
    messages, parts = file.message_type, [file.package] if file.package else []
    try:
        for at in path:
            parts.append(messages[at].name)
            messages = messages[at].nested_type
    except IndexError:
        raise Undecodable(f"The schema of the payload has no message {path}.") from None
    return ".".join(parts)


def path_of(schema: PayloadSchema) -> tuple[int, ...]:
    """Return the path of the schema's message in its file: the index of a message, then of one in
    that, … It is the inverse of `name_at`."""
    _, file = _parse_descriptors(schema)
    messages, path = file.message_type, []
    for name in schema.name.removeprefix(f"{file.package}.").split("."):
        path.append([nested.name for nested in messages].index(name))
        messages = messages[path[-1]].nested_type
    return tuple(path)


def descriptor_of(
    schema: PayloadSchema, fields: Collection[str] | None = None, *, maps_as_lists: bool = False
) -> Any:
    """Return the descriptor (the compiled definition) of a message, checked for what cannot be
    columns.

    `schema`: a result of `message_of`; `fields`: the selected ones, None for all; `maps_as_lists`:
    whether maps are lists of their entries, in which a key may come twice. Raises ConfigError.
    """
    files, _ = _parse_descriptors(schema)
    pool = library("google.protobuf.descriptor_pool").DescriptorPool()
    try:
        for file in files.file:
            if maps_as_lists:
                _unmark_maps(file.message_type)
            pool.Add(_select_fields(file, schema.name, fields))
        descriptor = pool.FindMessageTypeByName(schema.name)
        _check_size(descriptor)
        _check_groups(descriptor)
        _check_well_known(pool, reduced=schema.name if fields else "")
    except UnusableSchema:
        raise
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise UnusableSchema(
            f"The Protobuf schema of {schema.name} is incomplete ({error}): make the set with "
            "protoc --include_imports."
        ) from None
    return descriptor


def _find_message(file: Any, message: str) -> Any:
    """Return the descriptor of a message by its full name; None if the file does not have it."""
    package, messages = file.package, file.message_type
    inside = message.removeprefix(f"{package}.") if package else message
    descriptor: Any = None
    for name in inside.split("."):
        descriptor = next((candidate for candidate in messages if candidate.name == name), None)
        if descriptor is None:
            return None
        messages = descriptor.nested_type
    return descriptor


def field_names(schema: PayloadSchema) -> list[str]:
    """Return the names of all fields of a schema's message. `schema`: a result of `message_of`."""
    files = (_find_message(file, schema.name) for file in _parse_descriptors(schema)[0].file)
    return [field.name for message in filter(None, files) for field in message.field]


def _select_fields(file: Any, message: str, fields: Collection[str] | None) -> Any:
    """Return the descriptor of a file in which a message has only these fields, so that a parser
    skips the others as unknown. `fields`: None for all."""
    descriptor = _find_message(file, message)
    if fields is None or descriptor is None:
        return file
    selected = [field for field in descriptor.field if field.name in fields]
    # A oneof without fields is left out, so the others get other indexes.
    oneofs = sorted({field.oneof_index for field in selected if field.HasField("oneof_index")})
    for field in selected:
        if field.HasField("oneof_index"):
            field.oneof_index = oneofs.index(field.oneof_index)
    declared = [descriptor.oneof_decl[at] for at in oneofs]
    for list_, rest in ((descriptor.field, selected), (descriptor.oneof_decl, declared)):
        copies = [type(field).FromString(field.SerializeToString()) for field in rest]
        del list_[:]
        list_.extend(copies)
    return file


def _check_groups(message: Any) -> None:
    """Raise ConfigError for a message with a group (a form of field that Protobuf has given up) at
    any depth: what is in it would be left out without a word."""
    bad = [field.name for field in message.fields if _has_group(field, set())]
    if bad:
        good = [field.name for field in message.fields if field.name not in bad]
        raise UnusableSchema(
            f"{', '.join(bad)} of {message.full_name} is a group, or has one in it, which is not "
            f"decoded here: name only other fields in {named('fields')} "
            f"({', '.join(good) or 'there are none'})."
        )


def _has_group(field: Any, seen: set[str]) -> bool:
    """Return whether a field is a group, or has one in it. `seen`: the messages looked at before,
    which are not looked at again."""
    if field.type == field.TYPE_GROUP:
        return True
    inner = field.message_type
    if inner is None or inner.full_name in seen:
        return False
    seen.add(inner.full_name)
    return any(_has_group(inner_field, seen) for inner_field in inner.fields)


def _unmark_maps(messages: Iterable[Any]) -> None:
    """Make maps lists of their entries, at any depth."""
    for message in messages:
        message.options.ClearField("map_entry")
        _unmark_maps(message.nested_type)


def _check_well_known(pool: Any, reduced: str) -> None:
    """Raise ConfigError for a message of Protobuf's own, such as Timestamp, that the schema defines
    without its fields. `reduced`: the name of the message that has only the selected ones, which is
    not checked."""
    for name in _WELL_KNOWN_FIELDS.keys() - {reduced}:
        fields = _WELL_KNOWN_FIELDS[name]
        try:
            message = pool.FindMessageTypeByName(name)
        except KeyError:
            continue
        declared = {
            (field.number, field.name, field.type, field.is_repeated) for field in message.fields
        }
        # Each has a number, a name and a type, and is not repeated.
        own = {(number, *field, False) for number, field in enumerate(fields.items(), 1)}
        if not own <= declared:
            raise UnusableSchema(
                f"The Protobuf schema defines {name} without the fields that Protobuf's own has "
                f"({', '.join(fields)}): import that one, or name yours otherwise."
            )


def _check_size(message: Any) -> None:
    """Raise ConfigError for a message that would become more than `MAX_FIELDS` columns, or nested
    more than `MAX_DEPTH` deep. A message within itself is one column."""
    left, problem = MAX_FIELDS, f"becomes more than {MAX_FIELDS:,} fields"
    todo = [(message, frozenset({message.full_name}))]  # with the messages that it is in
    while todo:
        inner_message, ancestors = todo.pop()
        for field in inner_message.fields:
            left -= 1
            inner = field.message_type
            if inner is not None and inner.full_name not in ancestors:
                todo.append((inner, ancestors | {inner.full_name}))
        if len(ancestors) > MAX_DEPTH:
            left, problem = -1, "is nested too deeply"
        if left < 0:
            raise UnusableSchema(
                f"The Protobuf schema of {message.full_name} {problem}: name only other fields in "
                f"{named('fields')}."
            )


def library(name: str) -> Any:
    """Import a module of Protobuf's library. Raises ConfigError if it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"Protobuf payloads need {error.name}: {_INSTALL}.") from None


# -- columns -------------------------------------------------------------------------------------


_US: Final = pa.timestamp("us", tz="UTC")
_UNSIGNED: Final = pa.decimal128(20, 0)


class ProtobufKind(IntEnum):
    """The kind of a field; the numbers are those of the C kernel."""

    DOUBLE = 0
    FLOAT = 1
    INT64 = 2
    UINT64 = 3
    INT32 = 4
    UINT32 = 5
    BOOL = 6
    SINT32 = 7
    SINT64 = 8
    FIXED64 = 9
    FIXED32 = 10
    SFIXED64 = 11
    SFIXED32 = 12
    STRING = 13
    BYTES = 14
    """Bytes, and a message that contains itself, as it came."""
    ENUM = 15
    """The symbols are its fields."""
    MESSAGE = 16
    MAP = 17
    WRAPPER = 18
    """A message of one field, whose value is the column."""
    TIMESTAMP = 19
    DURATION = 20
    DATE = 21
    TIME_OF_DAY = 22
    LIST = 23
    """Only written: the values of a field that is repeated."""


_SCALARS: Final = {
    1: (ProtobufKind.DOUBLE, pa.float64()),
    2: (ProtobufKind.FLOAT, pa.float32()),
    3: (ProtobufKind.INT64, pa.int64()),
    4: (ProtobufKind.UINT64, _UNSIGNED),
    5: (ProtobufKind.INT32, pa.int32()),
    6: (ProtobufKind.FIXED64, _UNSIGNED),
    7: (ProtobufKind.FIXED32, pa.int64()),
    8: (ProtobufKind.BOOL, pa.bool_()),
    9: (ProtobufKind.STRING, pa.string()),
    12: (ProtobufKind.BYTES, pa.binary()),
    13: (ProtobufKind.UINT32, pa.int64()),
    14: (ProtobufKind.ENUM, pa.string()),
    15: (ProtobufKind.SFIXED32, pa.int32()),
    16: (ProtobufKind.SFIXED64, pa.int64()),
    17: (ProtobufKind.SINT32, pa.int32()),
    18: (ProtobufKind.SINT64, pa.int64()),
}
"""Kinds and columns by the numbers of Protobuf's `FieldDescriptorProto.Type`."""
_WELL_KNOWN: Final = {
    "google.protobuf.Timestamp": (ProtobufKind.TIMESTAMP, _US),
    "google.protobuf.Duration": (ProtobufKind.DURATION, pa.int64()),
    "google.type.Date": (ProtobufKind.DATE, pa.date32()),
    "google.type.TimeOfDay": (ProtobufKind.TIME_OF_DAY, pa.int64()),
}
"""Messages that are a single value."""
_WRAPPED: Final = {
    "Double": 1, "Float": 2, "Int64": 3, "UInt64": 4, "Int32": 5, "UInt32": 13, "Bool": 8,
    "String": 9, "Bytes": 12,
}  # fmt: skip
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value": {"value": kind} for name, kind in _WRAPPED.items()
}
_WELL_KNOWN_FIELDS: Final = {
    "google.protobuf.Timestamp": {"seconds": 3, "nanos": 5},
    "google.protobuf.Duration": {"seconds": 3, "nanos": 5},
    "google.type.Date": dict.fromkeys(("year", "month", "day"), 5),
    "google.type.TimeOfDay": dict.fromkeys(("hours", "minutes", "seconds", "nanos"), 5),
    **_WRAPPERS,
}
"""The fields of Protobuf's own messages, by their numbers from 1 on, and their types."""


def is_map(field: Any) -> bool:
    """Return whether a field is a map, which in Protobuf is a list of messages marked as
    entries."""
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)


def kind_of(field: Any, ancestors: frozenset[str]) -> ProtobufKind:
    """Return how the values of a field are encoded and what they become. `ancestors`: the names of
    the messages that the field is in; such a message in its own fields stays as bytes."""
    message = field.message_type
    if message is None:
        return _SCALARS[field.type][0]
    if is_map(field):
        return ProtobufKind.MAP
    if message.full_name in _WELL_KNOWN:
        return _WELL_KNOWN[message.full_name][0]
    if message.full_name in _WRAPPERS:
        return ProtobufKind.WRAPPER
    return ProtobufKind.BYTES if message.full_name in ancestors else ProtobufKind.MESSAGE


def fields_of(message: Any) -> pa.Schema:
    """Return the columns of a message's fields, in the order of its declaration."""
    return pa.schema(_message_columns(message, frozenset({message.full_name})))


def _message_columns(message: Any, ancestors: frozenset[str]) -> list[pa.Field]:
    """Return the columns of a message's fields. `ancestors`: the names of the messages that it is
    in, and its own."""
    return [pa.field(field.name, _field_type(field, ancestors)) for field in message.fields]


def _field_type(field: Any, ancestors: frozenset[str]) -> pa.DataType:
    """Return the column type of a field: a map, a list if it is repeated, or else that of its
    value. `ancestors`: the names of the messages that it is in."""
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_value_type(key, ancestors), _value_type(value, ancestors))
    kind = _value_type(field, ancestors)
    return pa.list_(pa.field("element", kind)) if field.is_repeated else kind


def _value_type(field: Any, ancestors: frozenset[str]) -> pa.DataType:
    """Return the column type of a field's values, which are the items of a repeated one.
    `ancestors`: the names of the messages that the field is in; such a message again is BINARY."""
    message = field.message_type
    match kind_of(field, ancestors):
        case ProtobufKind.WRAPPER:
            return _value_type(message.fields_by_name["value"], ancestors)
        case ProtobufKind.MESSAGE:
            return pa.struct(_message_columns(message, ancestors | {message.full_name}))
        case ProtobufKind.BYTES if message is not None:
            return pa.binary()
    return (_SCALARS[field.type] if message is None else _WELL_KNOWN[message.full_name])[1]

"""Protobuf: whether a reader's messages have all that was written into the writer's. Pure.

Messages are compared by their names within the package, fields by their numbers. A field that only
one of both has is neither lost nor wrong: the reader does not ask for it, or has its default.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from jetspark.registry.effort import Effort

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

    Type: TypeAlias = DescriptorProto | EnumDescriptorProto

_REQUIRED, _REPEATED = 2, 3
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_TYPE_NAMES: Final = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
_COMPATIBLE_TYPES: Final = {
    "int32": {"bool", "enum"},
    "int64": {"int32", "uint32", "bool", "enum"},
    "uint32": {"bool"},
    "uint64": {"uint32", "bool"},
    "sint64": {"sint32"},
    "bytes": {"string"},
}
"""For a type of a reader the types of a writer that it can hold, and that look the same on the
wire."""


def find_losses(reader: list[FileDescriptorProto], writer: list[FileDescriptorProto]) -> list[str]:
    """Return what a reader would lose or misread. The last of the files is the schema itself.

    Raises TooComplex.
    """
    comparison = _Comparison(reader, writer)
    reasons: list[str] = []
    readers = {message.name: message for message in reader[-1].message_type}
    for message in writer[-1].message_type:
        if message.name in readers:
            reasons += comparison.find_message_losses(readers[message.name], message, message.name)
        else:
            reasons.append(f"{message.name}: there is no message of this name any more")
    return reasons


def descriptor_text(text: str) -> str:
    """Return a FileDescriptorSet, given in base64, as readable text. Raises ValueError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        return str(FileDescriptorSet.FromString(b64decode(text, validate=True)))
    except DecodeError as error:
        raise ValueError(str(error)) from None


class _Comparison:
    """Compares the types in the files of a reader's and a writer's schema.

    Its methods yield a sentence for each loss. `path`: of the message or the field.
    """

    def __init__(
        self, reader: list[FileDescriptorProto], writer: list[FileDescriptorProto]
    ) -> None:
        self._read_types, self._written_types = _types_by_name(reader), _types_by_name(writer)
        self._closed_enums = _types_by_name(
            file for file in reader if file.syntax in ("", "proto2")
        ).keys()
        self._seen: set[tuple[int, int]] = set()
        self._effort = Effort()

    def find_message_losses(
        self, reader: DescriptorProto, writer: DescriptorProto, path: str
    ) -> Iterator[str]:
        """Compare two messages field by field, by their numbers."""
        if (id(reader), id(writer)) in self._seen:
            return
        self._seen.add((id(reader), id(writer)))
        self._effort.spend(1 + len(reader.field) + len(writer.field))
        fields = {field.number: field for field in reader.field}
        written = {field.number: field for field in writer.field}
        for number, field in written.items():
            if number in fields:
                yield from self._find_field_losses(
                    fields[number], field, f"{path}.{fields[number].name}"
                )
        for number, field in fields.items():
            before = written.get(number)
            if field.label == _REQUIRED and (before is None or before.label != _REQUIRED):
                yield f"{path}.{field.name}: is required, and may be missing"
        for at, oneof in enumerate(reader.oneof_decl):
            members = [number for number, field in fields.items() if _oneof_index(field) == at]
            alone = {
                _oneof_index(written[member], -member) for member in members if member in written
            }
            if len(alone) > 1:
                yield f"{path}.{oneof.name}: fields that could be set together are alternatives"

    def _find_field_losses(
        self, reader: FieldDescriptorProto, writer: FieldDescriptorProto, path: str
    ) -> Iterator[str]:
        """Compare two fields of the same number."""
        read_as, written = _TYPE_NAMES[reader.type], _TYPE_NAMES[writer.type]
        if read_as != written and written not in _COMPATIBLE_TYPES.get(read_as, ()):
            yield f"{path}: {written} is read as {read_as}"
            return
        if writer.label == _REPEATED and reader.label != _REPEATED:
            yield f"{path}: only the last of several values is read"
        if reader.type not in (_GROUP, _MESSAGE, _ENUM):
            return
        read_type = self._read_types.get(reader.type_name)
        written_type = self._written_types.get(writer.type_name)
        if read_type is None or written_type is None:
            if reader.type_name != writer.type_name:
                yield f"{path}: {writer.type_name[1:]} is read as {reader.type_name[1:]}"
        elif reader.type == _ENUM:
            values = {value.number for value in read_type.value}
            dropped = {value.number for value in written_type.value} - values
            if dropped and reader.type_name in self._closed_enums:
                yield f"{path}: there are no values {sorted(dropped)} any more"
        else:
            if read_type.options.map_entry and not written_type.options.map_entry:
                yield f"{path}: a map has only one of the entries of a key"
            yield from self.find_message_losses(read_type, written_type, path)


def _oneof_index(field: FieldDescriptorProto, otherwise: int = -1) -> int:
    """Return the index of the oneof of a field, or `otherwise`; a oneof that stands for `optional`
    does not count."""
    return (
        field.oneof_index
        if field.HasField("oneof_index") and not field.proto3_optional
        else otherwise
    )


def _types_by_name(files: Iterable[FileDescriptorProto]) -> dict[str, Type]:
    """Return messages and enums by their full names, with a dot before."""
    by_name: dict[str, Type] = {}

    def add(
        types: Iterable[DescriptorProto], enums: Iterable[EnumDescriptorProto], prefix: str
    ) -> None:
        for kind in (*types, *enums):
            by_name[f"{prefix}.{kind.name}"] = kind
        for message in types:
            add(message.nested_type, message.enum_type, f"{prefix}.{message.name}")

    for file in files:
        add(file.message_type, file.enum_type, f".{file.package}" if file.package else "")
    return by_name

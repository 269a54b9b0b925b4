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
_NAMES: Final = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
_READS: Final = {
    "int32": {"bool", "enum"},
    "int64": {"int32", "uint32", "bool", "enum"},
    "uint32": {"bool"},
    "uint64": {"uint32", "bool"},
    "sint64": {"sint32"},
    "bytes": {"string"},
}
"""The types of a writer's that a reader's type holds, and that look the same on the wire."""


def lost(reader: list[FileDescriptorProto], writer: list[FileDescriptorProto]) -> list[str]:
    """What a reader would lose or misread. The schema itself is the last of the files. Raises
    TooComplex."""
    rules = _Rules(reader, writer)
    found: list[str] = []
    mine = {message.name: message for message in reader[-1].message_type}
    for message in writer[-1].message_type:
        if message.name in mine:
            found += rules.messages(mine[message.name], message, message.name)
        else:
            found.append(f"{message.name}: there is no message of this name any more")
    return found


def descriptor_text(text: str) -> str:
    """A FileDescriptorSet in base64, for people. Raises ValueError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        return str(FileDescriptorSet.FromString(b64decode(text, validate=True)))
    except DecodeError as error:
        raise ValueError(str(error)) from None


class _Rules:
    def __init__(
        self, reader: list[FileDescriptorProto], writer: list[FileDescriptorProto]
    ) -> None:
        self._mine, self._others = _named(reader), _named(writer)
        self._closed = _named(file for file in reader if file.syntax in ("", "proto2")).keys()
        self._seen: set[tuple[int, int]] = set()
        self._effort = Effort()

    def messages(self, mine: DescriptorProto, other: DescriptorProto, path: str) -> Iterator[str]:
        if (id(mine), id(other)) in self._seen:
            return
        self._seen.add((id(mine), id(other)))
        self._effort.spend(1 + len(mine.field) + len(other.field))
        fields = {field.number: field for field in mine.field}
        written = {field.number: field for field in other.field}
        for number, field in written.items():
            if number in fields:
                yield from self._fields(fields[number], field, f"{path}.{fields[number].name}")
        for number, field in fields.items():
            before = written.get(number)
            if field.label == _REQUIRED and (before is None or before.label != _REQUIRED):
                yield f"{path}.{field.name}: is required, and may be missing"
        for at, oneof in enumerate(mine.oneof_decl):
            members = [number for number, field in fields.items() if _of_oneof(field) == at]
            alone = {_of_oneof(written[one], -one) for one in members if one in written}
            if len(alone) > 1:
                yield f"{path}.{oneof.name}: fields that could be set together are alternatives"

    def _fields(
        self, mine: FieldDescriptorProto, other: FieldDescriptorProto, path: str
    ) -> Iterator[str]:
        wanted, written = _NAMES[mine.type], _NAMES[other.type]
        if wanted != written and written not in _READS.get(wanted, ()):
            yield f"{path}: {written} is read as {wanted}"
            return
        if other.label == _REPEATED and mine.label != _REPEATED:
            yield f"{path}: only the last of several values is read"
        if mine.type not in (_GROUP, _MESSAGE, _ENUM):
            return
        here, there = self._mine.get(mine.type_name), self._others.get(other.type_name)
        if here is None or there is None:
            if mine.type_name != other.type_name:
                yield f"{path}: {other.type_name[1:]} is read as {mine.type_name[1:]}"
        elif mine.type == _ENUM:
            gone = {one.number for one in there.value} - {one.number for one in here.value}
            if gone and mine.type_name in self._closed:
                yield f"{path}: there are no values {sorted(gone)} any more"
        else:
            if here.options.map_entry and not there.options.map_entry:
                yield f"{path}: a map has only one of the entries of a key"
            yield from self.messages(here, there, path)


def _of_oneof(field: FieldDescriptorProto, otherwise: int = -1) -> int:
    """The place of its oneof; not of the one that stands for `optional`."""
    return (
        field.oneof_index
        if field.HasField("oneof_index") and not field.proto3_optional
        else otherwise
    )


def _named(files: Iterable[FileDescriptorProto]) -> dict[str, Type]:
    """Messages and enums by their full names, with a dot before."""
    found: dict[str, Type] = {}

    def add(
        types: Iterable[DescriptorProto], enums: Iterable[EnumDescriptorProto], within: str
    ) -> None:
        for one in (*types, *enums):
            found[f"{within}.{one.name}"] = one
        for message in types:
            add(message.nested_type, message.enum_type, f"{within}.{message.name}")

    for file in files:
        add(file.message_type, file.enum_type, f".{file.package}" if file.package else "")
    return found

"""Rows of any schema as messages of Protobuf: what the kernel writes is read as the same rows.

Each hundred rows have a schema drawn from the seed. The kernel's messages are, byte for byte, those
of Protobuf's library, except for the order of a map. The library and our decoder read the rows from
them. The kernel also gets buffers that are too short, and rows that are not there. With
`--sanitize` it is first built with sanitizers; it decodes damaged forms of each message, and
nothing is compared.
"""

from __future__ import annotations

import base64
import random
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from google.protobuf import (
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from tests.fuzz.protobuf_messages import comparable
from tests.fuzz.sanitized import VARIANTS, Decoder, c_kernel
from tests.support import campaign
from tests.support.damage import BINARY

if TYPE_CHECKING:
    from jetspark.wire.kernel import ColumnTree

_ROWS = 100
_Field = descriptor_pb2.FieldDescriptorProto
_FILES = [one.DESCRIPTOR for one in (duration_pb2, empty_pb2, timestamp_pb2, wrappers_pb2)]
_FILES.append(struct_pb2.DESCRIPTOR)
_KNOWN = [
    *("google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Empty"),
    *("google.protobuf.Struct", "google.type.Date", "google.type.TimeOfDay"),
    *(f"google.protobuf.{one}Value" for one in ("Double", "UInt64", "Int32", "Bool", "String")),
]
_NUMBERS = [*range(1, 25), 127, 128, 2047, 2048, 18_999, 20_000, 2**29 - 1]
_SCALARS = [one for one in range(1, 19) if one not in (10, 11)]
_KEYS = [one for one in _SCALARS if one not in (1, 2, 12, 14)]
_MICROS = 1_000_000


@dataclass
class Figures(campaign.Figures):
    """What was written."""

    bytes: int = 0


# -- schemas -------------------------------------------------------------------------------------


class Schemas:
    """A file with messages of each other."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.file = descriptor_pb2.FileDescriptorProto(
            name="rows.proto", package="p", syntax=rng.choice(["proto2", "proto3"])
        )
        self.file.dependency.extend([*(one.name for one in _FILES), "type.proto"])
        symbols = self.file.enum_type.add(name="E").value
        self.file.enum_type[0].options.allow_alias = True
        for name, number in [("A", 0), ("B", -1), ("B2", -1), ("C", 2**31 - 1)]:
            symbols.add(name=name, number=number)
        self.root = self.message(0)

    def message(self, depth: int) -> str:
        rng, is_proto3 = self.rng, self.file.syntax == "proto3"
        found = self.file.message_type.add(name=f"M{len(self.file.message_type)}")
        found.oneof_decl.add(name="either")
        optional = []
        for number in rng.sample(_NUMBERS, rng.randint(depth == 0, 8)):
            field = found.field.add(name=f"f{number}", number=number)
            case = rng.randrange(8 if depth < 3 else 5)
            if case == 7:
                self.map(found, field, depth)
                continue
            self.type(field, found.name, depth if case > 4 else 9)
            field.label = _Field.LABEL_REPEATED if case in (0, 5) else _Field.LABEL_OPTIONAL
            if field.label == _Field.LABEL_REPEATED:
                if field.type not in (9, 11, 12):
                    field.options.packed = rng.random() < 0.5
            elif case == 1:
                field.oneof_index = 0
            elif case == 2 and is_proto3:
                optional.append(field)
            elif case == 2 and field.type_name != f".p.{found.name}":
                field.label = _Field.LABEL_REQUIRED
        if not any(one.HasField("oneof_index") for one in found.field):
            del found.oneof_decl[:]
        for field in optional:
            field.proto3_optional = True
            field.oneof_index = len(found.oneof_decl)
            found.oneof_decl.add(name=f"_{field.name}")
        name: str = found.name
        return name

    def type(self, field: Any, inside: str, depth: int) -> None:
        rng = self.rng
        if depth < 9:
            field.type, field.type_name = 11, f".p.{self.message(depth + 1)}"
            if rng.random() < 0.1 and self.file.syntax == "proto3":
                field.type_name = f".p.{inside}"
        elif rng.random() < 0.2:
            field.type, field.type_name = 11, f".{rng.choice(_KNOWN)}"
        else:
            field.type = rng.choice(_SCALARS)
            if field.type == 14:
                field.type_name = ".p.E"

    def map(self, message: Any, field: Any, depth: int) -> None:
        entry = message.nested_type.add(name=f"{field.name.upper()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=self.rng.choice(_KEYS))
        value = entry.field.add(name="value", number=2, label=1)
        self.type(value, message.name, self.rng.choice([depth, 9]))
        field.type, field.label = 11, _Field.LABEL_REPEATED
        field.type_name = f".p.{message.name}.{entry.name}"

    def payload_schema(self) -> Any:
        from jetspark.payloads.schema import PayloadSchema

        files = descriptor_pb2.FileDescriptorSet()
        for one in _FILES:
            one.CopyToProto(files.file.add())
        own = files.file.add(name="type.proto", package="google.type", syntax="proto3")
        for name, parts in (
            ("Date", ("year", "month", "day")),
            ("TimeOfDay", ("hours", "minutes", "seconds", "nanos")),
        ):
            message = own.message_type.add(name=name)
            for at, part in enumerate(parts, 1):
                message.field.add(name=part, number=at, label=1, type=5)
        files.file.append(self.file)
        text = base64.b64encode(files.SerializeToString()).decode()
        return PayloadSchema("protobuf", text, f"p.{self.root}")


# -- rows ----------------------------------------------------------------------------------------


class Rows:
    """Values of a message's columns, and what is read of them."""

    def __init__(self, rng: random.Random, max_entries: int) -> None:
        self.rng, self.max_entries = rng, max_entries

    def row(self, message: Any, around: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """A row, and the one that is read."""
        rng = self.rng
        written: dict[str, Any] = {}
        read: dict[str, Any] = {}
        members = {one.name: rng.choice(one.fields).name for one in message.oneofs}
        for field in message.fields:
            group = field.containing_oneof
            is_null = rng.random() < 0.3 and not field.is_required
            if is_null or (group is not None and members[group.name] != field.name):
                written[field.name] = None
                read[field.name] = self.absent(field, around)
            else:
                written[field.name], read[field.name] = self.field(field, around)
        return written, read

    def absent(self, field: Any, around: frozenset[str]) -> Any:
        from jetspark.payloads.protobuf_schema import ProtobufKind, kind_of

        if field.is_repeated:
            return []
        if field.has_presence:
            return None
        if field.enum_type is not None:
            return field.enum_type.values_by_number[0].name
        unsigned = kind_of(field, around) in (ProtobufKind.UINT64, ProtobufKind.FIXED64)
        return Decimal(0) if unsigned else field.default_value

    def field(self, field: Any, around: frozenset[str]) -> tuple[Any, Any]:
        from jetspark.payloads.protobuf_schema import is_map

        if not field.is_repeated:
            return self.value(field, around)
        count = self.rng.choice([0, 1, 2, 3, 40 if len(around) < 3 else 3])
        if not is_map(field):
            items = [self.value(field, around) for _ in range(count)]
            return [one for one, _ in items], [other for _, other in items]
        key, value = (field.message_type.fields_by_name[one] for one in ("key", "value"))
        keys = list({self.value(key, around)[0] for _ in range(min(count, self.max_entries))})
        items = [self.value(value, around) for _ in keys]
        return (
            [(one, value) for one, (value, _) in zip(keys, items, strict=True)],
            [(one, value) for one, (_, value) in zip(keys, items, strict=True)],
        )

    def value(self, field: Any, around: frozenset[str]) -> tuple[Any, Any]:
        from jetspark.payloads.protobuf_schema import ProtobufKind, kind_of

        rng, message = self.rng, field.message_type
        kind = kind_of(field, around)
        if kind is ProtobufKind.MESSAGE:
            return self.row(message, around | {message.full_name})
        if kind is ProtobufKind.WRAPPER:
            return self.value(message.fields_by_name["value"], around)
        if kind is ProtobufKind.ENUM:
            name = rng.choice(list(field.enum_type.values_by_name))
            number = field.enum_type.values_by_name[name].number
            return name, field.enum_type.values_by_number[number].name
        value = self.scalar(kind, is_message=message is not None)
        return value, value

    def scalar(self, kind: Any, *, is_message: bool) -> Any:
        from jetspark.payloads.protobuf_schema import ProtobufKind

        rng = self.rng
        near = rng.choice([0, 1, -1, 127, 128, 300, 2**20, 2**31 - 1, -(2**31)])
        far = rng.choice([near, 2**63 - 1, -(2**63)])
        match kind:
            case ProtobufKind.DOUBLE | ProtobufKind.FLOAT:
                return rng.choice([0.0, -0.0, 1.5, float("inf"), float("nan")])
            case ProtobufKind.BOOL:
                return rng.random() < 0.5
            case ProtobufKind.STRING:
                return rng.choice("aé😀") * rng.choice([0, 1, 2, 130])
            case ProtobufKind.BYTES if is_message:  # it contains itself
                return rng.choice([b"", b"\xb8\x7d\x05"])
            case ProtobufKind.BYTES:
                return rng.randbytes(rng.choice([0, 1, 2, 127, 128, 300]))
            case ProtobufKind.UINT64 | ProtobufKind.FIXED64:
                return Decimal(far % 2**64)
            case ProtobufKind.UINT32 | ProtobufKind.FIXED32:
                return near % 2**32
            case ProtobufKind.INT64 | ProtobufKind.SINT64 | ProtobufKind.SFIXED64:
                return far
            case ProtobufKind.TIMESTAMP:
                first, last = -62_135_596_800 * _MICROS, 253_402_300_800 * _MICROS - 1
                return rng.choice([first, last, 0, -1, rng.randrange(first, last)])
            case ProtobufKind.DURATION:
                most = 315_576_000_000 * _MICROS
                return rng.choice([-most, most, 0, -1, rng.randrange(-most, most)])
            case ProtobufKind.DATE:
                return rng.choice([-719_162, 2_932_896, 0, rng.randrange(-(10**5), 10**5)])
            case ProtobufKind.TIME_OF_DAY:
                return rng.choice([0, 1, rng.randrange(25 * 3600 * _MICROS)])
        return near


# -- the campaign --------------------------------------------------------------------------------


def spoiled(rng: random.Random, part: ColumnTree) -> ColumnTree:
    """A part, or one below it, of which a buffer is too short, or that begins too late."""
    kind, flag, number, begin, *buffers, parts = part
    if rng.random() < 0.2:
        at = rng.randrange(3)
        if buffers[at] is not None:
            buffers[at] = memoryview(buffers[at])[: rng.randrange(len(buffers[at]) + 1)]
        begin += rng.choice([0, 0, 1, 10_000, 2**62])
    parts = tuple(spoiled(rng, one) for one in parts)
    return kind, flag, number, begin, buffers[0], buffers[1], buffers[2], parts


def in_any_order(rows: Any) -> str:
    """Rows, in which the entries of a map are sorted."""
    return repr([comparable(row, is_damaged=False) for row in rows.to_pylist()])


def run(runs: int = 100_000, seed: int = 0, sanitize: bool = False) -> Figures:
    """A run is a row; they come by hundreds."""
    kernel = c_kernel(sanitize=sanitize)
    in_kernel = Decoder(kernel, "protobuf_columns") if sanitize else None
    import pyarrow as pa

    from jetspark.payloads import protobuf_plain
    from jetspark.payloads.protobuf import ProtobufDecoder
    from jetspark.payloads.protobuf_encoder import ProtobufEncoder, build_message_tree

    figures = Figures()
    for turn in range(-(-runs // (_ROWS * (VARIANTS if sanitize else 1)))):
        rng = random.Random(f"{seed} {turn}")
        schema = Schemas(rng).payload_schema()
        encoder, decoder = ProtobufEncoder(schema), ProtobufDecoder(schema)
        message = encoder.descriptor
        values = Rows(rng, max_entries := rng.choice([1, 40]))
        rows = [values.row(message, frozenset({message.full_name})) for _ in range(_ROWS)]
        type_ = pa.struct(list(encoder.fields))
        batch = pa.RecordBatch.from_struct_array(pa.array([one for one, _ in rows], type_))
        batch = batch.slice(begin := rng.choice([0, 3, 8]))
        payloads = encoder.encode_rows(batch)
        figures.bytes += sum(map(len, payloads))
        checked = encoder.convert_rows(batch)
        for _ in range(10):
            with suppress(ValueError):
                kernel.protobuf_messages(
                    len(batch), spoiled(rng, build_message_tree(message, checked))
                )
        if in_kernel is not None:
            decoder.decode(pa.array(payloads, pa.binary()))
            figures.count_run(in_kernel.decode_damaged(rng, payloads, BINARY))
            continue
        figures.count_run(_ROWS)
        if max_entries == 1 and payloads != protobuf_plain.encode(message, checked):
            figures.wrong.append(f"{seed} {turn}: the library writes other bytes")
        expected = in_any_order(pa.array([other for _, other in rows[begin:]], type_))
        for decode in (decoder.decode, decoder.decode_plainly):
            columns, reasons = decode(pa.array(payloads, pa.binary()))
            read = in_any_order(pa.StructArray.from_arrays(columns, fields=list(type_)))
            if reasons.null_count < len(batch) or read != expected:
                figures.wrong.append(f"{seed} {turn}: {decode.__name__} reads other rows")
    return figures

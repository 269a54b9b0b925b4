"""Protobuf: what these rules allow, Google's library reads as it was written."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jetspark.registry.protobuf_rules import descriptor_text, find_losses

TYPES = {
    name.removeprefix("TYPE_").lower(): number for name, number in FieldDescriptorProto.Type.items()
}


def message(name: str, *fields: str, **more: Any) -> DescriptorProto:
    """`fields`: such as "repeated int32 a 1", "E a 2", "oneof int32 b 3"."""
    found = DescriptorProto(name=name, **more)
    for text in fields:
        *label, kind, called, number = text.split()
        field = found.field.add(name=called, number=int(number))
        field.label = field.Label.Value(f"LABEL_{(label or ['optional'])[0].upper()}"
                                        if label != ["oneof"] else "LABEL_OPTIONAL")  # fmt: skip
        if kind in TYPES:
            field.type = TYPES[kind]
        else:
            field.type = TYPES["enum" if kind.startswith("E") else "message"]
            field.type_name = f".shop.{kind}"
        if label == ["oneof"]:
            field.oneof_index = 0
            if not found.oneof_decl:
                found.oneof_decl.add(name="choice")
    return found


def file(*messages: DescriptorProto, syntax: str = "proto3", **enums: list[int]) -> Any:
    found = FileDescriptorProto(
        name="shop.proto", package="shop", syntax=syntax, message_type=messages
    )
    for name, numbers in enums.items():
        enum = found.enum_type.add(name=name)
        for number in numbers:
            enum.value.add(name=f"{name}_{number}", number=number)
    return [found]


def order(*fields: str, **more: Any) -> Any:
    return file(message("Order", *fields), **more)


ITEM = message("Item", "int32 n 1")


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (order("int32 a 1", "string b 2"), order("int32 a 1")),
        (order("int32 a 1"), order("int32 a 1", "string b 2")),
        (order("int64 other_name 1"), order("int32 a 1")),
        (order("repeated bytes a 1"), order("string a 1")),
        (order("oneof int32 a 1", "oneof int32 b 2"), order("int32 a 1")),
        (order("E e 1", E=[0, 1]), order("E e 1", E=[0, 1, 2])),
        (order("int32 e 1"), order("E e 1", E=[0, 1])),
        (file(message("Order", "Item i 1"), message("Item", "int64 n 1")),
         file(message("Order", "Item i 1"), ITEM)),
        (file(message("Order", "Order o 1")), file(message("Order", "Order o 1"))),
        (order("required int32 a 1", syntax="proto2"),
         order("required int32 a 1", "int32 b 2", syntax="proto2")),
        (file(message("Order"), message("New")), file(message("Order"))),
    ],
)  # fmt: skip
def test_a_reader_that_loses_nothing_is_compatible(reader: Any, writer: Any) -> None:
    assert find_losses(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (order("int32 a 1"), order("int64 a 1"), "Order.a: int64 is read as int32"),
        (order("string a 1"), order("bytes a 1"), "Order.a: bytes is read as string"),
        (order("sint32 a 1"), order("int32 a 1"), "Order.a: int32 is read as sint32"),
        (order("int32 a 1"), order("repeated int32 a 1"), "Order.a: only the last"),
        (order("required int32 a 1", syntax="proto2"), order(syntax="proto2"),
         "Order.a: is required"),
        (order("oneof int32 a 1", "oneof int32 b 2"), order("int32 a 1", "int32 b 2"),
         "Order.choice: fields that could"),
        (order("E e 1", syntax="proto2", E=[0, 1]), order("E e 1", syntax="proto2", E=[0, 1, 2]),
         "Order.e: there are no values [2]"),
        (file(message("Order", "Item i 1"), ITEM),
         file(message("Order", "Item i 1"), message("Item", "int64 n 1")),
         "Order.i.n: int64 is read as int32"),
        (file(message("New")), order(), "Order: there is no message"),
        (order("Elsewhere e 1"), order("Else e 1"), "Order.e: shop.Else is read as shop.Elsewhere"),
        (file(message("Order", "repeated Item i 1"),
              message("Item", "int32 key 1", "int32 value 2", options={"map_entry": True})),
         file(message("Order", "repeated Item i 1"), message("Item", "int32 key 1")),
         "Order.i: a map has only"),
    ],
)  # fmt: skip
def test_a_reader_that_loses_or_misreads_is_not(reader: Any, writer: Any, why: str) -> None:
    assert [found for found in find_losses(reader, writer) if found.startswith(why)]


def test_a_set_of_descriptors_is_text_for_people() -> None:
    files = FileDescriptorSet(file=[FileDescriptorProto(name="a/item.proto")])
    text = base64.b64encode(files.SerializeToString()).decode()
    assert 'name: "a/item.proto"' in descriptor_text(text)
    with pytest.raises(ValueError, match="pars"):
        descriptor_text(base64.b64encode(b"\x0a").decode())


# -- the library as the judge ----------------------------------------------------------------------

SCALARS = sorted(set(TYPES) - {"group", "message", "enum"})
Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]
LABELS = ["", "", "repeated", "oneof"]


@st.composite
def orders(draw: st.DrawFn) -> Any:
    numbers = draw(st.lists(st.integers(1, 4), unique=True, max_size=4))
    kinds = [draw(st.sampled_from([*SCALARS, "E", "Item"])) for _ in numbers]
    fields = [
        f"{draw(st.sampled_from(LABELS))} {kind} f{number} {number}"
        for kind, number in zip(kinds, numbers, strict=True)
    ]
    item = message("Item", f"{draw(st.sampled_from(SCALARS))} n 1")
    return file(message("Order", *fields), item, E=[0, *draw(st.just([1]) | st.just([1, 2]))])


def value_of(kind: int, draw: Draw) -> Any:
    name = next(name for name, number in TYPES.items() if number == kind)
    if name in ("string", "bytes"):
        return "ü" if name == "string" else draw(st.binary(max_size=3))
    if name in ("double", "float"):
        return draw(st.sampled_from([0.0, 1.5, -2.25]))
    if name == "bool":
        return draw(st.booleans())
    bits = 32 if "32" in name else 64
    low, high = (0, 2**bits - 1) if name[0] in "uf" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return draw(st.sampled_from([0, 1, low, high]) | st.integers(low, high))


def class_of(files: Any) -> Any:
    pool = DescriptorPool()
    for one in files:
        pool.Add(one)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def filled(found: Any, draw: Draw) -> Any:
    for field in found.DESCRIPTOR.fields:
        for _ in range(draw(st.integers(0, 2)) if field.is_repeated else draw(st.integers(0, 1))):
            if field.message_type is not None:
                whole = getattr(found, field.name)
                filled(whole.add() if field.is_repeated else whole, draw)
                continue
            value = 1 if field.enum_type is not None else value_of(field.type, draw)
            if field.is_repeated:
                getattr(found, field.name).append(value)
            else:
                setattr(found, field.name, value)
    return found


def seen(found: Any, wanted: Any) -> list[Any]:
    """The values of the fields that both have; texts as bytes, one value as a list of it."""
    values = []
    for field in found.DESCRIPTOR.fields:
        if field.number in wanted.fields_by_number:
            value = getattr(found, field.name)
            other = wanted.fields_by_number[field.number]
            listed = list(value) if field.is_repeated else [value]
            if field.message_type is not None:
                listed = [seen(one, other.message_type) for one in listed]
            listed = [one.encode() if isinstance(one, str) else one for one in listed]
            values.append(
                (field.number, [one for one in listed if one not in (0, b"", [], [(1, [])])])
            )
    return sorted(values, key=lambda one: one[0])


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # most are not compatible
@given(orders(), orders(), st.data())
def test_a_compatible_reader_reads_what_was_written(
    reader: Any, writer: Any, data: st.DataObject
) -> None:
    assume(not find_losses(reader, writer))
    reads, writes = class_of(reader), class_of(writer)
    written = filled(writes(), data.draw)
    read = reads.FromString(written.SerializeToString())
    assert seen(read, writes.DESCRIPTOR) == seen(written, reads.DESCRIPTOR)

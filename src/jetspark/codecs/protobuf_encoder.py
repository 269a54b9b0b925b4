"""Rows as messages of Protobuf, by ptars."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.codecs.decoder import check_times
from jetspark.codecs.encoder import cast, elements, numbers_of, refuse_nulls
from jetspark.codecs.protobuf_plan import fields_of
from jetspark.codecs.protobuf_schema import descriptor_of, library
from jetspark.codecs.schema import PayloadSchema
from jetspark.errors import ConfigError


class ProtobufEncoder:
    """Encodes rows as messages of one type."""

    def __init__(self, schema: PayloadSchema) -> None:
        """`schema`: a result of `message_of`. Raises ConfigError."""
        self._descriptor = descriptor_of(schema)
        self.fields = fields_of(self._descriptor)
        ptars = library("ptars")
        config = ptars.PtarsConfig(
            timestamp_unit="us",
            time_unit="us",
            duration_unit="us",
            enum_repr="string",
            list_value_nullable=True,
            map_value_nullable=True,
        )
        pool = ptars.HandlerPool([self._descriptor.file], config)
        self._handler = pool.get_for_message(self._descriptor)

    def of(self, rows: pa.RecordBatch) -> list[bytes]:
        """A payload for each row. A field that is null, or has no column, is not in the message."""
        wanted = pa.struct(list(self._handler.schema()))
        message = _encodable(rows.to_struct_array(), wanted, self._descriptor, "")
        check_times(message.flatten())
        batch = pa.RecordBatch.from_struct_array(message)
        found: list[bytes] = self._handler.record_batch_to_array(batch).to_pylist()
        return found


def _encodable(values: pa.Array, wanted: pa.DataType, message: Any, name: str) -> pa.Array:
    """Messages as the library wants them. Raises ConfigError."""
    given = dict(zip(values.type.names, values.flatten(), strict=True))
    for one in message.fields:
        if one.is_required:
            there = given.get(one.name, pa.nulls(len(values))).filter(values.is_valid())
            refuse_nulls(there, f"{name}{one.name}", "a value that is required")
    for oneof in message.oneofs:
        there = [given[one.name].is_valid() for one in oneof.fields if one.name in given]
        if any(pc.any(pc.and_(*two)).as_py() for two in combinations(there, 2)):
            raise ConfigError(f"Field {name}{oneof.name} has a value in more than one member.")
    known = message.fields_by_name
    found = {
        one: _several(each, wanted.field(one).type, known[one], f"{name}{one}")
        for one, each in given.items()
    }
    return pa.StructArray.from_arrays(found.values(), found, mask=values.is_null())


def _several(values: pa.Array, wanted: pa.DataType, field: Any, name: str) -> pa.Array:
    """Values of a field that may be repeated, or a map."""
    if not pa.types.is_list(wanted) and not pa.types.is_map(wanted):
        return _single(values, wanted, field, name)
    offsets, found = elements(values)
    if pa.types.is_list(wanted):
        refuse_nulls(found, f"{name}.element", "a value in each place")
        found = _single(found, wanted.value_type, field, f"{name}.element")
        return pa.ListArray.from_arrays(offsets, found, mask=values.is_null())
    keys, items = found.flatten()
    refuse_nulls(items, f"{name}.value", "a value for each key")
    key, item = (field.message_type.fields_by_name[one] for one in ("key", "value"))
    keys = _single(keys, wanted.key_type, key, f"{name}.key")
    items = _single(items, wanted.item_type, item, f"{name}.value")
    return pa.MapArray.from_arrays(offsets, keys, items, mask=values.is_null())


def _single(values: pa.Array, wanted: pa.DataType, field: Any, name: str) -> pa.Array:
    if field.enum_type is not None:
        numbers_of(values, list(field.enum_type.values_by_name), name)
    if pa.types.is_struct(wanted):
        return _encodable(values, wanted, field.message_type, f"{name}.")
    return cast(values, wanted, name)

"""Whether a schema may follow another one. Pure.

A reader's schema is compatible with a writer's when it reads everything that was written with that,
as it was meant. "backwards": the new schema reads what the previous one wrote; "forward": the
previous one reads what the new one writes; "full": both.

| format | the rules |
|---|---|
| Avro | schema resolution, by the library `avro`; logical types are the same |
| Protobuf | messages by name, fields by number: what was written is not lost, cut or misread |
| JSON Schema | the reader's schema allows every value that the writer's allows |

What cannot be judged is not compatible. Protobuf's rules are stricter than the wire's, on which an
int64 that is read as an int32 is cut; another name of a field is compatible. A JSON object is open
unless additionalProperties says otherwise, so it may already have a property that the new schema
adds, with any value: only a property that allows any is compatible.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jetspark.errors import ConfigError
from jetspark.registry.json_rules import outside
from jetspark.registry.protobuf_rules import lost

if TYPE_CHECKING:
    from avro.schema import Schema as AvroSchema
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from jetspark.codecs.schema import PayloadSchema


def violations(policy: str, previous: PayloadSchema, new: PayloadSchema) -> list[str]:
    """Why `new` may not follow `previous`; empty: it may. `policy`: a word of the protocol.

    Raises ConfigError for a schema that is none of its format.
    """
    found = []
    if policy in ("backwards", "full"):
        found += incompatibilities(new, previous)
    if policy in ("forward", "full"):
        reasons = incompatibilities(previous, new)
        found += [f"{why} (for readers with the previous schema)" for why in reasons]
    return found


def incompatibilities(reader: PayloadSchema, writer: PayloadSchema) -> list[str]:
    """Why `reader` does not read what was written with `writer`. Raises ConfigError."""
    try:
        if reader.format == "avro":
            return _avro_reasons(_avro(reader), _avro(writer))
        if reader.format == "protobuf":
            return lost(_files(reader), _files(writer))
        return outside(_json_schema(reader), _json_schema(writer))
    except RecursionError:
        return ["they are nested too deep to be compared"]


def check_definition(schema: PayloadSchema) -> None:
    """Raise ConfigError for a schema that is none of its format."""
    {"avro": _avro, "protobuf": _files, "json": _json_schema}[schema.format](schema)


# -- Avro ------------------------------------------------------------------------------------------


def _avro(schema: PayloadSchema) -> AvroSchema:
    from avro.errors import AvroException
    from avro.name import Names
    from avro.schema import make_avsc_object

    names = Names()
    try:
        for one in schema.references:
            make_avsc_object(json.loads(one.text), names)
        return make_avsc_object(json.loads(schema.text), names)
    except (AvroException, ValueError, RecursionError) as error:
        raise ConfigError(f"It is no Avro schema: {str(error).removesuffix('.')}.") from None


def _avro_reasons(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    from avro.compatibility import (
        ReaderWriterCompatibilityChecker,
        SchemaCompatibilityResult,
        SchemaCompatibilityType,
        SchemaIncompatibilityType,
        incompatible,
        merge,
    )

    class Checker(ReaderWriterCompatibilityChecker):
        """With logical types, which the library passes over."""

        def calculate_compatibility(
            self, reader: AvroSchema, writer: AvroSchema, location: list[str]
        ) -> SchemaCompatibilityResult:
            found = super().calculate_compatibility(reader, writer, location)
            mine, other = _logical_type(reader), _logical_type(writer)
            if mine is None or other is None or mine == other:
                return found
            kind = SchemaIncompatibilityType.type_mismatch
            return merge(found, incompatible(kind, f"{other} is read as {mine}", location))

    found = Checker().get_compatibility(reader, writer)  # type: ignore[no-untyped-call]
    if found.compatibility is SchemaCompatibilityType.compatible:
        return []
    kinds = {one.value.replace("_", " ") for one in found.incompatibilities}
    said = (", ".join(sorted(words)) for words in (found.locations, kinds, found.messages))
    return ["{}: {} ({})".format(*said)]


def _logical_type(schema: AvroSchema) -> str | None:
    given = schema.other_props
    name = given.get("logicalType")
    if name == "decimal":
        return f"decimal({given.get('precision')}, {given.get('scale', 0)})"
    return None if name is None else str(name)


# -- Protobuf, JSON Schema -------------------------------------------------------------------------


def _files(schema: PayloadSchema) -> list[FileDescriptorProto]:
    """The file of the schema, behind those that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from jetspark.codecs.protobuf import message_of  # it imports Arrow

    whole = message_of(replace(schema, name=""))  # of a registry, not of a message
    return list(FileDescriptorSet.FromString(base64.b64decode(whole.text)).file)


def _json_schema(schema: PayloadSchema) -> Any:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        found = json.loads(schema.text)
        if not isinstance(found, dict | bool):
            raise ConfigError("It is no JSON Schema, which is an object, true or false.")
        validator_for(found).check_schema(found)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"It is no JSON: {error}.") from None
    except SchemaError as error:
        raise ConfigError(f"It is no JSON Schema: {error.json_path}: {error.message}.") from None
    return found

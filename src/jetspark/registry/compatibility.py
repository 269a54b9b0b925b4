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
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from jetspark.codecs.schema import PayloadSchema
from jetspark.errors import ConfigError
from jetspark.registry.avro_defaults import wrong_defaults
from jetspark.registry.effort import Effort, TooComplex
from jetspark.registry.json_rules import outside
from jetspark.registry.protobuf_rules import lost

if TYPE_CHECKING:
    from avro.schema import Schema as AvroSchema
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_SMALLEST: Final = (
    PayloadSchema("avro", '"null"'),
    PayloadSchema("protobuf", "CgUiAwoBTQ=="),  # one file with the message M
    PayloadSchema("json", "{}"),
)


def load_rules() -> None:
    """Import all that the rules use: threads that import it at once may see a half of a library.

    Raises ModuleNotFoundError.
    """
    for schema in _SMALLEST:
        check_definition(schema)
        incompatibilities(schema, schema)
    import_module("grpc_tools")  # which compiles, in a process of its own


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
    except TooComplex:
        return ["they are too complex to be compared"]


def check_definition(schema: PayloadSchema) -> None:
    """Raise ConfigError for a schema that is none of its format, or contradicts itself."""
    try:
        if schema.format == "avro":
            if why := next(wrong_defaults(_avro(schema)), None):
                raise ConfigError(f"It is no Avro schema: {why}.")
        elif schema.format == "protobuf":
            _files(schema)
        elif missing := _dangling(_json_schema(schema)):
            raise ConfigError(f"It is no JSON Schema: there is nothing at its $ref {missing!r}.")
    except RecursionError:
        raise ConfigError("It is nested too deep.") from None


# -- Avro ------------------------------------------------------------------------------------------


def _avro(schema: PayloadSchema) -> AvroSchema:
    from avro.errors import AvroException
    from avro.name import Names
    from avro.schema import make_avsc_object

    names = Names()
    found: Any = None
    try:
        for one in (*schema.references, schema):
            found = json.loads(one.text)
            made = make_avsc_object(found, names)
        return made
    except (AvroException, ValueError, RecursionError) as error:
        why = next(_missing(found), str(error).removesuffix("."))
        raise ConfigError(f"It is no Avro schema: {why}.") from None


_MEMBERS: Final = {
    "record": ("name", "fields"),
    "field": ("name", "type"),
    "enum": ("name", "symbols"),
    "fixed": ("name", "size"),
    "array": ("items",),
    "map": ("values",),
}


def _missing(found: Any, kind: str = "") -> Iterator[str]:
    """The members that a definition in JSON lacks, which the library does not always name."""
    if isinstance(found, list):
        for one in found:
            yield from _missing(one)
    elif isinstance(found, dict):
        type_ = found.get("type")
        kind = kind or (type_ if isinstance(type_, str) else "schema")
        named = f" {found['name']!r}" if "name" in found else ""
        for one in _MEMBERS.get(kind, ("type",)):
            if one not in found:
                yield f"the {kind}{named} has no {one!r}"
        for one in fields if isinstance(fields := found.get("fields"), list) else ():
            yield from _missing(one, "field")
        for one in (type_, found.get("items"), found.get("values")):
            yield from _missing(one)


def _avro_reasons(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    from avro.compatibility import (
        ReaderWriterCompatibilityChecker,
        SchemaCompatibilityResult,
        SchemaCompatibilityType,
        SchemaIncompatibilityType,
        incompatible,
        merge,
    )

    effort = Effort()

    class Checker(ReaderWriterCompatibilityChecker):
        """With logical types, which the library passes over, and with a bound: the reasons of a
        type that is used twice would be listed twice, again and again."""

        def calculate_compatibility(
            self, reader: AvroSchema, writer: AvroSchema, location: list[str]
        ) -> SchemaCompatibilityResult:
            effort.spend()
            found = super().calculate_compatibility(reader, writer, location)
            del found.incompatibilities[_MAX_REASONS:]
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


_MAX_REASONS: Final = 100


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

    from jetspark.codecs.protobuf_schema import message_of  # it imports Arrow

    whole = message_of(replace(schema, name=""))  # of a registry, not of a message
    return list(FileDescriptorSet.FromString(base64.b64decode(whole.text)).file)


def _json_schema(schema: PayloadSchema) -> Any:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        found = json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"It is no JSON: {error}.") from None
    if not isinstance(found, dict | bool):
        raise ConfigError("It is no JSON Schema, which is an object, true or false.")
    if isinstance(found, dict) and not isinstance(found.get("$schema", ""), str):
        raise ConfigError("It is no JSON Schema: $schema is no text.")
    try:
        validator_for(found).check_schema(found)
    except SchemaError as error:
        raise ConfigError(f"It is no JSON Schema: {error.json_path}: {error.message}.") from None
    except RecursionError:
        raise ConfigError("It is no JSON Schema: it is nested too deep.") from None
    return found


def _dangling(schema: Any) -> str | None:
    """A reference into this document that leads to nothing; those to other documents may."""
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.exceptions import InvalidAnchor, NoSuchAnchor, PointerToNowhere, Unresolvable
    from referencing.jsonschema import specification_with

    draft = specification_with(validator_for(schema).META_SCHEMA["$schema"])
    whole: Resource[Any] = draft.create_resource(schema)
    resolver = Registry[Any]().resolver_with_root(whole)
    todo = [(resolver, whole)]
    while todo:
        resolver, here = todo.pop()
        if isinstance(here.contents, dict) and "$ref" in here.contents:
            reference = here.contents["$ref"]
            try:
                if not isinstance(resolver.lookup(reference).contents, dict | bool):
                    return str(reference)
            except (PointerToNowhere, NoSuchAnchor, InvalidAnchor):
                return str(reference)
            except (AttributeError, TypeError, ValueError):  # no URI, or through what has no parts
                return str(reference)
            except Unresolvable:
                pass
        try:
            todo += [(resolver.in_subresource(one), one) for one in here.subresources()]
        except ValueError as error:  # of an $id
            raise ConfigError(f"It is no JSON Schema: {error}.") from None
    return None

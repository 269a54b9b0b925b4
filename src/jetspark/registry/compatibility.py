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

from jetspark.errors import ConfigError
from jetspark.payloads.schema import PayloadSchema
from jetspark.registry.avro_defaults import wrong_defaults
from jetspark.registry.effort import Effort, TooComplex
from jetspark.registry.json_rules import find_disallowed
from jetspark.registry.protobuf_rules import find_losses

if TYPE_CHECKING:
    from avro.schema import Schema as AvroSchema
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_SMALLEST_SCHEMAS: Final = (
    PayloadSchema("avro", '"null"'),
    PayloadSchema("protobuf", "CgUiAwoBTQ=="),  # one file with the message M
    PayloadSchema("json", "{}"),
)


def load_rules() -> None:
    """Import all that the rules use: threads that import it at once may see a half of a library.

    Raises ModuleNotFoundError.
    """
    for schema in _SMALLEST_SCHEMAS:
        check_definition(schema)
        incompatibilities(schema, schema)
    import_module("grpc_tools")  # which compiles, in a process of its own


def violations(policy: str, previous: PayloadSchema, new: PayloadSchema) -> list[str]:
    """Return why `new` may not follow `previous`; empty: it may. `policy`: one of POLICIES.

    Raises ConfigError for a schema that is invalid in its format.
    """
    reasons = []
    if policy in ("backwards", "full"):
        reasons += incompatibilities(new, previous)
    if policy in ("forward", "full"):
        forward = incompatibilities(previous, new)
        reasons += [f"{reason} (for readers with the previous schema)" for reason in forward]
    return reasons


def incompatibilities(reader: PayloadSchema, writer: PayloadSchema) -> list[str]:
    """Return why `reader` does not read what was written with `writer`; empty: it does. Raises
    ConfigError."""
    try:
        if reader.format == "avro":
            return _find_avro_incompatibilities(_parse_avro(reader), _parse_avro(writer))
        if reader.format == "protobuf":
            return find_losses(_parse_protobuf(reader), _parse_protobuf(writer))
        return find_disallowed(_parse_json_schema(reader), _parse_json_schema(writer))
    except RecursionError:
        return ["they are nested too deep to be compared"]
    except TooComplex:
        return ["they are too complex to be compared"]


def check_definition(schema: PayloadSchema) -> None:
    """Raise ConfigError for a schema that is invalid in its format, or contradicts itself."""
    try:
        if schema.format == "avro":
            if problem := next(wrong_defaults(_parse_avro(schema)), None):
                raise ConfigError(f"It is no Avro schema: {problem}.")
        elif schema.format == "protobuf":
            _parse_protobuf(schema)
        elif missing := _find_dangling_ref(_parse_json_schema(schema)):
            raise ConfigError(f"It is no JSON Schema: there is nothing at its $ref {missing!r}.")
    except RecursionError:
        raise ConfigError("It is nested too deep.") from None


# -- Avro ------------------------------------------------------------------------------------------


def _parse_avro(schema: PayloadSchema) -> AvroSchema:
    """Parse a schema and those that it refers to. Raises ConfigError."""
    from avro.errors import AvroException
    from avro.name import Names
    from avro.schema import make_avsc_object

    names = Names()
    document: Any = None
    try:
        for part in (*schema.references, schema):
            document = json.loads(part.text)
            avro_schema = make_avsc_object(document, names)
        return avro_schema
    except (AvroException, ValueError, RecursionError) as error:
        problem = next(_find_missing_members(document), str(error).removesuffix("."))
        raise ConfigError(f"It is no Avro schema: {problem}.") from None


_MEMBERS: Final = {
    "record": ("name", "fields"),
    "field": ("name", "type"),
    "enum": ("name", "symbols"),
    "fixed": ("name", "size"),
    "array": ("items",),
    "map": ("values",),
}


def _find_missing_members(definition: Any, kind: str = "") -> Iterator[str]:
    """Yield what a definition in JSON lacks, since the library's errors do not always name it.
    `kind`: of the definition, where its place says it."""
    if isinstance(definition, list):
        for part in definition:
            yield from _find_missing_members(part)
    elif isinstance(definition, dict):
        type_ = definition.get("type")
        kind = kind or (type_ if isinstance(type_, str) else "schema")
        named = f" {definition['name']!r}" if "name" in definition else ""
        for part in _MEMBERS.get(kind, ("type",)):
            if part not in definition:
                yield f"the {kind}{named} has no {part!r}"
        for part in fields if isinstance(fields := definition.get("fields"), list) else ():
            yield from _find_missing_members(part, "field")
        for part in (type_, definition.get("items"), definition.get("values")):
            yield from _find_missing_members(part)


def _find_avro_incompatibilities(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Return why the reader's schema does not read the writer's datums, as one text."""
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
        """Compares logical types, too, which the library passes over, and bounds the reasons: those
        of a type that is used twice would be listed twice, again and again."""

        def calculate_compatibility(
            self, reader: AvroSchema, writer: AvroSchema, location: list[str]
        ) -> SchemaCompatibilityResult:
            effort.spend()
            result = super().calculate_compatibility(reader, writer, location)
            del result.incompatibilities[_MAX_REASONS:]
            read_as, written = _logical_type(reader), _logical_type(writer)
            if read_as is None or written is None or read_as == written:
                return result
            kind = SchemaIncompatibilityType.type_mismatch
            return merge(result, incompatible(kind, f"{written} is read as {read_as}", location))

    result = Checker().get_compatibility(reader, writer)  # type: ignore[no-untyped-call]
    if result.compatibility is SchemaCompatibilityType.compatible:
        return []
    kinds = {kind.value.replace("_", " ") for kind in result.incompatibilities}
    parts = (", ".join(sorted(words)) for words in (result.locations, kinds, result.messages))
    return ["{}: {} ({})".format(*parts)]


_MAX_REASONS: Final = 100


def _logical_type(schema: AvroSchema) -> str | None:
    """Return the logical type of a schema, a decimal with its digits; None if it has none."""
    properties = schema.other_props
    name = properties.get("logicalType")
    if name == "decimal":
        return f"decimal({properties.get('precision')}, {properties.get('scale', 0)})"
    return None if name is None else str(name)


# -- Protobuf, JSON Schema -------------------------------------------------------------------------


def _parse_protobuf(schema: PayloadSchema) -> list[FileDescriptorProto]:
    """Return the file of the schema, behind those that it imports. Raises ConfigError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from jetspark.payloads.protobuf_schema import message_of  # it imports Arrow

    message = message_of(replace(schema, name=""))  # of a registry, not of a message
    return list(FileDescriptorSet.FromString(base64.b64decode(message.text)).file)


def _parse_json_schema(schema: PayloadSchema) -> Any:
    """Parse a JSON Schema. Raises ConfigError for one that its draft does not allow."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        document = json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"It is no JSON: {error}.") from None
    if not isinstance(document, dict | bool):
        raise ConfigError("It is no JSON Schema, which is an object, true or false.")
    if isinstance(document, dict) and not isinstance(document.get("$schema", ""), str):
        raise ConfigError("It is no JSON Schema: $schema is no text.")
    try:
        validator_for(document).check_schema(document)
    except SchemaError as error:
        raise ConfigError(f"It is no JSON Schema: {error.json_path}: {error.message}.") from None
    except RecursionError:
        raise ConfigError("It is no JSON Schema: it is nested too deep.") from None
    return document


def _find_dangling_ref(schema: Any) -> str | None:
    """Return a reference within the document that leads to nothing, if there is one. References to
    other documents are not followed."""
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.exceptions import InvalidAnchor, NoSuchAnchor, PointerToNowhere, Unresolvable
    from referencing.jsonschema import specification_with

    draft = specification_with(validator_for(schema).META_SCHEMA["$schema"])
    root: Resource[Any] = draft.create_resource(schema)
    resolver = Registry[Any]().resolver_with_root(root)
    todo = [(resolver, root)]
    while todo:
        resolver, resource = todo.pop()
        if isinstance(resource.contents, dict) and "$ref" in resource.contents:
            reference = resource.contents["$ref"]
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
            todo += [(resolver.in_subresource(inner), inner) for inner in resource.subresources()]
        except ValueError as error:  # of an $id
            raise ConfigError(f"It is no JSON Schema: {error}.") from None
    return None

"""Schemas of payloads, and where the readers of payloads find them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from jetspark.errors import ConfigError

PayloadFormat: TypeAlias = Literal["avro", "protobuf", "json", "cloudevents", "debezium"]


class UnusableSchema(ConfigError):
    """Raised for a schema with which payloads cannot be decoded; says why."""


@contextmanager
def name_schema_file(name: str | None) -> Iterator[None]:
    """Put the name of the schema's file in front of errors of the schema that the `with` block
    raises. None: the schema is from no file, and errors stay."""
    try:
        yield
    except UnusableSchema as error:
        if name is None:
            raise
        raise ConfigError(f"{name}: {error}") from None


@dataclass(frozen=True)
class PayloadSchema:
    """One version of a schema of payloads, with its place in a registry if it has one."""

    format: PayloadFormat
    text: str
    """Avro: its JSON. JSON: JSON Schema. Protobuf: a FileDescriptorSet in base64, or the source of
    a .proto file, which always has a character that base64 lacks (";" or "{"). Debezium: what
    `debezium_schema.parse_schema` takes. CloudEvents: of their data, in any of these forms, or
    empty."""
    name: str = ""
    """The subject under which a registry has it, or the full name of the message or record, or the
    name of a file in the imports of the schema that refers to it."""
    version: int = 0
    """Version of the subject, or the registry's id; 0: unknown."""
    number: int | None = None
    """The registry's id."""
    references: tuple[PayloadSchema, ...] = ()
    """The schemas that it refers to, each before those that refer to it."""
    former: tuple[PayloadSchema, ...] = ()
    """Earlier versions, the latest one first, whose fields a reader keeps as columns."""


def is_proto_source(text: str) -> bool:
    """Return whether the text of a Protobuf schema is a .proto file's, and not descriptors in
    base64."""
    return ";" in text or "{" in text


class SchemaLookup(Protocol):
    """A registry, as the readers of payloads see it: it blocks, and remembers what it has found.

    Tasks look up what the driver has not seen, so it can be pickled. Both calls raise
    SchemaNotFoundError for what the registry does not have, which makes a bad record of the
    payload; any other error, such as a registry out of reach, ends the task. A registry without ids
    has an attribute `has_ids`, which is false.
    """

    def by_id(self, number: int) -> PayloadSchema:
        """Return the schema with this id, which is unique in its registry (Confluent's frames)."""

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        """Return a version of the schema with this name; None: its latest (`Nats-Schema`,
        `Nats-Schema-Version`). `format`: the wanted one, of a name that has several."""

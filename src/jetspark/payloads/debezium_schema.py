"""The columns of a database's rows, by the schemas of Debezium's events."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from jetspark.payloads.connect_schema import Schema, arrow_type, schema_from_avro
from jetspark.payloads.ddl import arrow_columns
from jetspark.payloads.debezium_events import ADDED_NAMES, MARKS, parse_event
from jetspark.reserved_names import rejection_reason

MAX_DEPTH: Final = 60
"""Levels of a column."""


def schema_in(payload: bytes) -> str | None:
    """Return the schema, in JSON, that a sampled event carries; None if it carries none by which
    rows can be decoded."""
    try:
        event = parse_event(payload, 0)
        if event is None or not event.schema:
            return None
        names = row_columns(event.schema).names
        if rejection_reason(names) is not None:
            return None
    except Exception:  # whatever is wrong with it, it is no schema to begin with
        return None
    return event.schema.decode()


def column_schemas(schema: bytes) -> dict[str, Schema]:
    """Return Kafka Connect's schemas of a row's columns, by name, from the schema of an event: an
    envelope, or a row. Raises ValueError for another schema."""
    try:
        schema_of_event = msgspec.json.decode(schema)
        fields = {field["field"]: field for field in schema_of_event["fields"]}
        # That of a CloudEvent's data has `before` and `after` only.
        is_envelope = "op" in fields or fields.keys() <= {"before", "after"}
        if is_envelope := is_envelope and fields.get("after", {}).get("type") == "struct":
            fields = {field["field"]: field for field in fields["after"]["fields"]}
        if not all(isinstance(name, str) for name in fields):
            raise TypeError
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError):
        raise ValueError("this is no schema of a Debezium event in JSON") from None
    if is_envelope and (reserved := ADDED_NAMES & fields.keys()):
        raise ValueError(
            f"the table has a column {min(reserved)}, whose name is that of a column of each "
            "event: name the other columns in the schema"
        )
    return {name: column for name, column in fields.items() if is_envelope or name not in MARKS}


def row_columns(schema: bytes) -> pa.Schema:
    """Return the columns of a table's rows, from the schema of an event in JSON. Raises
    ValueError."""
    try:
        columns = [(name, arrow_type(part)) for name, part in column_schemas(schema).items()]
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("this is no schema of a Debezium event in JSON") from None
    if not columns:
        raise ValueError("this schema has no columns")
    if max(_depth(kind) for _, kind in columns) > MAX_DEPTH:  # Spark's code for a row is recursive
        raise ValueError(f"a column of this schema is nested more than {MAX_DEPTH} deep")
    return pa.schema(columns)


def _depth(kind: pa.DataType) -> int:
    """Return how many types are within each other, with the type itself."""
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return 1 + max(map(_depth, parts), default=0)


class EventSchema(NamedTuple):
    """What the schema that a user has given says of Debezium's events."""

    columns: pa.Schema
    """The columns of rows."""
    schema: str | None
    """The schema of events that come without theirs, in JSON."""
    is_avro: bool
    """Whether events are in Avro."""


def parse_schema(text: str) -> EventSchema:
    """Parse what users give: the schema of an event in JSON or in Avro, an event with its schema,
    or the columns in Spark's DDL. Raises ValueError."""
    if not text.lstrip().startswith("{"):
        columns = arrow_columns(text)
        if reserved := ADDED_NAMES & {*columns.names}:
            raise ValueError(f"each event has a column {min(reserved)} already: leave it out")
        return EventSchema(columns, None, is_avro=False)
    try:
        declared = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if is_avro := declared.get("type") == "record":
        declared = schema_from_avro(declared)
    schema = msgspec.json.encode(declared.get("schema", declared))
    return EventSchema(row_columns(schema), schema.decode(), is_avro)

"""The schemas of payloads, from a stream's messages, where nobody gives them.

JSON's from a sample: behind `jetspark ingest --infer`. Messages are read from places that are
spread evenly over the stream, and nothing is written. It takes neither Spark nor Java. That of
Debezium's events is in the newest one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jetspark.bulk.json_shape import Shape
from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.reader import sample
from jetspark.bulk.stream_api import StreamAPI
from jetspark.codecs.cloudevents import text_of_value
from jetspark.codecs.debezium import schema_in
from jetspark.errors import ConfigError
from jetspark.lakehouse.routes import Route
from jetspark.spark.json_payloads import CORRUPT, KEPT
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.reading import begin, leaders, streams_facts

_COLUMNS = (*KEPT, "data")


@dataclass(frozen=True)
class Inferred:
    """The schema for the rows of a table."""

    table: str | None
    """None for rows that lack a value of the template."""
    messages: int
    schema: str
    """In Spark's DDL; empty if there is no field."""
    remarks: list[str]


def infer(given: Mapping[str, str], to: str | None, messages: int) -> list[Inferred]:
    """The schemas for a table, or for each one of a template, by its name.

    `given`: options of the source; `messages`: how many to look at, at most. Raises ConfigError,
    and as a read.
    """
    options = parse_options(given).for_streaming()
    if options.bucket is not None:
        raise ConfigError("--infer is for streams: leave --bucket out.")
    route = None if to is None else Route.parse("--to", to)
    shapes: defaultdict[str | None, Shape] = defaultdict(Shape)
    for batch in _sample(options, messages):
        if route is None:
            for payload in batch.column("data").to_pylist():
                shapes[to].add(payload)
        else:
            _divide(route, batch, shapes)
    found = []
    for table in sorted(shapes, key=lambda one: (one is None, one or "")):
        schema, remarks = shapes[table].schema((*KEPT, CORRUPT))
        found.append(Inferred(table, shapes[table].messages, schema, remarks))
    return found


def _divide(route: Route, batch: pa.RecordBatch, shapes: defaultdict[str | None, Shape]) -> None:
    """By the tables that the messages go to; also by fields of payloads, which are columns then."""
    fields = [one.column for one in route.values if one.column not in KEPT]
    payloads = batch.column("data").to_pylist()
    if fields:
        objects = [_object(payload) for payload in payloads]
        for name in dict.fromkeys(fields):
            texts = [text_of_value(one.get(name)) for one in objects]
            batch = batch.append_column(name, pa.array(texts, pa.string()))
    place = "jetspark_place"
    batch = batch.append_column(place, pa.array(range(batch.num_rows)))
    for table, rows in route.divide(batch):
        for at in rows.column(place).to_pylist():
            shapes[table].add(payloads[at])


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _sample(options: SourceOptions, messages: int) -> Iterator[pa.RecordBatch]:
    facts = streams_facts(options, sure=True)
    starts = begin(options, facts)
    for name, one in facts.items():
        share = max(messages // len(facts), 1)
        first, behind = max(one.first_seq, starts[name].next, 1), one.last_seq + 1
        wanted = SequenceRange(
            name, first, max(behind, first), one.created, options.subjects, direct=options.removes
        )
        yield from sample(options.connection, wanted, share, _COLUMNS)


# -- Debezium's events ---------------------------------------------------------------------------


_GIVEN = {"schema", "schemafile", "schemaname"}
_ANY = "_ INT"
"""Columns that serve until the real ones are known."""


def with_event_schema(given: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a source, with the schema of its newest event if they decode Debezium's and
    lack one. Raises ConfigError if there is none, and as a read."""
    said = {name.casefold(): value for name, value in given.items()}
    if said.get("decode") != "debezium" or _GIVEN & said.keys():
        return given
    options = parse_options({**given, "schema": _ANY})
    found = leaders(options).ask(lambda api: _newest(api, options))
    if found is None:
        raise ConfigError(
            "--decode debezium: there is no event that carries its schema. Name the columns in "
            '--schema, as "id BIGINT, amount DECIMAL(10,2)", or the file of Debezium\'s schema in '
            "--schema-file."
        )
    return {**given, "schema": found}


def _newest(api: StreamAPI, options: SourceOptions) -> str | None:
    for stream in options.streams:
        for subject in options.subjects or (">",):
            message = api.message(stream, last_by_subj=subject)
            schema = None if message is None else schema_in(message.data)
            if schema is not None:
                return schema
    return None

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
from itertools import chain
from typing import Any

import pyarrow as pa

from jetspark.bulk.json_shape import Shape
from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.reader import read_range
from jetspark.bulk.sample import read_sample
from jetspark.bulk.stream_api import StreamAPI
from jetspark.bulk.stream_facts import StreamFacts
from jetspark.codecs.cloudevents import text_of_value
from jetspark.codecs.debezium import schema_in
from jetspark.errors import ConfigError
from jetspark.lakehouse.routes import Route
from jetspark.spark.json_payloads import KEPT
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.reading import begin, ends, leaders, streams_facts

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
        schema, remarks = shapes[table].schema()
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
    place = "_jetspark_place"
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
    starts, behind = begin(options, facts), ends(options, facts)
    for name, one in facts.items():
        share = max(messages // len(facts), 1)
        first = max(one.first_seq, starts[name].next, 1)
        end = max(behind[name], first)
        wanted = SequenceRange(
            name, first, end, one.created, options.subjects, direct=options.removes
        )
        batches = read_sample(options.connection, wanted, share, _COLUMNS)
        yield from chain.from_iterable(map(options.around.bare, batches))


# -- Debezium's events ---------------------------------------------------------------------------


_GIVEN = {"schema", "schemafile", "schemaname"}
_ANY = "_ INT"
"""Columns that serve until the real ones are known."""
_LOOK_BACK = (256, 4096, 65_536)
"""How many sequences are looked at for an event with a schema, one part after the other, from the
newest message back."""


def with_event_schema(given: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a source, with the schema of the newest event that has a complete one, if they
    decode Debezium's and lack one. Raises ConfigError if there is none, and as a read."""
    said = {name.casefold(): value for name, value in given.items()}
    if said.get("decode") != "debezium" or _GIVEN & said.keys():
        return given
    options = parse_options({**given, "schema": _ANY})
    found = _newest_schema(options)
    if found is None:
        raise ConfigError(
            "--decode debezium: there is no event that carries its schema among the newest "
            f"{sum(_LOOK_BACK):,} messages. Name the columns in "
            '--schema, as "id BIGINT, amount DECIMAL(10,2)", or the file of Debezium\'s schema in '
            "--schema-file."
        )
    return {**given, "schema": found}


def _newest_schema(options: SourceOptions) -> str | None:
    found = [
        schema
        for name, facts in streams_facts(options, sure=True).items()
        if (schema := _newest_in(options, name, facts)) is not None
    ]
    return max(found)[1] if found else None


def _newest_in(options: SourceOptions, stream: str, facts: StreamFacts) -> tuple[int, str] | None:
    """The schema of a stream's newest event with a complete one, and the event's time."""

    def last_of_subjects(api: StreamAPI) -> int:
        every = (api.message(stream, last_by_subj=one) for one in options.subjects or (">",))
        return max((one.seq for one in every if one is not None), default=0)

    end = min(leaders(options).call(last_of_subjects), facts.last_seq) + 1
    for count in _LOOK_BACK:
        start = max(end - count, facts.first_seq, 1)
        if start >= end:
            return None
        wanted = SequenceRange(
            stream, start, end, facts.created, options.subjects,
            from_earliest=True, direct=options.removes,
        )  # fmt: skip
        newest = None
        columns = ("timestamp", "data", "headers")
        batches = read_range(options.connection, wanted, columns=columns, fail_on_data_loss=False)
        for batch in chain.from_iterable(map(options.around.bare, batches)):
            newest = _last_schema(batch) or newest
        if newest is not None:
            return newest
        end = start
    return None


def _last_schema(batch: pa.RecordBatch) -> tuple[int, str] | None:
    payloads = batch.column("data")
    for row in reversed(range(batch.num_rows)):
        if (schema := schema_in(payloads[row].as_py())) is not None:
            return batch.column("timestamp")[row].cast(pa.int64()).as_py(), schema
    return None

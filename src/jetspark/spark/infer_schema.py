"""Infers schemas of JSON payloads from a sample of messages, for `jetspark ingest --infer`.

Messages are read from places that are spread evenly over the stream, and nothing is written. It
takes neither Spark nor Java.
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
from jetspark.bulk.sample import read_sample
from jetspark.codecs.cloudevents import text_of_value
from jetspark.errors import ConfigError
from jetspark.lakehouse.routes import TableTemplate
from jetspark.spark.json_payloads import METADATA_COLUMNS
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.positions import begin, ends
from jetspark.spark.source_streams import streams_facts

_COLUMNS = (*METADATA_COLUMNS, "data")


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
    route = None if to is None else TableTemplate.parse("--to", to)
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


def _divide(
    route: TableTemplate, batch: pa.RecordBatch, shapes: defaultdict[str | None, Shape]
) -> None:
    """By the tables that the messages go to; also by fields of payloads, which are columns then."""
    fields = [one.column for one in route.values if one.column not in METADATA_COLUMNS]
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

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

from jetspark.errors import ConfigError, named
from jetspark.payloads.field_names import FieldNames
from jetspark.payloads.json_shape import Shape
from jetspark.ranges.sample import read_sample
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.payload_columns import METADATA_COLUMNS
from jetspark.spark.source.positions import resolve_ends, resolve_start
from jetspark.spark.source.source_streams import fetch_source_facts
from jetspark.tables.table_templates import TableTemplate

_COLUMNS = (*METADATA_COLUMNS, "data")
_NAMES = FieldNames()


@dataclass(frozen=True)
class InferredSchema:
    """The schema that fits a sample of the JSON payloads for one table."""

    table: str | None
    """The table's path; None without one, and for rows that lack a value of the template."""
    messages: int
    """Messages in the sample."""
    schema: str
    """Columns in Spark's DDL; empty if there is no field."""
    remarks: list[str]
    """Sentences for the user, such as about fields that are left out."""


def infer_schemas(
    source_options: Mapping[str, str], to: str | None, messages: int
) -> list[InferredSchema]:
    """Infer schemas of JSON payloads from a sample of a source's messages, one for each table.

    `to`: the table's path, or a template such as `lake/{region}`, by which rows go to several
    tables; None: one schema for all. `messages`: the size of the sample, at most. The result is
    sorted by table. Raises ConfigError, and the errors of a read.
    """
    options = parse_options(source_options).for_streaming()
    if options.bucket is not None:
        raise ConfigError(f"is for streams: leave {named('bucket')} out.", option="infer")
    template = None if to is None else TableTemplate.parse(named("path"), to)
    if template is not None:
        _check_template(template)
    shapes: defaultdict[str | None, Shape] = defaultdict(Shape)
    for batch in _read_sample(options, messages):
        if template is None:
            for payload in batch.column("data").to_pylist():
                shapes[to].add(payload)
        else:
            _add_by_table(template, batch, shapes)
    inferred = []
    for table in sorted(shapes, key=lambda name: (name is None, name or "")):  # None comes last
        schema, remarks = shapes[table].schema()
        inferred.append(InferredSchema(table, shapes[table].messages, schema, remarks))
    return inferred


def _check_template(template: TableTemplate) -> None:
    """Raise ConfigError for a template with the column `data`, which rows with a schema lack."""
    for value in template.values:
        if value.column == "data":
            raise ConfigError(
                f"{named('path')}: {{{value.text}}} names the payload, and with a schema its "
                "fields are the columns: write one of these, such as "
                f"{{{_NAMES.column('data')}}} for a field that is called data."
            )


def _add_by_table(
    template: TableTemplate, batch: pa.RecordBatch, shapes: defaultdict[str | None, Shape]
) -> None:
    """Add each payload of a batch to the shape, the fields seen so far, of the table it goes to.

    A template may name columns of the payload's fields, so these are added first.
    """
    columns = dict.fromkeys(value.column for value in template.values)
    if of_fields := [name for name in columns if name not in METADATA_COLUMNS]:
        objects = list(map(_parse_object, batch.column("data").to_pylist()))
        for column in of_fields:
            field = _NAMES.field(column)
            values = [document.get(field) for document in objects]
            texts = [
                value if isinstance(value, str | None) else json.dumps(value) for value in values
            ]
            batch = batch.append_column(column, pa.array(texts, pa.string()))
    for table, rows in template.split_by_table(batch):
        for payload in rows.column("data").to_pylist():
            shapes[table].add(payload)


def _parse_object(payload: bytes) -> dict[str, Any]:
    """Parse a payload that is a JSON object; any other payload gives an empty one."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _read_sample(options: SourceOptions, messages: int) -> Iterator[pa.RecordBatch]:
    """Read about `messages` messages of a source, an equal share from each stream.

    Payloads come without what the option `framing` says is around them.
    """
    facts = fetch_source_facts(options, linearizable=True)
    starts, ends = resolve_start(options, facts), resolve_ends(options, facts)
    share = max(messages // max(len(facts), 1), 1)
    for name, stream in facts.items():
        first = max(stream.first_seq, starts[name].next, 1)
        end = max(ends[name], first)
        direct = options.reads_by_direct_gets  # a consumer's acks would remove what is read
        range_ = SequenceRange(name, first, end, stream.created, options.subjects, direct=direct)
        batches = read_sample(options.connection, range_, share, _COLUMNS)
        yield from chain.from_iterable(map(options.payload_framing.strip, batches))

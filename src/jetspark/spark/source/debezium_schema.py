"""The schema of Debezium's events, taken from the newest event that carries one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from jetspark.errors import ConfigError, named
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.payloads.debezium_schema import schema_in
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.source_streams import fetch_source_facts, leaders

_SCHEMA_OPTIONS = {"schema", "schemafile", "schemaname"}
_PLACEHOLDER_SCHEMA = "_ INT"
"""Columns that serve until the real ones are known."""
_LOOK_BACK_SEQUENCES = (256, 4096, 65_536)
"""Lengths in sequences of the parts in which an event with a schema is searched, from the newest
message back."""


def add_event_schema(source_options: Mapping[str, str]) -> Mapping[str, str]:
    """Add the schema of Debezium's events to a source's options, if they decode Debezium and have
    none: that of the newest event that carries one.

    Other options are returned unchanged. Raises ConfigError if no event has a schema, and the
    errors of a read.
    """
    values = {name.casefold(): value for name, value in source_options.items()}
    if values.get("decode") != "debezium" or _SCHEMA_OPTIONS & values.keys():
        return source_options
    options = parse_options({**source_options, "schema": _PLACEHOLDER_SCHEMA})
    schema = _find_newest_schema(options)
    if schema is None:
        raise ConfigError(
            f"{named('decode')} debezium: there is no event that carries its schema among the "
            f"newest {sum(_LOOK_BACK_SEQUENCES):,} messages. Name the columns in "
            f"{named('schema')}, "
            'as "id BIGINT, amount DECIMAL(10,2)", or the file of Debezium\'s schema in '
            f"{named('schema_file')}."
        )
    return {**source_options, "schema": schema}


class _TimedSchema(NamedTuple):
    """A schema from an event; later ones compare as greater."""

    microseconds: int
    """When the event was stored, since 1970."""
    schema: str


def _find_newest_schema(options: SourceOptions) -> str | None:
    """Find the newest Debezium event that carries its whole schema, in all streams of a source.

    Returns the schema, None if there is no such event.
    """
    facts = fetch_source_facts(options, linearizable=True).values()
    newest = filter(None, (_find_newest_in_stream(options, stream) for stream in facts))
    return max(newest, default=_TimedSchema(0, "")).schema or None


def _find_newest_in_stream(options: SourceOptions, facts: StreamFacts) -> _TimedSchema | None:
    """Find a stream's newest Debezium event that carries its whole schema, by reading backwards
    from the end in parts that grow. None if none is among the newest `_LOOK_BACK_SEQUENCES`."""

    def last_of_subjects(api: StreamAPI) -> int:
        """The last sequence under the subjects that the source reads; 0 without one."""
        messages = (
            api.message(facts.name, last_by_subj=subject) for subject in options.subjects or (">",)
        )
        return max((message.seq for message in messages if message is not None), default=0)

    end = min(leaders(options).call(last_of_subjects), facts.last_seq) + 1
    for count in _LOOK_BACK_SEQUENCES:
        start = max(end - count, facts.first_seq, 1)
        if start >= end:
            return None
        range_ = SequenceRange(
            facts.name, start, end, facts.created, options.subjects,
            # Removed messages do not matter; a consumer might remove messages by its acks.
            from_earliest=True, direct=options.reads_by_direct_gets,
        )  # fmt: skip
        columns = ("timestamp", "data", "headers")
        batches = read_range(options.connection, range_, columns=columns, fail_on_data_loss=False)
        newest = None
        for batch in chain.from_iterable(map(options.payload_framing.strip, batches)):
            newest = _find_last_in_batch(batch) or newest
        if newest is not None:
            return newest
        end = start
    return None


def _find_last_in_batch(batch: pa.RecordBatch) -> _TimedSchema | None:
    """The schema of the last Debezium event in a batch that carries one; None without one."""
    payloads = batch.column("data")
    for row in reversed(range(batch.num_rows)):
        if (schema := schema_in(payloads[row].as_py())) is not None:
            return _TimedSchema(batch.column("timestamp")[row].cast(pa.int64()).as_py(), schema)
    return None

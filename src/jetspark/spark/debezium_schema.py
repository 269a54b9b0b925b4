"""The schema of Debezium's events, taken from the newest event that carries one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import pyarrow as pa

from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.reader import read_range
from jetspark.bulk.stream_api import StreamAPI
from jetspark.bulk.stream_facts import StreamFacts
from jetspark.codecs.debezium import schema_in
from jetspark.errors import ConfigError
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.source_streams import leaders, streams_facts

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

"""The schema of Debezium's events, taken from the newest one, where nobody gives it."""

from __future__ import annotations

from collections.abc import Mapping

from jetspark.bulk.stream_api import StreamAPI
from jetspark.codecs.debezium import schema_in
from jetspark.errors import ConfigError
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.reading import leaders

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

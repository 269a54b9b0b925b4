"""Matches the options that Spark passes with those of the format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from jetspark.errors import ConfigError
from jetspark.spark.connection_options import CALLABLES, MASKED
from jetspark.subjects import nearest_name

# A catalog table's own properties, which Spark passes in addition to the options.
_OF_CATALOG = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location"}
)
_OPTION_OF_TABLE = "option."  # how a table keeps the options it was created with
_OF_KAFKA = {
    "kafka.bootstrap.servers": "'servers' here",
    "subscribe": "'stream' or 'streams' here",
    "subscribepattern": "'streamPattern' here",
    "topic": "'subject' here",
    "includeheaders": "'columns' here: headers are there unless it leaves them out",
    "kafkaconsumer.polltimeoutms": "'readTimeout' here, in seconds",
    "fetchoffset.numretries": "covered by 'readTimeout' here",
    "fetchoffset.retryintervalms": "covered by 'readTimeout' here",
    "assign": "not needed here: streams have no partitions to choose from",
    "groupidprefix": "not needed here: there are no consumer groups",
    "kafka.group.id": "not needed here: there are no consumer groups",
}
"""Options of Spark's Kafka connector, folded, that have another name here or none."""
_OF_TABLES = {
    "path": "is for files: load() without one, and the option 'stream', or 'backup' for a folder",
    "timestampasof": "is for tables with versions: 'endingTimestamp' here",
    "versionasof": "is for tables with versions: 'endingOffsets' here",
}
"""Options of Spark's other sources, folded, and what they are for."""


def named(
    options: Mapping[str, str],
    known: Iterable[str],
    *,
    elsewhere: Mapping[str, str],
    of_spark: frozenset[str] = frozenset(),
) -> Iterator[tuple[str, str]]:
    """(name as it is known, text) of each option; Spark folds the case of names.

    `elsewhere`: names that are known in another place, with that place; `of_spark`: names, folded,
    that Spark itself adds. Raises ConfigError for an unknown name, with the nearest known one.
    """
    by_folded = {name.casefold(): name for name in known}
    places = {name.casefold(): (name, place) for name, place in elsewhere.items()}
    for given, value in _without_catalog(options):
        folded = given.casefold()
        if folded in by_folded:
            yield by_folded[folded], value
        elif folded not in of_spark:
            raise ConfigError(_unknown(given, list(by_folded.values()), places))


def _without_catalog(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The user's options; those given with the read come last, so they override the table's."""
    for given, value in options.items():
        if given.casefold().startswith(_OPTION_OF_TABLE):
            yield given[len(_OPTION_OF_TABLE) :], value
    for given, value in options.items():
        folded = given.casefold()
        if folded not in _OF_CATALOG and not folded.startswith(_OPTION_OF_TABLE):
            yield given, value


def _unknown(given: str, known: list[str], places: Mapping[str, tuple[str, str]]) -> str:
    folded = given.casefold()
    if folded in CALLABLES:
        return f"Option {given!r} is for the client only: {CALLABLES[folded]}."
    if folded in MASKED:
        return f"Option {given!r} is called {MASKED[folded]!r} here, a name that Spark masks."
    if folded in places:
        name, place = places[folded]
        return f"Option {name!r} is for {place}."
    if folded in _OF_KAFKA:
        return f"Option {given!r} of Spark's Kafka connector is {_OF_KAFKA[folded]}."
    if folded in _OF_TABLES:
        return f"Option {given!r} {_OF_TABLES[folded]}."
    if folded.startswith("kafka."):
        return f"Option {given!r} is for Kafka; docs/kafka-options.md has the options here."
    near = nearest_name(given, known)
    if near is not None:
        return f"Unknown option {given!r} for format jetstream; did you mean {near!r}?"
    return f"Unknown option {given!r} for format jetstream; known: {', '.join(known)}."

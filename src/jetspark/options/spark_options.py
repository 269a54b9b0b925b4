"""Options as Spark passes them: texts under names in any case, with hints for unknown names.

Names follow Spark's Kafka connector where the meaning is the same.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from jetspark.errors import ConfigError, named
from jetspark.nearest import did_you_mean
from jetspark.options.names import spark_name
from jetspark.options.parsers import Parsers, parse_option

T = TypeVar("T")

# A catalog table's own properties, which Spark passes in addition to the options.
_CATALOG_PROPERTIES = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location"}
)
_TABLE_OPTION_PREFIX = "option."
"""The prefix of the options with which a catalog table was created."""
_KAFKA_OPTIONS = {
    "kafka.bootstrap.servers": f"{named('servers')} here",
    "subscribe": f"{named('stream')} or {named('streams')} here",
    "subscribepattern": f"{named('stream_pattern')} here",
    "topic": f"{named('subject')} here",
    "includeheaders": f"{named('columns')} here: headers are there unless it leaves them out",
    "kafkaconsumer.polltimeoutms": f"{named('read_timeout')} here, in seconds",
    "fetchoffset.numretries": f"covered by {named('read_timeout')} here",
    "fetchoffset.retryintervalms": f"covered by {named('read_timeout')} here",
    "assign": "not needed here: streams have no partitions to choose from",
    "groupidprefix": "not needed here: there are no consumer groups",
    "kafka.group.id": "not needed here: there are no consumer groups",
}
_CLIENT_OPTIONS = {
    "sign": f"executors cannot call it; use {named('creds')}, {named('creds_file')}, or "
    f"{named('jwt')} with {named('nkey_seed')}",
    "nkey": f"executors cannot call sign; use {named('nkey_seed')} or {named('nkey_seed_file')}",
    "dialer": f"it cannot be sent to executors; use {named('proxy')}",
    "sslcontext": "it cannot be sent to executors; use the tls… options",
    "ssl_context": "it cannot be sent to executors; use the tls… options",
}
_RENAMED_SECRETS = {
    "creds": "creds",
    "nkeyseed": "nkey_seed",
    "nkey_seed": "nkey_seed",
    "jwt": "jwt",
}
"""The client's names that Spark would show in plans, and the masked ones to use."""
_HINTS = {
    **{name: f"of Spark's Kafka connector is {advice}" for name, advice in _KAFKA_OPTIONS.items()},
    **{name: f"is for the client only: {reason}" for name, reason in _CLIENT_OPTIONS.items()},
    **{
        name: f"is called {spark_name(masked)!r} here, a name that Spark masks"
        for name, masked in _RENAMED_SECRETS.items()
    },
    "path": f"is for files: load() without one, and {named('stream')}, or "
    f"{named('backup')} for a folder",
    "timestampasof": f"is for tables with versions: {named('ending_timestamp')} here",
    "versionasof": f"is for tables with versions: {named('ending_offsets')} here",
}
"""Advice, by folded name, for options of other sources and of the client, which are unknown here.
"""


def read_options(
    options: Mapping[str, str],
    parsers: Parsers,
    *,
    elsewhere: Mapping[str, str],
    of_spark: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Parse the options that Spark passes to a format; returns their values by names in Python.

    `options`: texts by the options' names in Spark, in any case; `elsewhere`: options that have a
    meaning in another place, with that place; `of_spark`: names, folded, that Spark itself adds.
    Raises ConfigError for an unknown name, with the nearest known one, and for a bad value.
    """
    names = {spark_name(name).casefold(): name for name in parsers}
    parsed = {}
    for option, text in _user_options(options):
        name = names.get(option.casefold())
        if name is not None:
            parsed[name] = parse_option(parsers[name], name, text)
        elif option.casefold() not in of_spark:
            raise ConfigError(_describe_unknown(option, parsers, elsewhere))
    return parsed


def _user_options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The options that a user has set, among all that Spark passes: names and texts.

    A table of Spark's catalog adds properties of its own, which are left out, and the options that
    it was created with (`option.NAME`). Those come first, so that the options of a read or write,
    which come later, override them.
    """
    for option, text in options.items():
        if option.casefold().startswith(_TABLE_OPTION_PREFIX):
            yield option[len(_TABLE_OPTION_PREFIX) :], text
    for option, text in options.items():
        folded = option.casefold()
        if folded not in _CATALOG_PROPERTIES and not folded.startswith(_TABLE_OPTION_PREFIX):
            yield option, text


def _describe_unknown(option: str, known: Iterable[str], elsewhere: Mapping[str, str]) -> str:
    """Describe an unknown option in a sentence, with the advice that fits best.

    `known`: the options of this format, by their names in Python; `elsewhere`: options that have a
    meaning in another place, with that place.
    """
    folded = option.casefold()
    for name, purpose in elsewhere.items():
        if spark_name(name).casefold() == folded:
            return f"{named(name)} is for {purpose}."
    if folded in _HINTS:
        return f"Option {option!r} {_HINTS[folded]}."
    if folded.startswith("kafka."):
        return f"Option {option!r} is for Kafka; docs/kafka-options.md has the options here."
    names = list(map(spark_name, known))
    hint = did_you_mean(option, names, f"; known: {', '.join(names)}.")
    return f"Unknown option {option!r} for format jetstream{hint}"


def select_options(options: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    """Select the options with these names that are set, in the order of the names."""
    return {name: options[name] for name in names if name in options}


def take_only_one(options: Mapping[str, T], names: Iterable[str]) -> T | None:
    """The value of the only option of these names that is set; None if none is.

    Raises ConfigError if more than one is set.
    """
    selected = select_options(options, names)
    if len(selected) > 1:
        raise ConfigError(f"Give only one of {', '.join(map(named, selected))}.")
    return next(iter(selected.values()), None)


def refuse_options(options: Container[str], reasons: Mapping[str, str]) -> None:
    """Raise ConfigError if an option is set that cannot be used here, such as one for streaming.

    `options`: those that are set; `reasons`: each refused option, with the end of the sentence "The
    option is …".
    """
    for name, reason in reasons.items():
        if name in options:
            raise ConfigError(f"is {reason}", option=name)

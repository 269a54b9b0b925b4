"""The options of all formats: names without case, and texts that become values.

Names follow Spark's Kafka connector where the meaning is the same. Spark passes texts, and folds
the case of names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from jetspark.connection.proxy import parse_proxy
from jetspark.connection.urls import parse_urls
from jetspark.errors import ConfigError, named
from jetspark.kv_rules import check_filter
from jetspark.nearest import did_you_mean
from jetspark.options.names import spark_name
from jetspark.subjects import (
    check_disjoint,
    check_name,
    check_publish_subject,
    check_subscribe_subject,
)

T = TypeVar("T")

# -- values: functions of (name, text), which raise ConfigError ---------------------------------

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_LONG = 2**63 - 1  # numbers go to Spark, which keeps them in a long
_MAX_SECONDS = 1e9  # 31 years: sockets refuse to wait for longer than some hundred


def read(convert: Callable[[str, str], T], name: str, value: str) -> T:
    """The value of an option, by `convert`. Raises ConfigError, which names the option."""
    try:
        return convert(name, value)
    except ConfigError as error:
        if error.option is not None:
            raise
        raise ConfigError(f": {error.message}", option=name) from None


def text(name: str, value: str) -> str:
    """The text, unchanged."""
    return value


def name(name: str, value: str) -> str:
    """A text that is not empty."""
    if not value.strip():
        raise ConfigError("is empty.", option=name)
    return value


def positive_int(name: str, value: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(value.strip())
    except ValueError:
        number = 0
    if number > _MAX_LONG:
        raise ConfigError(f"must be {_MAX_LONG} at most", option=name, value=value)
    if number < 1:
        raise ConfigError("must be a whole number of at least 1", option=name, value=value)
    return number


def non_negative_int(name: str, value: str) -> int:
    """A whole number of at least 0."""
    return 0 if value.strip() == "0" else positive_int(name, value)


def seconds(name: str, value: str) -> float:
    """A number of seconds above 0."""
    try:
        number = float(value.strip())
    except ValueError:
        number = 0.0
    if not 0 < number <= _MAX_SECONDS:
        raise ConfigError(
            f"must be a number of seconds above 0 and {_MAX_SECONDS:.0f} at most",
            option=name,
            value=value,
        )
    return number


def duration(name: str, value: str) -> float:
    """Seconds of "15m", "90s", "1h", or of a bare number of seconds."""
    match = _DURATION.fullmatch(value.strip().casefold())
    if match is None:
        raise ConfigError("must be a time such as 15m or 90s", option=name, value=value)
    return float(match[1]) * _UNITS[match[2] or "s"]


def truth(name: str, value: str) -> bool:
    """true or false."""
    folded = value.strip().casefold()
    if folded not in ("true", "false"):
        raise ConfigError("must be true or false", option=name, value=value)
    return folded == "true"


def word(*words: str) -> Callable[[str, str], str]:
    """One of these words."""

    def convert(name: str, value: str) -> str:
        if value not in words:
            raise ConfigError(f"must be {', '.join(words)}", option=name, value=value)
        return value

    return convert


_NAME_IN_LIST: Final = re.compile(r"\s*`((?:[^`]|``)+)`\s*(?=,|$)|([^,]+)")


def join_names(names: Iterable[str]) -> str:
    """The text that `columns` reads as these names."""
    return ",".join(
        f"`{name.replace('`', '``')}`" if {*name} & {",", "`"} or name != name.strip() else name
        for name in names
    )


def split_names(text: str) -> tuple[str, ...]:
    """Names, separated by commas; a name with a comma stands in backquotes, as in Spark SQL."""
    parts = (
        match[1].replace("``", "`") if match[1] else match[2].strip()
        for match in _NAME_IN_LIST.finditer(text)
    )
    return tuple(filter(None, parts))


def columns(name: str, value: str) -> tuple[str, ...]:
    """Names as `split_names` takes them, in the given order, each once."""
    names = split_names(value)
    if not names:
        raise ConfigError("is empty; leave it out, or name some.", option=name)
    for column in names:
        if names.count(column) > 1:
            raise ConfigError(f"names {column!r} twice.", option=name)
    return names


def checked_names(check: Callable[[str], object]) -> Callable[[str, str], tuple[str, ...]]:
    """Names that all pass a check."""

    def convert(name: str, value: str) -> tuple[str, ...]:
        names = columns(name, value)
        for item in names:
            check(item)
        return names

    return convert


def _filters(check: Callable[[str], object]) -> Callable[[str, str], tuple[str, ...]]:
    def convert(name: str, value: str) -> tuple[str, ...]:
        patterns = checked_names(check)(name, value)
        check_disjoint(named(name), patterns)
        return patterns

    return convert


def stream(name: str, value: str) -> str:
    return check_name("stream", value)


streams = checked_names(partial(check_name, "stream"))
subjects = _filters(check_subscribe_subject)
keys = _filters(check_filter)


def subject(name: str, value: str) -> str:
    """A subject to publish to."""
    check_publish_subject(value)
    return value


def pattern(name: str, value: str) -> str:
    """A regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigError(
            f"is not a regular expression ({error}): {value!r}.", option=name
        ) from None
    return value


def renames(name: str, value: str) -> dict[str, str]:
    """Columns by the fields of payloads, `timestamp=sent_at`."""
    from jetspark.payloads.field_names import parse_renames  # it loads PyArrow

    return parse_renames(named(name), value)


# -- names --------------------------------------------------------------------------------------

Table: TypeAlias = Mapping[str, Callable[[str, str], Any]]
"""The functions for the texts of options, by the options' names in Python."""

# A catalog table's own properties, which Spark passes in addition to the options.
_OF_CATALOG = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location"}
)
_OPTION_OF_TABLE = "option."  # the form in which a table keeps the options of its creation
_OF_KAFKA = {
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
_OF_CLIENT = {
    "sign": f"executors cannot call it; use {named('creds')}, {named('creds_file')}, or "
    f"{named('jwt')} with {named('nkey_seed')}",
    "nkey": f"executors cannot call sign; use {named('nkey_seed')} or {named('nkey_seed_file')}",
    "dialer": f"it cannot be sent to executors; use {named('proxy')}",
    "sslcontext": "it cannot be sent to executors; use the tls… options",
    "ssl_context": "it cannot be sent to executors; use the tls… options",
}
_MASKED = {"creds": "creds", "nkeyseed": "nkey_seed", "nkey_seed": "nkey_seed", "jwt": "jwt"}
"""The client's names that Spark would show in plans, and the masked ones to use."""
_HINTS = {
    **{name: f"of Spark's Kafka connector is {advice}" for name, advice in _OF_KAFKA.items()},
    **{name: f"is for the client only: {reason}" for name, reason in _OF_CLIENT.items()},
    **{
        name: f"is called {spark_name(masked)!r} here, a name that Spark masks"
        for name, masked in _MASKED.items()
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
    table: Table,
    *,
    elsewhere: Mapping[str, str],
    of_spark: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The values of a table's options, by their names in Python.

    `options`: texts by the options' names in Spark, in any case; `elsewhere`: options that have a
    meaning in another place, with that place; `of_spark`: names, folded, that Spark itself adds.
    Raises ConfigError for an unknown name, with the nearest known one, and for a bad value.
    """
    names_by_spark_name = {spark_name(name).casefold(): name for name in table}
    values = {}
    for option, value in _without_catalog(options):
        name = names_by_spark_name.get(option.casefold())
        if name is not None:
            values[name] = read(table[name], name, value)
        elif option.casefold() not in of_spark:
            raise ConfigError(_unknown(option, list(table), elsewhere))
    return values


def select(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The values of these options."""
    return {name: values[name] for name in names if name in values}


def only_one(values: Mapping[str, T], names: Iterable[str]) -> T | None:
    """The value of one of these options, or None. Raises ConfigError for two of them."""
    present = [name for name in names if name in values]
    if len(present) > 1:
        raise ConfigError(f"Give only one of {', '.join(map(named, present))}.")
    return values[present[0]] if present else None


def _without_catalog(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The user's options; those given with the read come last, so they override the table's."""
    for option, value in options.items():
        if option.casefold().startswith(_OPTION_OF_TABLE):
            yield option[len(_OPTION_OF_TABLE) :], value
    for option, value in options.items():
        folded = option.casefold()
        if folded not in _OF_CATALOG and not folded.startswith(_OPTION_OF_TABLE):
            yield option, value


def _unknown(option: str, known_names: list[str], elsewhere: Mapping[str, str]) -> str:
    folded = option.casefold()
    for name, purpose in elsewhere.items():
        if spark_name(name).casefold() == folded:
            return f"{named(name)} is for {purpose}."
    if folded in _HINTS:
        return f"Option {option!r} {_HINTS[folded]}."
    if folded.startswith("kafka."):
        return f"Option {option!r} is for Kafka; docs/kafka-options.md has the options here."
    names = list(map(spark_name, known_names))
    hint = did_you_mean(option, names, f"; known: {', '.join(names)}.")
    return f"Unknown option {option!r} for format jetstream{hint}"


def refuse(options: Container[str], reasons: Mapping[str, str]) -> None:
    """Raise ConfigError for the first option that has a reason."""
    for name, reason in reasons.items():
        if name in options:
            raise ConfigError(f"is {reason}", option=name)


# -- the connection -----------------------------------------------------------------------------
#
# Its options are read on the driver and used on the executors. Texts are sent with the plan's
# readers, and are in no repr. Files (`credsFile`, `nkeySeedFile`, `tls…File`, `tlsCaDir`) must
# exist on every machine under the same path, and are read at each connect. Spark shows the options
# of a write in its plans, and masks those whose names contain secret, password, token or
# credential: all options for secrets have such names, and URLs with secrets are refused. A context
# of the `nats` command and the NATS_… variables exist on the driver only: the credentials files
# that they name are read there, and their contents are sent.


def servers(name: str, value: str) -> str:
    for url in parse_urls(value):
        if url.user is not None or url.token is not None:
            raise ConfigError(
                f"holds a user or token: give them in {named('user')} and {named('password')}, or "
                f"in {named('token')}, which Spark does not show.",
                option=name,
            )
    return value


def proxy(name: str, value: str) -> str:
    if parse_proxy(value).user is not None:
        raise ConfigError(
            "holds a user: name the proxy in a context of the nats command, whose "
            "secrets Spark does not show.",
            option=name,
        )
    return value

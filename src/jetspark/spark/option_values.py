"""The options of all formats: names without case, and texts that become values.

Names follow Spark's Kafka connector where the meaning is the same. Spark passes texts, and folds
the case of names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from jetspark.codecs.field_names import parse_renames
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.connection.proxy import parse_proxy
from jetspark.connection.urls import parse_urls
from jetspark.errors import ConfigError
from jetspark.kv_rules import check_filter
from jetspark.nearest import meant
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
_MOST = 2**63 - 1  # numbers go to Spark, which keeps them in a long
_MOST_SECONDS = 1e9  # 31 years: sockets refuse to wait for longer than some hundred


def read(convert: Callable[[str, str], T], name: str, value: str) -> T:
    """The value of an option, by `convert`. Raises ConfigError, which names the option."""
    try:
        return convert(name, value)
    except ConfigError as error:
        if f"Option {name!r}" in str(error):
            raise
        raise ConfigError(f"Option {name!r}: {error}") from None


def text(name: str, value: str) -> str:
    """The text, unchanged."""
    return value


def name(name: str, value: str) -> str:
    """A text that is not empty."""
    if not value.strip():
        raise ConfigError(f"Option {name!r} is empty.")
    return value


def whole(name: str, value: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(value.strip())
    except ValueError:
        number = 0
    if number > _MOST:
        raise ConfigError(f"Option {name!r} must be {_MOST} at most, not {value!r}.")
    if number < 1:
        raise ConfigError(f"Option {name!r} must be a whole number of at least 1, not {value!r}.")
    return number


def seconds(name: str, value: str) -> float:
    """A number of seconds above 0."""
    try:
        number = float(value.strip())
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_SECONDS:
        raise ConfigError(
            f"Option {name!r} must be a number of seconds above 0 and {_MOST_SECONDS:.0f} at most, "
            f"not {value!r}."
        )
    return number


def duration(name: str, value: str) -> float:
    """Seconds of "15m", "90s", "1h", or of a bare number of seconds."""
    match = _DURATION.fullmatch(value.strip().casefold())
    if match is None:
        raise ConfigError(f"Option {name!r} must be a time such as 15m or 90s, not {value!r}.")
    return float(match[1]) * _UNITS[match[2] or "s"]


def truth(name: str, value: str) -> bool:
    """true or false."""
    folded = value.strip().casefold()
    if folded not in ("true", "false"):
        raise ConfigError(f"Option {name!r} must be true or false, not {value!r}.")
    return folded == "true"


def word(*words: str) -> Callable[[str, str], str]:
    """One of these words."""

    def convert(name: str, value: str) -> str:
        if value not in words:
            raise ConfigError(f"Option {name!r} must be {', '.join(words)}, not {value!r}.")
        return value

    return convert


_NAME_IN_LIST: Final = re.compile(r"\s*`((?:[^`]|``)+)`\s*(?=,|$)|([^,]+)")


def join_names(names: Iterable[str]) -> str:
    """The text that `columns` reads as these names."""
    return ",".join(
        f"`{name.replace('`', '``')}`" if {*name} & {",", "`"} or name != name.strip() else name
        for name in names
    )


def columns(name: str, value: str) -> tuple[str, ...]:
    """Names, separated by commas, in the given order, each once.

    A name with a comma stands in backquotes, as in Spark SQL.
    """
    parts = (
        match[1].replace("``", "`") if match[1] else match[2].strip()
        for match in _NAME_IN_LIST.finditer(value)
    )
    found = tuple(part for part in parts if part)
    if not found:
        raise ConfigError(f"Option {name!r} is empty; leave it out, or name some.")
    for one in found:
        if found.count(one) > 1:
            raise ConfigError(f"Option {name!r} names {one!r} twice.")
    return found


def listed(check: Callable[[str], object]) -> Callable[[str, str], tuple[str, ...]]:
    """Names that all pass a check."""

    def convert(name: str, value: str) -> tuple[str, ...]:
        found = columns(name, value)
        for one in found:
            check(one)
        return found

    return convert


def _filters(check: Callable[[str], object]) -> Callable[[str, str], tuple[str, ...]]:
    def convert(name: str, value: str) -> tuple[str, ...]:
        found = listed(check)(name, value)
        check_disjoint(f"Option {name!r}", found)
        return found

    return convert


def stream(name: str, value: str) -> str:
    """The name of a stream."""
    return check_name("stream", value)


streams = listed(partial(check_name, "stream"))
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
            f"Option {name!r} is not a regular expression ({error}): {value!r}."
        ) from None
    return value


def renames(name: str, value: str) -> dict[str, str]:
    """Columns by the fields of payloads, `timestamp=sent_at`."""
    return parse_renames(f"Option {name!r}", value)


# -- names --------------------------------------------------------------------------------------

Table: TypeAlias = Mapping[str, tuple[str, Callable[[str, str], Any]]]
"""For the name of an option, the field of its value, and the function for its text."""

# A catalog table's own properties, which Spark passes in addition to the options.
_OF_CATALOG = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location"}
)
_OPTION_OF_TABLE = "option."  # the form in which a table keeps the options of its creation
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
_OF_CLIENT = {
    "sign": "executors cannot call it; use credentials, credsFile, or jwtToken with nkeySecret",
    "nkey": "executors cannot call sign; use nkeySecret or nkeySeedFile",
    "dialer": "it cannot be sent to executors; use proxy",
    "sslcontext": "it cannot be sent to executors; use the tls… options",
    "ssl_context": "it cannot be sent to executors; use the tls… options",
}
_MASKED = {
    "creds": "credentials",
    "nkeyseed": "nkeySecret",
    "nkey_seed": "nkeySecret",
    "jwt": "jwtToken",
}
"""The client's names that Spark would show in plans, and the masked ones to use."""
_HINTS = {
    **{name: f"of Spark's Kafka connector is {what}" for name, what in _OF_KAFKA.items()},
    **{name: f"is for the client only: {why}" for name, why in _OF_CLIENT.items()},
    **{
        name: f"is called {masked!r} here, a name that Spark masks"
        for name, masked in _MASKED.items()
    },
    "path": "is for files: load() without one, and the option 'stream', or 'backup' for a folder",
    "timestampasof": "is for tables with versions: 'endingTimestamp' here",
    "versionasof": "is for tables with versions: 'endingOffsets' here",
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
    """The values by the names in the table.

    `elsewhere`: names that have a meaning in another place, with that place; `of_spark`: names,
    folded, that Spark itself adds. Raises ConfigError for an unknown name, with the nearest known
    one, and for a bad value.
    """
    known = {name.casefold(): name for name in table}
    found = {}
    for given, value in _without_catalog(options):
        name = known.get(given.casefold())
        if name is not None:
            found[name] = read(table[name][1], name, value)
        elif given.casefold() not in of_spark:
            raise ConfigError(_unknown(given, list(table), elsewhere))
    return found


def fields_of(given: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """The values by the fields of the table. Raises ConfigError for two of one field."""
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, value in given.items():
        if name in table:
            field = table[name][0]
            if field in found:
                raise ConfigError(f"Give only one of the options {names[field]!r}, {name!r}.")
            found[field], names[field] = value, name
    return found


def _without_catalog(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The user's options; those given with the read come last, so they override the table's."""
    for given, value in options.items():
        if given.casefold().startswith(_OPTION_OF_TABLE):
            yield given[len(_OPTION_OF_TABLE) :], value
    for given, value in options.items():
        folded = given.casefold()
        if folded not in _OF_CATALOG and not folded.startswith(_OPTION_OF_TABLE):
            yield given, value


def _unknown(given: str, known: list[str], elsewhere: Mapping[str, str]) -> str:
    folded = given.casefold()
    for name, place in elsewhere.items():
        if name.casefold() == folded:
            return f"Option {name!r} is for {place}."
    if folded in _HINTS:
        return f"Option {given!r} {_HINTS[folded]}."
    if folded.startswith("kafka."):
        return f"Option {given!r} is for Kafka; docs/kafka-options.md has the options here."
    hint = meant(given, known, f"; known: {', '.join(known)}.")
    return f"Unknown option {given!r} for format jetstream{hint}"


def refuse(given: Container[str], reasons: Mapping[str, str]) -> None:
    """Raise ConfigError for the first option that has a reason."""
    for name, reason in reasons.items():
        if name in given:
            raise ConfigError(f"Option {name!r} is {reason}")


# -- the connection -----------------------------------------------------------------------------
#
# Its options are read on the driver and used on the executors. Texts are sent with the plan's
# readers, and are in no repr. Files (`credsFile`, `nkeySeedFile`, `tls…File`, `tlsCaDir`) must
# exist on every machine under the same path, and are read at each connect. Spark shows the options
# of a write in its plans, and masks those whose names contain secret, password, token or
# credential: all options for secrets have such names, and URLs with secrets are refused. A context
# of the `nats` command and the NATS_… variables exist on the driver only: the credentials files
# that they name are read there, and their contents are sent.


def _servers(name: str, value: str) -> str:
    for url in parse_urls(value):
        if url.user is not None or url.token is not None:
            raise ConfigError(
                f"Option {name!r} holds a user or token: give them in the options 'user' and "
                "'password', or 'token', which Spark does not show."
            )
    return value


def _proxy(name: str, value: str) -> str:
    if parse_proxy(value).user is not None:
        raise ConfigError(
            f"Option {name!r} holds a user: name the proxy in a context of the nats command, whose "
            "secrets Spark does not show."
        )
    return value


CONNECTION: Table = {
    "servers": ("servers", _servers),
    "context": ("context", text),
    "user": ("user", text),
    "password": ("password", text),
    "token": ("token", text),
    "credsFile": ("creds_file", text),
    "credentials": ("creds", text),
    "nkeySeedFile": ("nkey_seed_file", text),
    "nkeySecret": ("nkey_seed", text),
    "jwtToken": ("jwt", text),
    "proxy": ("proxy", _proxy),
    "tls": ("tls", truth),
    "tlsFirst": ("tls_first", truth),
    "tlsCaFile": ("tls_ca_file", text),
    "tlsCaDir": ("tls_ca_dir", text),
    "tlsCertFile": ("tls_cert_file", text),
    "tlsKeyFile": ("tls_key_file", text),
    "tlsKeyPassword": ("tls_key_password", text),
    "tlsHostname": ("tls_hostname", text),
    "connectTimeout": ("connect_timeout", seconds),
    "inboxPrefix": ("inbox_prefix", subject),
    "jetstreamDomain": ("jetstream_domain", lambda name, value: check_name("domain", value)),
    "jetstreamApiPrefix": (
        "jetstream_api_prefix",
        lambda name, value: subject(name, value.removesuffix(".")),
    ),
}
"""The fields are those of ConnectOptions, and `context`."""

_HERE = {field: name for name, (field, _) in CONNECTION.items() if field != name}
# Not within quotation marks, which have the user's text.
_CLIENT_NAME = re.compile(rf"(?<!['\"\w])(?:{'|'.join(_HERE)})(?!['\"\w])")


def with_names_of_spark(error: ConfigError) -> ConfigError:
    """The client's error, with the names of options in Spark."""
    said = str(error)
    here = _CLIENT_NAME.sub(lambda found: _HERE[found[0]], said)
    return error if here == said else ConfigError(here)


def connection_options(given: Mapping[str, Any]) -> ConnectOptions:
    """The connection's options among those given. Raises ConfigError."""
    if {"jetstreamDomain", "jetstreamApiPrefix"} <= given.keys():
        raise ConfigError("Give either 'jetstreamDomain' or 'jetstreamApiPrefix', not both.")
    try:
        options = make_options(**fields_of(given, CONNECTION))
        named_here = {"credsFile", "nkeySeedFile"} & given.keys()
        return options if named_here else options.with_contents()
    except ConfigError as error:
        raise with_names_of_spark(error) from None

"""Parsers of the texts of options: functions of the option's name and its text.

Each raises ConfigError for a text that the option does not take. An error of the checks that they
share with the client names no option; `parse_option` adds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from jetspark.connection.proxy import parse_proxy
from jetspark.connection.urls import parse_urls
from jetspark.errors import ConfigError, named, safe_repr
from jetspark.kv_rules import check_filter
from jetspark.subjects import (
    check_disjoint,
    check_name,
    check_publish_subject,
    check_subscribe_subject,
)

T = TypeVar("T")
Parser: TypeAlias = Callable[[str, str], T]
Parsers: TypeAlias = Mapping[str, Parser[Any]]
"""The parser of each option, by the options' names in Python."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_COUNT = re.compile(r"\d{1,15}")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_LONG = 2**63 - 1  # numbers go to Spark, which keeps them in a long
_MAX_SECONDS = 1e9  # 31 years: sockets refuse to wait for longer than some hundred


def parse_option(parser: Parser[T], name: str, text: str) -> T:
    """Parse the text of an option. Raises ConfigError, which always names the option.

    `parser` may use checks that do not know the option, so their errors get its name here.
    """
    try:
        return parser(name, text)
    except ConfigError as error:
        if error.option is not None:  # it has a name already
            raise
        # The option's name is put before the message.
        raise ConfigError(f": {error.message}", option=name) from None


def keep_text(name: str, text: str) -> str:
    """Take the text of an option unchanged; it may be empty."""
    return text


def parse_text(name: str, text: str) -> str:
    """Take the text of an option unchanged. Raises ConfigError if it is empty."""
    if not text.strip():
        raise ConfigError("is empty.", option=name)
    return text


def parse_positive_int(name: str, text: str) -> int:
    """Parse an option as a whole number of at least 1, which fits into a long of Spark."""
    return _parse_int(name, text, at_least=1)


def parse_non_negative_int(name: str, text: str) -> int:
    """Parse an option as a whole number of at least 0."""
    return _parse_int(name, text, at_least=0)


def _parse_int(name: str, text: str, *, at_least: int) -> int:
    """Parse an option as a whole number from `at_least` to what fits into a long of Spark."""
    try:
        number = int(text.strip())
    except ValueError:
        number = at_least - 1
    if number > _MAX_LONG:
        raise ConfigError(f"must be {_MAX_LONG} at most", option=name, value=text)
    if number < at_least:
        raise ConfigError(f"must be a whole number of at least {at_least}", option=name, value=text)
    return number


def parse_seconds(name: str, text: str) -> float:
    """Parse an option as a number of seconds above 0."""
    try:
        number = float(text.strip())
    except ValueError:
        number = 0.0
    if not 0 < number <= _MAX_SECONDS:
        problem = f"must be a number of seconds above 0 and {_MAX_SECONDS:.0f} at most"
        raise ConfigError(problem, option=name, value=text)
    return number


def parse_duration(name: str, text: str) -> float:
    """Parse a duration such as "15m", or a bare number of seconds; returns the seconds."""
    match = _DURATION.fullmatch(text.strip().casefold())
    if match is None:
        raise ConfigError("must be a time such as 15m or 90s", option=name, value=text)
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if seconds > _MAX_SECONDS:
        raise ConfigError(f"must be {_MAX_SECONDS:.0f} seconds at most", option=name, value=text)
    return seconds


def parse_keep(text: str) -> int | float:
    """Parse what to keep: a number of messages (int), or seconds (float). Raises ConfigError."""
    text = text.strip().casefold()
    if _COUNT.fullmatch(text):
        return int(text)
    if not text[-1:].isalpha() or _DURATION.fullmatch(text) is None:
        raise ConfigError(
            "must be a time such as 7d or 12h, or a number of messages", option="keep", value=text
        )
    return parse_duration("keep", text)


def parse_bool(name: str, text: str) -> bool:
    """Parse an option as a boolean: true or false, in any case."""
    folded = text.strip().casefold()
    if folded not in ("true", "false"):
        raise ConfigError("must be true or false", option=name, value=text)
    return folded == "true"


def one_of(*words: str) -> Parser[str]:
    """Make a parser that takes exactly one of these words."""

    def parse(name: str, text: str) -> str:
        """Take the text if it is one of the words."""
        if text not in words:
            raise ConfigError(f"must be {', '.join(words)}", option=name, value=text)
        return text

    return parse


_NAME_IN_LIST: Final = re.compile(r"\s*`((?:[^`]|``)+)`\s*(?=,|$)|([^,]+)")


def join_names(names: Iterable[str]) -> str:
    """Write names as the text of an option, separated by commas: `split_names` reads them back.

    A name that would be read in another way stands in backquotes.
    """
    return ",".join(
        f"`{name.replace('`', '``')}`" if {*name} & {",", "`"} or name != name.strip() else name
        for name in names
    )


def split_names(text: str) -> tuple[str, ...]:
    """Split a text into names at its commas, without empty ones.

    A name with a comma stands in backquotes, as in Spark SQL, where `` stands for one of them.
    """
    names = (
        match[1].replace("``", "`") if match[1] else match[2].strip()
        for match in _NAME_IN_LIST.finditer(text)
    )
    return tuple(filter(None, names))


def parse_columns(name: str, text: str) -> tuple[str, ...]:
    """Parse an option as a list of names, separated by commas, of which none occurs twice."""
    columns = split_names(text)
    if not columns:
        raise ConfigError("is empty; leave it out, or name some.", option=name)
    for column in columns:
        if columns.count(column) > 1:
            raise ConfigError(f"names {column!r} twice.", option=name)
    return columns


def _parse_filters(
    name: str, text: str, check: Callable[[str], object], *, disjoint: bool
) -> tuple[str, ...]:
    """Parse an option as a list of subjects or other names, separated by commas.

    `check`: raises an error for a name that is not valid; `disjoint`: the names may have wildcards,
    and it is an error if one message could match two of them.
    """
    filters = parse_columns(name, text)
    for item in filters:
        check(item)
    if disjoint:
        check_disjoint(named(name), filters)
    return filters


parse_streams = partial(_parse_filters, check=partial(check_name, "stream"), disjoint=False)
parse_subjects = partial(_parse_filters, check=check_subscribe_subject, disjoint=True)
parse_keys = partial(_parse_filters, check=check_filter, disjoint=True)


def parse_subject(name: str, text: str) -> str:
    """Take the text of an option as a subject to publish to, without wildcards."""
    check_publish_subject(text)
    return text


def parse_pattern(name: str, text: str) -> str:
    """Take the text of an option as a regular expression. Raises ConfigError for a wrong one."""
    try:
        re.compile(text)
    except re.error as error:
        problem = f"is not a regular expression ({error}): {safe_repr(text)}."
        raise ConfigError(problem, option=name) from None
    return text


def parse_renames(name: str, text: str) -> dict[str, str]:
    """Parse `field=column,…`, as timestamp=sent_at: columns' names by those of payloads' fields."""
    from jetspark.payloads import field_names  # it loads PyArrow

    return field_names.parse_renames(named(name), text)


# The options of the connection are read on the driver and used on the executors. Texts are sent
# with the plan's readers, and are in no repr. Files (`credsFile`, `nkeySeedFile`, `tls…File`,
# `tlsCaDir`) must exist on every machine under the same path, and are read at each connect. Spark
# shows the options of a write in its plans, and masks those whose names contain secret, password,
# token or credential: all options for secrets have such names, and URLs with secrets are refused. A
# context of the `nats` command and the NATS_… variables exist on the driver only: the credentials
# files that they name are read there, and their contents are sent.


def parse_servers(name: str, text: str) -> str:
    """Take the text of an option as URLs of servers, without user, password and token.

    Spark shows URLs in its plans.
    """
    for url in parse_urls(text):
        if url.user is not None or url.token is not None:
            raise ConfigError(
                f"holds a user or token: give them in {named('user')} and {named('password')}, or "
                f"in {named('token')}, which Spark does not show.",
                option=name,
            )
    return text


def parse_proxy_url(name: str, text: str) -> str:
    """Take the text of an option as the URL of a proxy without a user: Spark shows URLs."""
    if parse_proxy(text).user is not None:
        raise ConfigError(
            "holds a user: name the proxy in a context of the nats command, whose "
            "secrets Spark does not show.",
            option=name,
        )
    return text

"""The server that a command connects to, and other options that commands share."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from jetspark.connection.urls import parse_urls
from jetspark.errors import ConfigError
from jetspark.timestamps import NANOSECONDS, datetime_to_ns, format_isotime, parse_isotime

_AGE = re.compile(r"-(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def where(server: str | None, context: str | None) -> dict[str, Any]:
    """The connection options; empty for those of the environment. Raises ConfigError for both."""
    if server is not None and context is not None:
        raise ConfigError("Give either --server or --context.")
    if context is not None:
        return {"context": context}
    if server is not None and not server.strip():
        raise ConfigError("--server is empty: write nats://host:4222, or leave it out.")
    return {} if server is None else {"servers": server}


def spark_where(
    server: str | None, context: str | None, further: Iterable[str] = ()
) -> dict[str, str]:
    """The options of Spark's format; a user or token in the URL becomes one of its own.

    Raises ConfigError for both, for URLs with different credentials, and for credentials that the
    `further` options are, too.
    """
    options = where(server, context)
    if "servers" not in options:
        return options
    urls = parse_urls(options["servers"])
    credentials = {(url.user, url.password, url.token) for url in urls}
    if len(credentials) > 1:
        raise ConfigError("All servers need the same user and password, or token.")
    given = zip(("user", "password", "token"), credentials.pop(), strict=True)
    logins = {name: value for name, value in given if value is not None}
    for name in further:
        if name.casefold() in logins:
            raise ConfigError(
                f"Give the {name.casefold()} either in --server or as --option {name}."
            )
    return {"servers": ",".join(map(str, urls))} | logins


def starting(text: str) -> dict[str, str]:
    """Where to begin reading, as an option of Spark's format. Raises ConfigError."""
    bare = text.strip()
    if bare.casefold() in ("earliest", "latest") or bare.isdecimal() or bare.startswith("{"):
        return {"startingOffsets": bare}
    if age := _AGE.fullmatch(bare.casefold()):
        ago = int(float(age[1]) * _UNITS[age[2]] * NANOSECONDS)
        return _from(time.time_ns() - ago)
    try:
        return _from(_moment(bare))
    except ValueError:
        raise ConfigError(
            f"--start {text!r}: write earliest, latest, a sequence, a time such as "
            "2026-01-31T12:00:00Z, or how long ago, such as -90m or -2d."
        ) from None


def _from(ns: int) -> dict[str, str]:
    start = {"startingTimestamp": format_isotime(ns)}
    if ns <= time.time_ns():
        # Without messages since then, all that come are later than that: begin at the end. Before
        # a time to come there may be others first.
        start["startingOffsetsByTimestampStrategy"] = "latest"
    return start


def _moment(text: str) -> int:
    """Nanoseconds since the epoch of a time with a zone, or a local one. Raises ValueError."""
    try:
        return parse_isotime(text)
    except ValueError:
        return datetime_to_ns(datetime.fromisoformat(text).astimezone())


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """A dict of strings name=value. Raises ConfigError."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {text!r}: write name=value.")
        found[name.strip()] = value
    return found

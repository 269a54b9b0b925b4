"""Which server a command talks to, and other options that commands share."""

from __future__ import annotations

from typing import Any

from jetspark.connection.urls import parse_urls
from jetspark.errors import ConfigError


def where(server: str | None, context: str | None) -> dict[str, Any]:
    """The connection options; none for "as the environment says". Raises ConfigError for both."""
    if server is not None and context is not None:
        raise ConfigError("Give either --server or --context.")
    if context is not None:
        return {"context": context}
    return {} if server is None else {"servers": server}


def spark_where(server: str | None, context: str | None) -> dict[str, str]:
    """The options of Spark's format; a user or token in the URL becomes one of its own.

    Raises ConfigError for both, and for URLs with different credentials.
    """
    options = where(server, context)
    if "servers" not in options:
        return options
    urls = parse_urls(options["servers"])
    credentials = {(url.user, url.password, url.token) for url in urls}
    if len(credentials) > 1:
        raise ConfigError("All servers need the same user and password, or token.")
    given = zip(("user", "password", "token"), credentials.pop(), strict=True)
    return {"servers": ",".join(map(str, urls))} | {k: v for k, v in given if v is not None}


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Of texts name=value. Raises ConfigError."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {text!r}: write name=value.")
        found[name.strip()] = value
    return found

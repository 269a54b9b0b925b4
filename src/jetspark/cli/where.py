"""Which server a command talks to, and other options that commands share."""

from __future__ import annotations

from typing import Any

from jetspark.errors import ConfigError


def where(server: str | None, context: str | None) -> dict[str, Any]:
    """The connection options; none for "as the environment says". Raises ConfigError for both."""
    if server is not None and context is not None:
        raise ConfigError("Give either --server or --context.")
    if context is not None:
        return {"context": context}
    return {} if server is None else {"servers": server}


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Of texts name=value. Raises ConfigError."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {text!r}: write name=value.")
        found[name.strip()] = value
    return found

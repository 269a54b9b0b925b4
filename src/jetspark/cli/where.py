"""Which server a command talks to."""

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

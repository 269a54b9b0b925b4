"""The stream configuration of an object store (ADR-20).

Contract: pure. ConfigError says what cannot work, before anything is sent. Only given options are
set, so that an update keeps the rest; `new_store` adds what makes a stream a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetspark.errors import ConfigError
from jetspark.jetstream.documents import StreamConfig
from jetspark.jetstream.documents.configuration import config_to_wire
from jetspark.jetstream.documents.document import check_names, from_wire
from jetspark.jetstream.streams.backing import (
    BackedConfig,
    BackedOptions,
    backed_options_of,
    check_backed,
    stream_options_of,
)


class ObjectStoreConfig(BackedConfig, frozen=True, kw_only=True):
    """An object store's configuration. None: not given (the default, or unchanged)."""

    max_bytes: int | None = None
    """Most bytes of the store, which refuses objects when full; -1 (the default): no limit."""


class ObjectStoreOptions(BackedOptions, total=False):
    """The fields of ObjectStoreConfig as options, for type checkers."""

    max_bytes: int | None


def store_config(config: ObjectStoreConfig | None, options: Mapping[str, Any]) -> ObjectStoreConfig:
    """A caller's arguments as one checked configuration. Raises ConfigError."""
    check_names(ObjectStoreConfig, options)
    wanted = from_wire(ObjectStoreConfig, config_to_wire(ObjectStoreConfig, config, options))
    check_backed(wanted)
    if wanted.max_bytes is not None and wanted.max_bytes < 1 and wanted.max_bytes != -1:
        raise ConfigError("max_bytes must be at least 1, or -1 for no limit.")
    return wanted


def stream_options(wanted: ObjectStoreConfig) -> dict[str, Any]:
    """The stream's options with the same meaning."""
    return stream_options_of(wanted, max_bytes=wanted.max_bytes)


def new_store(name: str, wanted: ObjectStoreConfig) -> dict[str, Any]:
    """The options of the stream of a new store."""
    return {
        "subjects": [f"$O.{name}.C.>", f"$O.{name}.M.>"],
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        **stream_options(wanted),
    }


def config_of(stream: StreamConfig) -> ObjectStoreConfig:
    """The store's configuration, read from its stream."""
    return ObjectStoreConfig(max_bytes=stream.max_bytes, **backed_options_of(stream))

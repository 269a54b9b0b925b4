"""How an object store becomes a stream: ADR-20's table.

Contract: pure. What cannot work raises ConfigError here, before anything is sent. Only what was
said is written, so that an update keeps the rest; `new_store` adds what makes a stream a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from jetspark.errors import ConfigError
from jetspark.jetstream.documents import Placement, StreamConfig
from jetspark.jetstream.documents.document import (
    Document,
    Span,
    check_names,
    config_to_wire,
    from_wire,
)

_DUPLICATES: Final = timedelta(minutes=2)


class ObjectStoreConfig(Document, frozen=True, kw_only=True):
    """An object store's configuration. None: not said (the default, or the value as it is)."""

    description: str | None = None
    ttl: Span | None = None
    """How long an object is kept; 0 for ever, the default."""
    max_bytes: int | None = None
    """Bytes of the whole store; a full one refuses objects. -1 for no limit, the default."""
    storage: str | None = None
    """A StorageType: "file" (default) or "memory"."""
    replicas: int | None = None
    """Servers that hold the store, 1 (default) to 5."""
    placement: Placement | None = None
    compression: bool | None = None
    """Whether files are compressed (2.10)."""
    metadata: dict[str, str] | None = None
    """Whatever you want to note (2.10)."""


def store_config(config: ObjectStoreConfig | None, options: Mapping[str, Any]) -> ObjectStoreConfig:
    """What a caller gave as a checked whole. Raises ConfigError."""
    check_names(ObjectStoreConfig, options)
    said = from_wire(ObjectStoreConfig, config_to_wire(ObjectStoreConfig, config, options))
    if said.ttl is not None and said.ttl < timedelta(0):
        raise ConfigError("ttl cannot be negative.")
    if said.max_bytes is not None and said.max_bytes < 1 and said.max_bytes != -1:
        raise ConfigError("max_bytes is at least 1, or -1 for no limit.")
    if said.replicas is not None and not 1 <= said.replicas <= 5:
        raise ConfigError("replicas is from 1 to 5.")
    return said


def stream_options(said: ObjectStoreConfig) -> dict[str, Any]:
    """The stream's options that say the same."""
    options: dict[str, Any] = {
        "description": said.description,
        "max_age": said.ttl,
        "max_bytes": said.max_bytes,
        "storage": said.storage,
        "num_replicas": said.replicas,
        "placement": said.placement,
        "metadata": said.metadata,
    }
    if said.ttl is not None:
        # A server refuses a window for duplicates that is longer than the age.
        options["duplicate_window"] = min(said.ttl, _DUPLICATES) if said.ttl else _DUPLICATES
    if said.compression is not None:
        options["compression"] = "s2" if said.compression else "none"
    return {name: value for name, value in options.items() if value is not None}


def new_store(name: str, said: ObjectStoreConfig) -> dict[str, Any]:
    """All options of the stream of a new store."""
    return {
        "subjects": [f"$O.{name}.C.>", f"$O.{name}.M.>"],
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        **stream_options(said),
    }


def said_by(stream: StreamConfig) -> ObjectStoreConfig:
    """The store's configuration, read back from its stream."""
    return ObjectStoreConfig(
        description=stream.description,
        ttl=stream.max_age,
        max_bytes=stream.max_bytes,
        storage=stream.storage,
        replicas=stream.num_replicas,
        placement=stream.placement,
        compression=stream.compression not in (None, "none"),
        metadata=stream.metadata,
    )

"""Schema registries: Synadia's protocol for NATS, and Confluent's over HTTP.

`Client.schema_registry` asks one over NATS, `jetspark registry serve` is one. The client is
imported when it is used: Spark's workers, which look schemas up, have no event loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jetspark.registry.documents import Schema, SchemaVersion

if TYPE_CHECKING:
    from jetspark.registry.client import SchemaRegistry

__all__ = ["Schema", "SchemaRegistry", "SchemaVersion"]


def __getattr__(name: str) -> Any:
    if name == "SchemaRegistry":
        return import_module("jetspark.registry.client").SchemaRegistry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

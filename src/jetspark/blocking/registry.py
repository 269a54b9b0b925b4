"""Schema registries without async."""

from __future__ import annotations

from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.twin import Twin, awaits
from jetspark.registry.client import SchemaRegistry as AsyncSchemaRegistry

__all__ = ["SchemaRegistry"]


@twin_of(AsyncSchemaRegistry)
class SchemaRegistry(Twin):
    """The schema registry of this account, returned by `Client.schema_registry`."""

    add = awaits(AsyncSchemaRegistry.add)
    get = awaits(AsyncSchemaRegistry.get)
    update = awaits(AsyncSchemaRegistry.update)
    schemas = awaits(AsyncSchemaRegistry.schemas)
    remove = awaits(AsyncSchemaRegistry.remove)

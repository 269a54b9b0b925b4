"""Schema registries without async."""

from __future__ import annotations

from jetspark.blocking.twin import Twin, awaits, twin_of
from jetspark.registry.client import SchemaRegistry as AsyncSchemaRegistry

__all__ = ["SchemaRegistry"]


@twin_of(AsyncSchemaRegistry)
class SchemaRegistry(Twin):
    add = awaits(AsyncSchemaRegistry.add)
    get = awaits(AsyncSchemaRegistry.get)
    update = awaits(AsyncSchemaRegistry.update)
    schemas = awaits(AsyncSchemaRegistry.schemas)
    remove = awaits(AsyncSchemaRegistry.remove)

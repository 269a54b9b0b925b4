"""Schema registries without async."""

from __future__ import annotations

from jetspark.blocking.iterators import Listing
from jetspark.blocking.twin import Twin, awaits, makes, twin_of
from jetspark.registry.client import SchemaRegistry as AsyncSchemaRegistry

__all__ = ["SchemaRegistry"]


@twin_of(AsyncSchemaRegistry)
class SchemaRegistry(Twin):
    add = awaits(AsyncSchemaRegistry.add)
    get = awaits(AsyncSchemaRegistry.get)
    update = awaits(AsyncSchemaRegistry.update)
    schemas = makes(AsyncSchemaRegistry.schemas, Listing)
    remove = awaits(AsyncSchemaRegistry.remove)

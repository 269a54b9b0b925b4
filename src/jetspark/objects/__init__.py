"""Object stores over JetStream (ADR-20), built on the public classes of `jetspark.jetstream`.

`JetStream.create_object_store` creates one, `JetStream.object_store` binds to one.
"""

from jetspark.objects.info import (
    ObjectInfo,
    ObjectLink,
    ObjectOptions,
    ObjectStoreConfig,
    ObjectStoreStatus,
)
from jetspark.objects.reader import ObjectReader, ObjectWatcher
from jetspark.objects.store import ObjectStore, ObjectStoreCalls

__all__ = [
    "ObjectInfo",
    "ObjectLink",
    "ObjectOptions",
    "ObjectReader",
    "ObjectStore",
    "ObjectStoreCalls",
    "ObjectStoreConfig",
    "ObjectStoreStatus",
    "ObjectWatcher",
]

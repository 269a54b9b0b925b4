"""Object stores over JetStream (ADR-20), built on the public classes of `jetspark.jetstream`.

`JetStream.create_object_store` creates one, `JetStream.object_store` binds to one.
"""

from jetspark.objects.calls import ObjectStoreCalls
from jetspark.objects.config import ObjectStoreConfig
from jetspark.objects.info import ObjectInfo, ObjectLink, ObjectOptions, ObjectStoreStatus
from jetspark.objects.reader import ObjectReader
from jetspark.objects.store import ObjectStore
from jetspark.objects.watch import ObjectWatcher

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

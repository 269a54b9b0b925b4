"""Object stores over JetStream (ADR-20), built on the public classes of `jetspark.jetstream`.

`JetStream.create_object_store` creates one, `JetStream.object_store` binds to one.
"""

from jetspark.objects.info import ObjectInfo as ObjectInfo
from jetspark.objects.info import ObjectLink as ObjectLink
from jetspark.objects.info import ObjectOptions as ObjectOptions
from jetspark.objects.info import ObjectStoreConfig as ObjectStoreConfig
from jetspark.objects.info import ObjectStoreStatus as ObjectStoreStatus
from jetspark.objects.reader import ObjectReader as ObjectReader
from jetspark.objects.reader import ObjectWatcher as ObjectWatcher
from jetspark.objects.store import ObjectStore as ObjectStore
from jetspark.objects.store import ObjectStoreCalls as ObjectStoreCalls

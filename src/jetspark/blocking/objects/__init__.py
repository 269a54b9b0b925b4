"""Object stores without async: the twins of `jetspark.objects`."""

from jetspark.blocking.objects.reader import ObjectReader
from jetspark.blocking.objects.store import ObjectStore
from jetspark.blocking.objects.watch import ObjectWatcher

__all__ = ["ObjectReader", "ObjectStore", "ObjectWatcher"]

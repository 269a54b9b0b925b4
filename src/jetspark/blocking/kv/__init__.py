"""Key-Value buckets without async: the twins of `jetspark.kv`."""

from jetspark.blocking.kv.bucket import Bucket
from jetspark.blocking.kv.election import Election
from jetspark.blocking.kv.live import LiveBucket
from jetspark.blocking.kv.lock import Lock
from jetspark.blocking.kv.read_only import ReadOnlyBucket
from jetspark.blocking.kv.watch import Watcher
from jetspark.blocking.listing import Listing

__all__ = ["Bucket", "Election", "Listing", "LiveBucket", "Lock", "ReadOnlyBucket", "Watcher"]

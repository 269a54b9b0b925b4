"""Key-Value buckets over JetStream (ADR-8), built on the public classes of `jetspark.jetstream`.

`JetStream.create_bucket` creates one, `JetStream.bucket` binds to one.
"""

from jetspark.jetstream.listing import Listing
from jetspark.kv.bucket import Bucket
from jetspark.kv.calls import BucketCalls
from jetspark.kv.codecs import (
    Base64Codec,
    FilterCodec,
    KeyChain,
    KeyCodec,
    NoCodec,
    PathCodec,
    ValueChain,
    ValueCodec,
    ZlibCodec,
)
from jetspark.kv.config import BucketConfig, Origin
from jetspark.kv.election import Election, ElectionState
from jetspark.kv.entries import Entry, Snapshot
from jetspark.kv.live import LiveBucket
from jetspark.kv.lock import Lock
from jetspark.kv.lock_key import LockRecord
from jetspark.kv.read_only import ReadOnlyBucket
from jetspark.kv.status import BucketStatus
from jetspark.kv.watch import Watcher
from jetspark.kv_rules import Operation

__all__ = [
    "Base64Codec",
    "Bucket",
    "BucketCalls",
    "BucketConfig",
    "BucketStatus",
    "Election",
    "ElectionState",
    "Entry",
    "FilterCodec",
    "KeyChain",
    "KeyCodec",
    "Listing",
    "LiveBucket",
    "Lock",
    "LockRecord",
    "NoCodec",
    "Operation",
    "Origin",
    "PathCodec",
    "ReadOnlyBucket",
    "Snapshot",
    "ValueChain",
    "ValueCodec",
    "Watcher",
    "ZlibCodec",
]

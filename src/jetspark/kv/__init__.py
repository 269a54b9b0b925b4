"""Key-Value buckets over JetStream (ADR-8), built on the public classes of `jetspark.jetstream`.

`JetStream.create_bucket` creates one, `JetStream.bucket` binds to one.
"""

from jetspark.client.listing import Listing
from jetspark.kv.bucket import Bucket, BucketCalls, ReadOnlyBucket
from jetspark.kv.codecs import (
    Base64Codec,
    Entry,
    FilterCodec,
    KeyChain,
    KeyCodec,
    NoCodec,
    PathCodec,
    Snapshot,
    ValueChain,
    ValueCodec,
    ZlibCodec,
)
from jetspark.kv.config import BucketConfig, BucketStatus, Origin
from jetspark.kv.lock import Election, ElectionState, Lock, LockRecord
from jetspark.kv.watch import LiveBucket, Watcher
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

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
from jetspark.kv.entries import Entry
from jetspark.kv.live import LiveBucket
from jetspark.kv.status import BucketStatus
from jetspark.kv.watch import Watcher
from jetspark.kv_rules import Operation

__all__ = [
    "Base64Codec",
    "Bucket",
    "BucketCalls",
    "BucketConfig",
    "BucketStatus",
    "Entry",
    "FilterCodec",
    "KeyChain",
    "KeyCodec",
    "Listing",
    "LiveBucket",
    "NoCodec",
    "Operation",
    "Origin",
    "PathCodec",
    "ValueChain",
    "ValueCodec",
    "Watcher",
    "ZlibCodec",
]

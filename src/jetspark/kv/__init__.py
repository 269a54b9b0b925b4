"""Key-Value buckets over JetStream (ADR-8), built on the public classes of `jetspark.jetstream`.

`JetStream.create_bucket` creates one, `JetStream.bucket` binds to one.
"""

from jetspark.client.listing import Listing as Listing
from jetspark.kv.bucket import Bucket as Bucket
from jetspark.kv.bucket import BucketCalls as BucketCalls
from jetspark.kv.bucket import ReadOnlyBucket as ReadOnlyBucket
from jetspark.kv.codecs import Base64Codec as Base64Codec
from jetspark.kv.codecs import Entry as Entry
from jetspark.kv.codecs import FilterCodec as FilterCodec
from jetspark.kv.codecs import KeyChain as KeyChain
from jetspark.kv.codecs import KeyCodec as KeyCodec
from jetspark.kv.codecs import NoCodec as NoCodec
from jetspark.kv.codecs import PathCodec as PathCodec
from jetspark.kv.codecs import Snapshot as Snapshot
from jetspark.kv.codecs import ValueChain as ValueChain
from jetspark.kv.codecs import ValueCodec as ValueCodec
from jetspark.kv.codecs import ZlibCodec as ZlibCodec
from jetspark.kv.config import BucketConfig as BucketConfig
from jetspark.kv.config import BucketStatus as BucketStatus
from jetspark.kv.config import Origin as Origin
from jetspark.kv.lock import Election as Election
from jetspark.kv.lock import ElectionState as ElectionState
from jetspark.kv.lock import Lock as Lock
from jetspark.kv.lock import LockRecord as LockRecord
from jetspark.kv.watch import LiveBucket as LiveBucket
from jetspark.kv.watch import Watcher as Watcher
from jetspark.kv_rules import Operation as Operation

"""A bucket: get, put, delete, list and watch keys, without async; see `jetspark.kv.bucket`."""

from __future__ import annotations

from jetspark.blocking.generated.kv.bucket import GeneratedBucket
from jetspark.blocking.loop_thread import LoopThread
from jetspark.kv.bucket import Bucket as AsyncBucket


class Bucket(GeneratedBucket):
    """A Key-Value bucket, as returned by `JetStream.bucket` and `JetStream.create_bucket`.

    For the errors of every call see `jetspark.kv.Bucket`.
    """

    def __init__(self, thread: LoopThread, inner: AsyncBucket) -> None:
        super().__init__(thread, inner)

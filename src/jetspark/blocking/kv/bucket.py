"""A bucket: get, put, delete, list and watch keys, without async; see `jetspark.kv.bucket`."""

from __future__ import annotations

from typing import Self

from jetspark.arguments import spelt
from jetspark.blocking.generated.kv.bucket import GeneratedBucket
from jetspark.blocking.loop_thread import LoopThread
from jetspark.kv.bucket import Bucket as AsyncBucket
from jetspark.kv.codecs import KeyCodec, ValueCodec


class Bucket(GeneratedBucket):
    """A Key-Value bucket, as returned by `JetStream.bucket` and `JetStream.create_bucket`.

    For the errors of every call see `jetspark.kv.Bucket`.
    """

    def __init__(self, thread: LoopThread, inner: AsyncBucket) -> None:
        self._thread = thread
        self._inner = inner

    @spelt
    def with_codecs(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None
    ) -> Self:
        return type(self)(self._thread, self._inner.with_codecs(keys=keys, values=values))

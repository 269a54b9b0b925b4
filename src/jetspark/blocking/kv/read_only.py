"""Reading a bucket: get, list and watch keys, without async; see `jetspark.kv.bucket`."""

from __future__ import annotations

from typing import Self

from jetspark.arguments import spelt
from jetspark.blocking.generated.kv.read_only import GeneratedReadOnlyBucket
from jetspark.blocking.loop_thread import LoopThread
from jetspark.kv.bucket import ReadOnlyBucket as AsyncReadOnlyBucket
from jetspark.kv.codecs import KeyCodec, ValueCodec


class ReadOnlyBucket(GeneratedReadOnlyBucket):
    """A Key-Value bucket that can only be read, as returned by `Bucket.read_only`.

    For the errors of every call see `jetspark.kv.Bucket`.
    """

    def __init__(self, thread: LoopThread, inner: AsyncReadOnlyBucket) -> None:
        self._thread = thread
        self._inner = inner

    @spelt
    def with_codecs(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None
    ) -> Self:
        return type(self)(self._thread, self._inner.with_codecs(keys=keys, values=values))

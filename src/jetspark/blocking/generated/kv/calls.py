# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jetspark.blocking.kv.bucket import Bucket
from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.documents import Source, StreamInfo
from jetspark.kv.config import BucketConfig, Origin
from jetspark.kv.status import BucketStatus


class GeneratedBucketCalls:
    """The calls of `BucketCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def create_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Any
    ) -> Bucket:
        """Make a bucket. Options are the fields of BucketConfig.

        One that exists with the same configuration is bound; with another one, NameInUseError.
        """
        return Bucket(
            self._thread, self._thread.run(self._inner.create_bucket, name, config, **options)
        )

    def update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Any
    ) -> Bucket:
        """Change a bucket; what is not named keeps its value. Raises BucketNotFoundError."""
        return Bucket(
            self._thread, self._thread.run(self._inner.update_bucket, name, config, **options)
        )

    def create_or_update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Any
    ) -> Bucket:
        """update_bucket, or create_bucket when there is none."""
        return Bucket(
            self._thread,
            self._thread.run(self._inner.create_or_update_bucket, name, config, **options),
        )

    def create_bucket_aggregate(
        self,
        name: str,
        origins: Iterable[Origin | Source],
        config: BucketConfig | None = None,
        /,
        *,
        writable: bool = True,
        **options: Any,
    ) -> Bucket:
        """Make a bucket that also takes the entries of other buckets (2.10).

        `origins`: buckets, here or in other domains and accounts. A Source with subject transforms
        of its own is taken as it is, so any stream may be one. `writable`: whether it takes writes
        of its own. Options are the fields of BucketConfig, but no mirror_name.
        """
        return Bucket(
            self._thread,
            self._thread.run(
                self._inner.create_bucket_aggregate,
                name,
                origins,
                config,
                writable=writable,
                **options,
            ),
        )

    def create_bucket_mirror(
        self, name: str, origin: Origin, config: BucketConfig | None = None, /, **options: Any
    ) -> StreamInfo:
        """Make a copy of a bucket that answers its direct gets, nearer to some readers.

        It is a stream of this name and no bucket: nobody binds to it, and `delete_stream` ends it.
        Options are the fields of BucketConfig, but no mirror_name. Filters of keys need 2.10.
        """
        return self._thread.run(self._inner.create_bucket_mirror, name, origin, config, **options)

    def bucket(self, name: str) -> Bucket:
        """Bind to a bucket that exists. Raises BucketNotFoundError."""
        return Bucket(self._thread, self._thread.run(self._inner.bucket, name))

    def delete_bucket(self, name: str) -> None:
        """Delete a bucket with all it holds. Raises BucketNotFoundError."""
        self._thread.run(self._inner.delete_bucket, name)

    def empty_bucket(self, name: str) -> int:
        """Delete all entries, and no more; returns how many there were.

        Revisions go on from where they were. Watchers are not told. Raises BucketNotFoundError.
        """
        return self._thread.run(self._inner.empty_bucket, name)

    def bucket_names(self) -> Listing[str]:
        """The names of all buckets."""
        return Listing(self._thread, self._inner.bucket_names())

    def buckets(self) -> Listing[BucketStatus]:
        """The statuses of all buckets."""
        return Listing(self._thread, self._inner.buckets())

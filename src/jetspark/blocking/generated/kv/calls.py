# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from jetspark.blocking.kv.bucket import Bucket
from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.documents.streams import Source, StreamInfo
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.kv.config import BucketConfig, BucketOptions, BucketSettings, BucketStatus, Origin


class GeneratedBucketCalls:
    """The calls of `BucketCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def create_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Create a bucket, or bind to it when it exists with the same configuration.

        Options are the fields of BucketConfig. Raises NameInUseError when it exists with another
        configuration, ConfigError, UnsupportedByServerError, and as every API call (see
        `JetStream`).
        """
        return Bucket(
            self._thread, self._thread.run(self._inner.create_bucket, name, config, **options)
        )

    def update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Change a bucket; options not given keep their values.

        Raises BucketNotFoundError, ConfigError, UnsupportedByServerError, and as every API call
        (see `JetStream`).
        """
        return Bucket(
            self._thread, self._thread.run(self._inner.update_bucket, name, config, **options)
        )

    def create_or_update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Update a bucket, or create it. Raises as `update_bucket` and `create_bucket`."""
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
        **options: Unpack[BucketSettings],
    ) -> Bucket:
        """Create a bucket that also takes the entries of other buckets (server 2.10).

        `origins`: buckets, here or in other domains and accounts. A Source with subject transforms
        is used as it is, so any stream may be an origin. `writable`: whether the aggregate takes
        writes of its own. Options are the fields of BucketConfig without mirror_name. Raises as
        `create_bucket`.
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
        self,
        name: str,
        origin: Origin,
        config: BucketConfig | None = None,
        /,
        **options: Unpack[BucketSettings],
    ) -> StreamInfo:
        """Create a mirror of a bucket, which answers its direct gets, nearer to some readers.

        It is a stream of this name and not a bucket: it cannot be bound, and `delete_stream`
        deletes it. Options are the fields of BucketConfig without mirror_name. Filters of keys
        need server 2.10. Raises as `create_bucket`.
        """
        return self._thread.run(self._inner.create_bucket_mirror, name, origin, config, **options)

    def bucket(self, name: str) -> Bucket:
        """Bind to an existing bucket.

        Raises BucketNotFoundError, and as every API call (see `JetStream`).
        """
        return Bucket(self._thread, self._thread.run(self._inner.bucket, name))

    def delete_bucket(self, name: str) -> None:
        """Delete a bucket and its entries. Raises as `bucket`."""
        self._thread.run(self._inner.delete_bucket, name)

    def empty_bucket(self, name: str) -> int:
        """Delete all entries, but not the bucket; returns how many there were.

        Revisions continue. Watchers are not told. Raises as `bucket`.
        """
        return self._thread.run(self._inner.empty_bucket, name)

    def bucket_names(self) -> Listing[str]:
        """The names of all buckets. Iterating raises as every API call (see `JetStream`)."""
        return Listing(self._thread, self._inner.bucket_names())

    def buckets(self) -> Listing[BucketStatus]:
        """The statuses of all buckets. Iterating raises as every API call (see `JetStream`)."""
        return Listing(self._thread, self._inner.buckets())

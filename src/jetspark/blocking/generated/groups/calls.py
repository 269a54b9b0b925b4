# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.groups.group import ElasticGroup, StaticGroup
from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.groups.documents import PartitioningFilter


class GeneratedGroupCalls:
    """The calls of `GroupCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _caller: CallerSide
    _inner: AsyncJetStream

    def create_elastic_group(
        self,
        stream: str,
        name: str,
        *,
        max_members: int,
        filters: Iterable[PartitioningFilter] | None = None,
        max_buffered_msgs: int = 0,
        max_buffered_bytes: int = 0,
    ) -> ElasticGroup:
        """Create a group whose members may change (server 2.11), or bind to the same one.

        `max_members`: the number of partitions. `filters`: which messages, and which of their
        tokens decide on the partition; None: all, by their whole subject. The group has a stream of
        its own, `<stream>-<name>`, which may have `max_buffered_msgs` messages and
        `max_buffered_bytes` bytes (0: no limit). It has no members yet. Raises ConfigError, also
        when the group exists with other options and for a filter that fits none of the stream's
        subjects, NameInUseError when another stream has the name of the group's,
        StreamNotFoundError, UnsupportedByServerError, and as every API call (see `JetStream`). A
        refused group leaves nothing behind.
        """
        return ElasticGroup(
            self._caller,
            self._thread.run(
                self._inner.create_elastic_group,
                stream,
                name,
                max_members=max_members,
                filters=filters,
                max_buffered_msgs=max_buffered_msgs,
                max_buffered_bytes=max_buffered_bytes,
            ),
        )

    def create_static_group(
        self,
        stream: str,
        name: str,
        *,
        max_members: int,
        members: Iterable[str] | None = None,
        mappings: Mapping[str, Iterable[int]] | None = None,
        filters: Iterable[str] | None = None,
    ) -> StaticGroup:
        """Create a group with fixed members (server 2.11), or bind to the same one.

        The first token of the stream's subjects is the partition, as a subject transform of the
        stream makes it, from 0 to `max_members` - 1. `members` share the partitions, or `mappings`
        says who has which. `filters`: which messages, without the partition; None: all. Raises as
        `create_elastic_group`.
        """
        return StaticGroup(
            self._caller,
            self._thread.run(
                self._inner.create_static_group,
                stream,
                name,
                max_members=max_members,
                members=members,
                mappings=mappings,
                filters=filters,
            ),
        )

    def elastic_group(self, stream: str, name: str) -> ElasticGroup:
        """Bind to an elastic group.

        Raises ConsumerGroupNotFoundError, CodecError for an invalid configuration, and as every API
        call (see `JetStream`).
        """
        return ElasticGroup(self._caller, self._thread.run(self._inner.elastic_group, stream, name))

    def static_group(self, stream: str, name: str) -> StaticGroup:
        """Bind to a static group. Raises as `elastic_group`."""
        return StaticGroup(self._caller, self._thread.run(self._inner.static_group, stream, name))

    def elastic_group_names(self, stream: str) -> Listing[str]:
        """The names of a stream's elastic groups.

        Iterating raises as every API call (see `JetStream`).
        """
        return Listing(self._thread, self._inner.elastic_group_names(stream))

    def static_group_names(self, stream: str) -> Listing[str]:
        """The names of a stream's static groups. Raises as `elastic_group_names`."""
        return Listing(self._thread, self._inner.static_group_names(stream))

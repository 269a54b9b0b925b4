"""The consumer of one member of a group: made for its partitions, shared by its instances."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from jetspark.err_codes import WORK_QUEUE_OVERLAP
from jetspark.errors import (
    APIError,
    ConsumerNotFoundError,
    NameInUseError,
    StreamNotFoundError,
)
from jetspark.groups.documents import PRIORITY_GROUP, Place
from jetspark.jetstream.documents.consumers import ConsumerConfig

if TYPE_CHECKING:
    from jetspark.jetstream.consumers.pull import PullConsumer
    from jetspark.jetstream.context import JetStreamContext
    from jetspark.jetstream.documents.consumers import ConsumerInfo
    from jetspark.jetstream.pulling.consume import ConsumerMessages

_LEAST = 1.0
"""Seconds of a pull request and of a pin, at least."""


class ConsumerState(NamedTuple):
    """Of the server."""

    pin: str | None
    """Of the instance that gets the messages now."""
    floor: int
    """The sequence up to which everything is acknowledged."""


class MemberConsumer:
    """`options`: of ConsumerConfig, as the user gave them."""

    def __init__(
        self, js: JetStreamContext, place: Place, member: str, options: dict[str, Any]
    ) -> None:
        self._js = js
        self._place = place
        self._name = place.consumer(member)
        self._options = options
        self.ack_wait: float = options["ack_wait"].total_seconds()
        backoff = [wait.total_seconds() for wait in ConsumerConfig(**options).backoff or ()]
        self.redelivered_after = min([self.ack_wait, *backoff[:1]])
        """Seconds until a message comes again for the first time, at least."""
        self._found: PullConsumer | None = None
        self._since: float | None = None
        """When it was first found with another configuration."""

    async def pull(self, filters: list[str]) -> ConsumerMessages | None:
        """Make it, or find it, and pull; None: another one is in the way, try again.

        Raises NameInUseError for another one of a static group, and as every API call.
        """
        own: dict[str, Any] = {"durable_name": self._name}
        if self._place.elastic:
            own = {"name": self._name, "inactive_threshold": self._options["ack_wait"]}
        try:
            self._found = await self._js.create_consumer(
                self._place.source,
                **self._options,
                **own,
                filter_subjects=filters,
                priority_groups=[PRIORITY_GROUP],
                priority_policy="pinned_client",
                priority_timeout=timedelta(seconds=max(self.ack_wait, _LEAST)),
            )
        except NameInUseError:
            if not self._place.elastic:
                raise
            await self._remove_outdated()
            return None
        except APIError as error:
            if error.err_code != WORK_QUEUE_OVERLAP:
                raise
            return None  # its former member still has a partition
        self._since = None
        with self._js.client.hooking.quiet():  # the member tells what it hands out
            return self._found.consume(group=PRIORITY_GROUP, expires=max(self.ack_wait / 2, _LEAST))

    async def _remove_outdated(self) -> None:
        """It is for former partitions. Its pinned instance has ack_wait to give it up."""
        now = self._js.client.loop.time()
        info = await self.info()
        pinned = info is not None and any(state.pinned_client_id for state in info.priority_groups)
        if self._since is None:
            self._since = now
        if not pinned or now - self._since >= self.ack_wait:
            self._since = None
            await self.delete()

    async def is_pinned(self, pin: str | None) -> bool:
        """Whether the server sends the member's messages to the client with this pin."""
        state = await self.state() if pin else None
        return state is not None and state.pin == pin

    async def state(self) -> ConsumerState | None:
        """None when there is none."""
        if (info := await self.info()) is None:
            return None
        pins = [one.pinned_client_id for one in info.priority_groups if one.group == PRIORITY_GROUP]
        return ConsumerState(pins[0] if pins else None, info.ack_floor.stream_seq)

    async def info(self) -> ConsumerInfo | None:
        """None when there is none."""
        try:
            return await self._js.consumer_info(self._place.source, self._name)
        except (ConsumerNotFoundError, StreamNotFoundError):
            return None

    async def unpin(self) -> None:
        """Let another instance have the messages."""
        if self._found is not None:
            await self._found.unpin(PRIORITY_GROUP)

    async def delete(self) -> None:
        """Delete it, if it is there."""
        try:
            await self._js.delete_consumer(self._place.source, self._name)
        except ConsumerNotFoundError:
            pass

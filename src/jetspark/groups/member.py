"""Consuming as a member of a consumer group.

Contract
- Each member has one consumer for its partitions, and the server pins one of the member's instances
  to it. The others stand by, and take over when the pinned one leaves, or is silent for `ack_wait`.
- By default a member has one unacknowledged message at a time (`max_ack_pending` 1), which keeps
  the order of each partition, whatever dies. An instance suspended for longer than `ack_wait` may
  handle its one message while the next instance does, and acknowledge it later. Nothing is
  acknowledged automatically.
- When the members of an elastic group change, a member with other partitions stops, returns its
  queued messages, waits for the ack of its current message (at most `ack_wait`), and deletes its
  consumer; then the new owner of the partitions can create one.
- It ends with ConsumerGroupNotFoundError when the group is deleted, and with an error when the
  group was recreated with other options. Transient failures are retried; a failure of the server
  itself (500) is also reported once, as is an elastic group that lacks this member.
- Messages sent to an instance before it was suspended, which may since be another's, are dropped
  (`Freshness`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, Self, TypeAlias

import jetspark.errors as errors
from jetspark.client.callbacks import Callback, check_no_callback
from jetspark.client.messages import MessageView
from jetspark.client.subscription import cancelled
from jetspark.client.tasks import background, move_on_after, next_within, seen_through
from jetspark.documents.consumers import ConsumerConfig, ConsumerInfo
from jetspark.err_codes import CONSUMER_WQ_CONSUMER_NOT_UNIQUE
from jetspark.groups.documents import (
    PRIORITY_GROUP,
    GroupConfig,
    GroupLocation,
    check_member,
    filters_of,
    members_of,
)
from jetspark.jetstream.consume import ConsumerMessages
from jetspark.jetstream.consumers import PullConsumer
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.message import JsMsg
from jetspark.kv.bucket import Bucket
from jetspark.retries import PAUSE, is_transient_for_client
from jetspark.timestamps import Seconds, uptime
from jetspark.wire.kernel import frame_of

PIN = "Nats-Pin-Id"
_USABLE = 0.9
"""The part of ack_wait that an instance relies on, since clocks run at different speeds."""
_MIN_PULL_SECONDS = 1.0
"""Minimum seconds of a pull request and of a pin."""
_SERVER_ERROR = 500
_CHECK_INTERVAL = 0.02
"""Seconds between two checks of the current message."""
_STANDBY = 0.4
"""Seconds that an instance waits for the pinned one to delete the consumer."""


class PartitionView(MessageView):
    """The readable part of a consumer group's message, for both clients."""

    __slots__ = ()

    @property
    def subject(self) -> str:
        """The subject of the publish, without the partition."""
        return super().subject.partition(".")[2]

    @property
    def partition(self) -> int:
        """The number of its partition."""
        return int(super().subject.partition(".")[0])


class GroupMsg(PartitionView, JsMsg):
    """One message of a consumer group; acknowledge it like any other.

    Example:
        ```python
        group = await js.consumer_groups("ORDERS").create_elastic("billing", max_members=4)
        await group.add_members(["m1"])
        async with group.consume("m1") as messages:
            msg = await messages.next(timeout=5)
            await msg.nak(delay=10)
        ```
    """

    __slots__ = ()


class Freshness:
    """Whether a message that has arrived is still this instance's.

    A process that was suspended finds old messages in its socket and its buffer. After `ack_wait`
    the server gave them to another instance, which is handling later ones by now; and it confirms
    any ack for them. So a message is used only if

    - it was sent less than `ack_wait` ago: with at most `max_ack_pending` unacknowledged messages,
      it was sent after the first of that many before it was handed out; or
    - the server says, within that time, that this instance is still pinned and the message not
      acknowledged. It is asked about redeliveries, and after a silence.
    """

    def __init__(self, consumer: MemberConsumer, max_ack_pending: int) -> None:
        self._consumer = consumer
        self._usable = _USABLE * consumer.redelivered_after
        self._times: deque[float] = deque(maxlen=max_ack_pending)
        """When the last messages were handed out, or pulling began."""

    def begin(self) -> None:
        """Call it before the first pull: nothing is sent earlier."""
        self._times.clear()
        self._times.append(uptime())

    def handed_out(self) -> None:
        self._times.append(uptime())

    def is_fresh(self, message: GroupMsg) -> bool:
        """True if this instance owns the message for certain, without asking the server."""
        fresh = uptime() - self._times[0] < self._usable
        return fresh and message.metadata.deliveries == 1

    async def still_owned(self, messages: Sequence[GroupMsg]) -> list[GroupMsg]:
        """Messages that this instance certainly owns; none when the server cannot be asked."""
        if all(map(self.is_fresh, messages)):
            return list(messages)
        while True:
            began = uptime()
            try:
                state = await self._consumer.state()
            except errors.JetsparkError:
                return []
            if state is None or state.pin is None:
                return []
            if uptime() - began < self._usable / 2:  # or it was suspended meanwhile
                return [
                    message
                    for message in messages
                    if pin_of(message) == state.pin and message.metadata.stream_seq > state.floor
                ]


def pin_of(message: GroupMsg | None) -> str | None:
    headers = None if message is None else message.headers
    return None if headers is None else headers.get(PIN)


class ConsumerState(NamedTuple):
    pin: str | None
    """The pin of the instance that gets the messages now."""
    floor: int
    """The sequence up to which everything is acknowledged."""


class MemberConsumer:
    """The consumer of one member, shared by its instances. `options`: of ConsumerConfig."""

    def __init__(
        self, js: JetStreamContext, location: GroupLocation, member: str, options: dict[str, Any]
    ) -> None:
        self._js = js
        self._source = js.stream(location.source)
        self._location = location
        self._name = location.consumer(member)
        self._options = options
        self.ack_wait: float = options["ack_wait"].total_seconds()
        backoff = [wait.total_seconds() for wait in ConsumerConfig(**options).backoff or ()]
        self.redelivered_after = min([self.ack_wait, *backoff[:1]])
        """Minimum seconds until a message is redelivered."""
        self._consumer: PullConsumer | None = None
        self._since: float | None = None
        """When the consumer was first found with another configuration."""

    async def pull(self, filters: list[str]) -> ConsumerMessages | None:
        """Create or find it, and pull. None: another consumer is in the way, try again.

        Raises NameInUseError for another consumer in a static group, and every API error.
        """
        own: dict[str, Any] = {"durable_name": self._name}
        if self._location.elastic:
            own = {"name": self._name, "inactive_threshold": self._options["ack_wait"]}
        try:
            self._consumer = await self._source.create_consumer(
                **self._options,
                **own,
                filter_subjects=filters,
                priority_groups=[PRIORITY_GROUP],
                priority_policy="pinned_client",
                priority_timeout=timedelta(seconds=max(self.ack_wait, _MIN_PULL_SECONDS)),
            )
        except errors.NameInUseError:
            if not self._location.elastic:
                raise
            await self._remove_outdated()
            return None
        except errors.APIError as error:
            if error.err_code != CONSUMER_WQ_CONSUMER_NOT_UNIQUE:
                raise
            return None  # a former member still has a partition
        self._since = None
        with self._js.client.hooks.quiet():  # called by the member
            return self._consumer.consume(
                group=PRIORITY_GROUP, expires=max(self.ack_wait / 2, _MIN_PULL_SECONDS)
            )

    async def _remove_outdated(self) -> None:
        """Delete the consumer of former partitions, once its pinned instance had ack_wait."""
        now = self._js.client.loop.time()
        info = await self.info()
        pinned = info is not None and any(state.pinned_client_id for state in info.priority_groups)
        if self._since is None:
            self._since = now
        if not pinned or now - self._since >= self.ack_wait:
            self._since = None
            await self.delete()

    async def is_pinned(self, pin: str | None) -> bool:
        """Whether the server sends the member's messages to the instance with this pin."""
        state = await self.state() if pin else None
        return state is not None and state.pin == pin

    async def state(self) -> ConsumerState | None:
        """None without a consumer."""
        if (info := await self.info()) is None:
            return None
        pins = [
            group.pinned_client_id
            for group in info.priority_groups
            if group.group == PRIORITY_GROUP
        ]
        return ConsumerState(pins[0] if pins else None, info.ack_floor.stream_seq)

    async def info(self) -> ConsumerInfo | None:
        """None without a consumer."""
        try:
            return (await self._source.consumer(self._name)).cached_info
        except (errors.ConsumerNotFoundError, errors.StreamNotFoundError):
            return None

    async def unpin(self) -> None:
        if self._consumer is not None:
            await self._consumer.unpin(PRIORITY_GROUP)

    async def delete(self) -> None:
        with suppress(errors.ConsumerNotFoundError):
            await self._source.delete_consumer(self._name)


GroupCallback: TypeAlias = Callable[[GroupMsg], Awaitable[None] | None]
"""A function, plain or async, called with each message."""


class GroupMember:
    """The result of a group's `consume`: enter it, then iterate it, or give it a callback.

    Example:
        ```python
        group = await js.consumer_groups("ORDERS").create_elastic("billing", max_members=4)
        await group.add_members(["m1"])
        async with group.consume("m1") as messages:
            msg = await messages.next(timeout=5)
            print(msg.subject)  # orders.…
            await msg.ack()
        ```
    """

    def __init__(
        self,
        js: JetStreamContext,
        bucket: Bucket,
        location: GroupLocation,
        config: GroupConfig,
        member: str,
        callback: GroupCallback | None,
        options: dict[str, Any],
    ) -> None:
        self._js = js
        self._bucket = bucket
        self._location = location
        self._config = self._next_config = config
        self._member = member
        callback_name = f"The callback of member {member!r} of consumer group {location.group!r}"
        self._callback = (
            None
            if callback is None
            else Callback(js.client.hooks.callback(callback), callback_name, js.client.report)
        )
        self._consumer = MemberConsumer(js, location, member, options)
        self._freshness = Freshness(self._consumer, options["max_ack_pending"])
        self._messages: ConsumerMessages | None = None
        self._next: GroupMsg | None = None
        """Taken from `_messages`, but not handed out yet."""
        self._last: GroupMsg | None = None
        self._idle = True
        self._reported = ""
        self._taking = asyncio.Lock()
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._error: errors.JetsparkError | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        """The member's name."""
        return self._member

    @property
    def config(self) -> GroupConfig:
        """The group's configuration for this member."""
        return self._config

    @property
    def joined(self) -> bool:
        """True while this instance has its consumer, and so may get messages."""
        return self._messages is not None

    @property
    def error(self) -> errors.JetsparkError | None:
        """The error that ended it; None before, and after `stop`."""
        return self._error

    # -- messages ------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[GroupMsg]:
        check_no_callback(self._callback)
        return self

    async def __anext__(self) -> GroupMsg:
        if not self._tasks:
            raise errors.ConfigError("Enter it first: `async with group.consume(…)`.")
        self._idle = True
        async with self._taking:
            return await self._take()

    async def _take(self) -> GroupMsg:
        while True:
            if self._error is not None or self._over.is_set():
                await asyncio.sleep(0)  # as in `tasks.yielding`
            if self._error is not None:
                raise self._error
            if self._over.is_set():
                raise StopAsyncIteration
            if (messages := self._messages) is None:
                self._news.clear()
                await self._news.wait()
                continue
            try:
                if self._next is None:
                    frame = frame_of(await messages.__anext__())
                    self._next = GroupMsg(self._js.client, frame)
                if (message := await self._current()) is not None:
                    self._freshness.handed_out()
                    if self._callback is None:
                        self._js.client.hooks.handed_out((message,))
                    self._idle, self._last = False, message
                    return message
            except StopAsyncIteration:
                self._leave_messages(messages)
            except errors.JetsparkError as error:
                if not isinstance(
                    error, errors.ConsumerDeletedError | errors.ConsumerNotFoundError
                ):
                    self._end(error)
                self._leave_messages(messages)

    async def _current(self) -> GroupMsg | None:
        """The next message, if it is still ours."""
        message = self._next
        assert message is not None  # noqa: S101
        is_owned = self._freshness.is_fresh(message) or await self._freshness.still_owned([message])
        if self._next is not message:  # the message was returned
            return None
        self._next = None
        return message if is_owned else None

    async def next(self, timeout: Seconds | None = None) -> GroupMsg:
        """The next message; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, ClosedError after its end, ConfigError when there is a
        callback, and `error`.
        """
        check_no_callback(self._callback)
        late = f"No message for member {self._member!r}"
        return await next_within(self.__anext__, timeout, self._ended, late)

    def _ended(self) -> errors.JetsparkError:
        return errors.ClosedError(
            f"Member {self._member!r} of consumer group {self._location.group!r} has ended."
        )

    def _leave_messages(self, messages: ConsumerMessages) -> None:
        """The consumer is gone: create it again."""
        if self._messages is messages:
            self._messages = self._next = None
            self._wake.set()

    async def _call_back(self, callback: Callback[GroupMsg]) -> None:
        with suppress(StopAsyncIteration, errors.JetsparkError):
            while True:
                message = await self.__anext__()
                if (rest := callback.call(message)) is not None:
                    await rest

    async def __aenter__(self) -> Self:
        if self._tasks:
            raise errors.ConfigError("A member can be entered only once.")
        for work in (self._follow(), self._steer()):
            task_name = f"Member {self._member!r} of consumer group {self._location.group!r}"
            self._tasks.append(background(work, task_name, self._end))
        if self._callback is not None:
            task_name = f"Calling back for member {self._member!r}"
            calling = self._call_back(self._callback)
            wanted = self._goes_on
            self._tasks.append(background(calling, task_name, self._end, should_run=wanted))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Leave: queued messages go back, and another instance may take over at once.

        A running callback finishes. If it is interrupted, it goes on in the background.
        """
        self._finish()
        if not self._tasks:
            return
        *working, calling = [*self._tasks, None] if self._callback is None else self._tasks
        ending = [task for task in map(cancelled, working) if task is not None]
        if calling is asyncio.current_task():
            calling = None
        task_name = f"Leaving consumer group {self._location.group!r}"
        await seen_through(self._leave(ending, calling), task_name, self._js.client.report)

    async def _leave(
        self, ending: list[asyncio.Task[None]], calling: asyncio.Task[None] | None
    ) -> None:
        if ending:
            await asyncio.wait(ending)
        await self._stand_back()
        if calling is not None:
            await asyncio.wait({calling})
        with suppress(errors.JetsparkError):  # the pin ends by itself
            if await self._is_pinned():
                await self._consumer.unpin()

    async def wait_stopped(self) -> None:
        """Wait until it ends. Raises `error`."""
        await self._over.wait()
        if self._error is not None:
            raise self._error

    def _end(self, error: errors.JetsparkError) -> None:
        if not self._over.is_set():
            self._error = error
            self._js.client.report(error)
            self._finish()
            if self._messages is not None:
                self._messages.stop()

    def _goes_on(self) -> bool:
        closed = self._js.client.status == "closed"
        return not (closed or self._over.is_set())

    def _finish(self) -> None:
        self._over.set()
        self._news.set()
        self._wake.set()

    # -- the group -----------------------------------------------------------------------------

    async def _follow(self) -> None:
        first = True
        async with self._bucket.watch(self._location.key) as changes:
            async for entry in changes:
                if entry is None:
                    continue
                if entry.is_deleted:
                    self._end(
                        errors.ConsumerGroupNotFoundError(
                            self._location.stream, self._location.group
                        )
                    )
                    await self._stand_back()
                    return
                try:
                    config = self._location.decode(entry.value)
                except errors.CodecError as unreadable:  # the last readable one stays valid
                    self._js.client.report(unreadable)
                    continue
                if config.fixed != self._config.fixed:
                    raise errors.ConfigError(
                        f'Consumer group "{self._location.group}" of stream '
                        f'"{self._location.stream}" was'
                        " recreated with other options: restart its members."
                    )
                if first and members_of(config):
                    try:
                        check_member(self._location, config, self._member)
                    except errors.ConfigError as error:
                        self._js.client.report(error)
                first, self._next_config = False, config
                self._wake.set()
        self._end(errors.ConnectionClosedError())

    async def _steer(self) -> None:
        """Join, and apply one change after the other."""
        while not self._over.is_set():
            self._wake.clear()
            try:
                if self._next_config is not self._config:
                    await self._change(self._next_config)
                filters = filters_of(self._config, self._member)
                if self._messages is None and filters and not self._over.is_set():
                    await self._join(filters)
            except errors.StreamNotFoundError as error:
                if not await self._is_deleted():
                    self._end(error)
                return
            except errors.JetsparkError as error:
                if isinstance(error, errors.APIError) and error.code == _SERVER_ERROR:
                    if await self._is_deleted():
                        return
                    if self._reported != (text := str(error)):
                        self._js.client.report(error)
                    self._reported = text
                elif not is_transient_for_client(error):
                    self._end(error)
                    return
            wants = self._messages is None and self._member in members_of(self._config)
            async with move_on_after(PAUSE if wants else None):
                await self._wake.wait()

    async def _join(self, filters: list[str]) -> None:
        self._freshness.begin()
        messages = await self._consumer.pull(filters)
        if messages is not None and self._over.is_set():
            messages.stop()
        elif messages is not None:
            self._messages, self._reported = messages, ""
            self._news.set()

    async def _is_deleted(self) -> bool:
        """Whether the group is deleted, not only its stream: then the watch ends this."""
        try:
            await self._bucket.get(self._location.key, leader=True)
        except errors.JetsparkError as error:
            return isinstance(error, errors.KeyNotFoundError)
        return False

    async def _change(self, config: GroupConfig) -> None:
        is_unchanged = filters_of(config, self._member) == filters_of(self._config, self._member)
        self._config = config
        if is_unchanged:
            return
        pinned = await self._is_pinned()
        returned = await self._stand_back()
        if not pinned:
            # The pinned instance knows its current message.
            await asyncio.sleep(_STANDBY)
            return
        async with move_on_after(self._consumer.ack_wait):
            await self._all_acknowledged(returned)
        await self._consumer.delete()

    async def _all_acknowledged(self, returned: int) -> None:
        while not (self._idle or self._last is None or self._last.is_acked):  # noqa: ASYNC110
            await asyncio.sleep(_CHECK_INTERVAL)
        while (  # noqa: ASYNC110
            info := await self._consumer.info()
        ) and info.num_ack_pending > returned:
            await asyncio.sleep(_CHECK_INTERVAL)

    async def _stand_back(self) -> int:
        """Take no more messages and return the queued ones; returns their number."""
        messages, self._messages = self._messages, None
        if messages is None:
            return 0
        waiting = [] if self._next is None else [self._next]
        self._next = None
        # One that is on its way, and would come too late, is redelivered only after ack_wait.
        waiting += [GroupMsg(self._js.client, frame) for frame in await messages.take_last()]
        owned = await self._freshness.still_owned(
            waiting
        )  # the others belong to another instance by now
        with suppress(errors.JetsparkError):  # redelivered after ack_wait
            for message in owned:
                await message.nak()
        return len(owned)

    async def _is_pinned(self) -> bool:
        return await self._consumer.is_pinned(pin_of(self._last))

    def __repr__(self) -> str:
        return f"GroupMember({self._location.group!r}, {self._member!r})"

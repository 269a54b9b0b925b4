"""Consuming as a member of a consumer group.

Contract
- Each member has one consumer for its partitions, and the server pins one of the member's
  instances to it. The others stand by, and take over when the pinned one is not heard of for
  `ack_wait`, or leaves.
- By default one message of a member is under way at a time (`max_ack_pending` 1): the order of each
  partition holds, whatever dies. An instance that stands still for longer than `ack_wait` with a
  message in hand may be handling it at the same time as the next one does, and acknowledge it
  later; with this message alone. Nothing is acknowledged automatically.
- When the members of an elastic group change, a member whose partitions change stops, gives back
  what was not taken, waits until the message being handled is acknowledged (for `ack_wait` at
  most), and gives up its consumer; then whoever has the partitions now can make one.
- It ends with ConsumerGroupNotFoundError when the group is deleted, and with an error when what is
  fixed was changed. Failures that may pass are tried again; failures of the server itself (500) are
  reported once, besides. So is, when it begins, that an elastic group has only other members.
- What was sent to an instance that stood still, and may be another's since, is not handed out
  (`hand_out`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from jetspark.client.callbacks import Callback, check_no_callback
from jetspark.client.messages import MessageView
from jetspark.client.subscription import cancelled
from jetspark.client.tasks import background, move_on_after
from jetspark.documents.consumers import ConsumerConfig
from jetspark.err_codes import WORK_QUEUE_OVERLAP
from jetspark.errors import (
    APIError,
    BadSubscriptionError,
    CodecError,
    ConfigError,
    ConnectionClosedError,
    ConsumerDeletedError,
    ConsumerGroupNotFoundError,
    ConsumerNotFoundError,
    JetsparkError,
    KeyNotFoundError,
    NameInUseError,
    RequestTimeoutError,
    StreamNotFoundError,
)
from jetspark.groups.documents import (
    PRIORITY_GROUP,
    GroupConfig,
    Place,
    filters_of,
    members_of,
    stranger,
)
from jetspark.jetstream.message import JsMsg
from jetspark.retries import PAUSE, is_transient_for_client
from jetspark.timestamps import Seconds, in_seconds, uptime
from jetspark.wire.kernel import frame_of

if TYPE_CHECKING:
    from jetspark.documents.consumers import ConsumerInfo
    from jetspark.jetstream.consume import ConsumerMessages
    from jetspark.jetstream.consumers import PullConsumer
    from jetspark.jetstream.context import JetStreamContext
    from jetspark.kv.bucket import Bucket

# -------------------------------------------------------------------------------------------------
# A message of a consumer group: its subject is the one that it was published to.


class PartitionView(MessageView):
    """What is read of it, for both clients."""

    __slots__ = ()

    @property
    def subject(self) -> str:
        """What the message was published to, without the partition."""
        return super().subject.partition(".")[2]

    @property
    def partition(self) -> int:
        """The number of its partition."""
        return int(super().subject.partition(".")[0])


class GroupMsg(PartitionView, JsMsg):
    """One message of a consumer group; acknowledge it as any other."""

    __slots__ = ()


# -------------------------------------------------------------------------------------------------
# Whether a message that has come may still be handed out, or another instance may have had it.
#
# A process that stood still finds messages in its socket and its buffer that were sent to it long
# ago. The server gave them to another instance after `ack_wait`, which is since handling later
# ones; and it confirms whatever ack comes for them. So each message is handed out only
#
# - when it was sent to us less than `ack_wait` ago, which is known without a question: with so
#   many
#   messages under way it was sent after the first of as many before it had been handed out; or
# - when the server says, in less time than that, that this instance is still the pinned one, and
#   that
#   the message is not acknowledged. It is asked about redeliveries, and after a silence.
#
# Others are dropped without an answer: they are no longer ours.


PIN = "Nats-Pin-Id"
_USABLE = 0.9
"""The part of ack_wait that is counted on: clocks do not run equally fast."""


class HandOut:
    """Of one instance. `under_way`: how many messages are, at most."""

    def __init__(self, consumer: MemberConsumer, under_way: int) -> None:
        self._consumer = consumer
        self._usable = _USABLE * consumer.redelivered_after
        self._times: deque[float] = deque(maxlen=under_way)
        """When the last ones were handed out, before these when it began to pull."""

    def begin(self) -> None:
        """Before it pulls: nothing is sent to it earlier."""
        self._times.clear()
        self._times.append(uptime())

    def handed_out(self) -> None:
        """Now, one message."""
        self._times.append(uptime())

    def is_young(self, message: GroupMsg) -> bool:
        """Whether nobody else can have had it, as far as is known without a question."""
        young = uptime() - self._times[0] < self._usable
        return young and message.metadata.deliveries == 1

    async def current(self, messages: Sequence[GroupMsg]) -> list[GroupMsg]:
        """Those that nobody else can have had; none when the server cannot be asked."""
        if all(map(self.is_young, messages)):
            return list(messages)
        while True:
            began = uptime()
            try:
                state = await self._consumer.state()
            except JetsparkError:
                return []
            if state is None or state.pin is None:
                return []
            if uptime() - began < self._usable / 2:  # or it stood still meanwhile
                return [
                    message
                    for message in messages
                    if pin_of(message) == state.pin and message.metadata.stream_seq > state.floor
                ]


def pin_of(message: GroupMsg | None) -> str | None:
    """What the server called the instance that it sent the message to."""
    headers = None if message is None else message.headers
    return None if headers is None else headers.get(PIN)


# -------------------------------------------------------------------------------------------------
# The consumer of one member of a group: made for its partitions, shared by its instances.


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
        with self._js.client.hooks.quiet():  # the member tells what it hands out
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


GroupCallback: TypeAlias = Callable[[GroupMsg], Awaitable[None] | None]

_SERVER_ERROR = 500
_LOOK = 0.02
"""Seconds between two looks at the message that is being handled."""
_STANDBY = 0.4
"""Seconds that an instance waits for the pinned one to give up the consumer."""


class GroupMember:
    """What a group's `consume` returns: enter it, then iterate it, or give it a callback."""

    def __init__(
        self,
        js: JetStreamContext,
        bucket: Bucket,
        place: Place,
        config: GroupConfig,
        member: str,
        callback: GroupCallback | None,
        options: dict[str, Any],
    ) -> None:
        self._js = js
        self._bucket = bucket
        self._place = place
        self._config = self._next_config = config
        self._member = member
        what = f"The callback of member {member!r} of consumer group {place.group!r}"
        self._callback = (
            None
            if callback is None
            else Callback(js.client.hooks.callback(callback), what, js.client.report)
        )
        self._consumer = MemberConsumer(js, place, member, options)
        self._hand_out = HandOut(self._consumer, options["max_ack_pending"])
        self._messages: ConsumerMessages | None = None
        self._next: GroupMsg | None = None
        """Taken, and not handed out yet."""
        self._last: GroupMsg | None = None
        self._idle = True
        self._told = ""
        self._taking = asyncio.Lock()
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._error: JetsparkError | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        """The member's name."""
        return self._member

    @property
    def config(self) -> GroupConfig:
        """The group's configuration, as this member follows it."""
        return self._config

    @property
    def joined(self) -> bool:
        """Whether it has its consumer, and so may get messages."""
        return self._messages is not None

    @property
    def error(self) -> JetsparkError | None:
        """The error that ended it; None while it goes on, and after `stop`."""
        return self._error

    # -- messages ------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[GroupMsg]:
        check_no_callback(self._callback)
        return self

    async def __anext__(self) -> GroupMsg:
        if not self._tasks:
            raise ConfigError("Enter it first: `async with group.consume(…)`.")
        self._idle = True
        async with self._taking:  # one after the other
            return await self._take()

    async def _take(self) -> GroupMsg:
        while True:
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
                    self._hand_out.handed_out()
                    if self._callback is None:
                        self._js.client.hooks.handed_out((message,))
                    self._idle, self._last = False, message
                    return message
            except StopAsyncIteration:
                self._leave_messages(messages)
            except JetsparkError as error:
                if not isinstance(error, ConsumerDeletedError | ConsumerNotFoundError):
                    self._end(error)
                self._leave_messages(messages)

    async def _current(self) -> GroupMsg | None:
        """The next message, if it is still ours."""
        message = self._next
        assert message is not None  # noqa: S101
        ours = self._hand_out.is_young(message) or await self._hand_out.current([message])
        if self._next is not message:  # it was given back
            return None
        self._next = None
        return message if ours else None

    async def next(self, timeout: Seconds | None = None) -> GroupMsg:
        """The next message; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError after its end, ConfigError when there is a
        callback, and `error`.
        """
        check_no_callback(self._callback)
        seconds = in_seconds(timeout)
        try:
            async with move_on_after(seconds):
                return await self.__anext__()
        except StopAsyncIteration:
            raise BadSubscriptionError("Consuming has ended.") from None
        raise RequestTimeoutError(f"No message for member {self._member!r} within {seconds:g} s.")

    def _leave_messages(self, messages: ConsumerMessages) -> None:
        """Its consumer is gone: make it again."""
        if self._messages is messages:
            self._messages = self._next = None
            self._wake.set()

    async def _call_back(self, callback: Callback[GroupMsg]) -> None:
        while True:
            try:
                message = await self.__anext__()
            except (StopAsyncIteration, JetsparkError):
                return
            if (rest := callback.call(message)) is not None:
                await rest

    # -- its life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._tasks:
            raise ConfigError("A member can be entered only once.")
        for work in (self._follow(), self._steer()):
            what = f"Member {self._member!r} of consumer group {self._place.group!r}"
            self._tasks.append(background(work, what, self._end))
        if self._callback is not None:
            what = f"Calling back for member {self._member!r}"
            self._tasks.append(background(self._call_back(self._callback), what, self._end))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Leave: messages that were not taken go back, and another instance may go on at once.

        A running callback finishes.
        """
        self._finish()
        *working, calling = [*self._tasks, None] if self._callback is None else self._tasks
        if ending := [task for task in map(cancelled, working) if task is not None]:
            await asyncio.wait(ending)
        await self._stand_back()
        if calling is not None and calling is not asyncio.current_task():
            await asyncio.wait({calling})
        try:
            if await self._is_pinned():
                await self._consumer.unpin()
        except JetsparkError:
            pass  # the pin ends by itself

    async def wait_ended(self) -> None:
        """Return when it has ended. Raises `error`."""
        await self._over.wait()
        if self._error is not None:
            raise self._error

    def _end(self, error: JetsparkError) -> None:
        if not self._over.is_set():
            self._error = error
            self._js.client.report(error)
            self._finish()
            if self._messages is not None:
                self._messages.stop()

    def _finish(self) -> None:
        self._over.set()
        self._news.set()
        self._wake.set()

    # -- the group -----------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Every change of the configuration."""
        first = True
        async with self._bucket.watch(self._place.key) as changes:
            async for entry in changes:
                if entry is None:
                    continue
                if entry.is_deleted:
                    self._end(ConsumerGroupNotFoundError(self._place.stream, self._place.group))
                    await self._stand_back()
                    return
                try:
                    config = self._place.decode(entry.value)
                except CodecError as unreadable:  # the last one that can be read still holds
                    self._js.client.report(unreadable)
                    continue
                if config.fixed != self._config.fixed:
                    raise ConfigError(
                        f'Consumer group "{self._place.group}" of stream "{self._place.stream}" '
                        "was made anew with other options: its members have to be started again."
                    )
                if first and (error := stranger(self._place, config, self._member)):
                    self._js.client.report(error)
                first, self._next_config = False, config
                self._wake.set()
        self._end(ConnectionClosedError())

    async def _steer(self) -> None:
        """Joins and changes: one after the other."""
        while not self._over.is_set():
            self._wake.clear()
            try:
                if self._next_config is not self._config:
                    await self._change(self._next_config)
                filters = filters_of(self._config, self._member)
                if self._messages is None and filters and not self._over.is_set():
                    await self._join(filters)
            except StreamNotFoundError as error:
                if not await self._is_deleted():
                    self._end(error)
                return
            except JetsparkError as error:
                if isinstance(error, APIError) and error.code == _SERVER_ERROR:
                    if await self._is_deleted():
                        return
                    if self._told != (told := str(error)):
                        self._js.client.report(error)
                    self._told = told
                elif not is_transient_for_client(error):
                    self._end(error)
                    return
            wants = self._messages is None and self._member in members_of(self._config)
            async with move_on_after(PAUSE if wants else None):
                await self._wake.wait()

    async def _join(self, filters: list[str]) -> None:
        self._hand_out.begin()
        messages = await self._consumer.pull(filters)
        if messages is not None and self._over.is_set():
            messages.stop()
        elif messages is not None:
            self._messages, self._told = messages, ""
            self._news.set()

    async def _is_deleted(self) -> bool:
        """Whether the group is, and not only its stream: then the watch will say so."""
        try:
            await self._bucket.get(self._place.key, leader=True)
        except KeyNotFoundError:
            return True
        except JetsparkError:
            pass
        return False

    async def _change(self, config: GroupConfig) -> None:
        same = filters_of(config, self._member) == filters_of(self._config, self._member)
        self._config = config
        if same:
            return
        pinned = await self._is_pinned()
        given_back = await self._stand_back()
        if not pinned:
            # The pinned instance is the one that knows what is being handled.
            await asyncio.sleep(_STANDBY)
            return
        await self._all_acknowledged(given_back)
        await self._consumer.delete()

    async def _all_acknowledged(self, given_back: int) -> None:
        """Until the message being handled is, for ack_wait at most."""
        loop = self._js.client.loop
        end = loop.time() + self._consumer.ack_wait
        while not (self._idle or self._last is None or self._last.is_acked):
            if loop.time() >= end:
                return
            await asyncio.sleep(_LOOK)
        while loop.time() < end:
            info = await self._consumer.info()
            if info is None or info.num_ack_pending <= given_back:
                return
            await asyncio.sleep(_LOOK)

    async def _stand_back(self) -> int:
        """Take no more; give back what was not taken, and return how many messages."""
        messages, self._messages = self._messages, None
        if messages is None:
            return 0
        waiting = [] if self._next is None else [self._next]
        self._next = None
        frames = messages.take_queued(messages.pending_msgs)
        waiting += [GroupMsg(self._js.client, frame) for frame in frames]
        messages.stop()
        # What is another instance's by now would be taken from it.
        ours = await self._hand_out.current(waiting)
        try:
            for message in ours:
                await message.nak()
        except JetsparkError:
            pass  # they come again after ack_wait
        return len(ours)

    async def _is_pinned(self) -> bool:
        return await self._consumer.is_pinned(pin_of(self._last))

    def __repr__(self) -> str:
        return f"GroupMember({self._place.group!r}, {self._member!r})"

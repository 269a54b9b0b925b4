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
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from jetspark.arguments import checked
from jetspark.client.background import background
from jetspark.client.callbacks import Callback, check_no_callback
from jetspark.client.leaving import cancelled
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
    RequestTimeoutError,
    StreamNotFoundError,
)
from jetspark.groups.documents import GroupConfig, Place, filters_of, members_of, stranger
from jetspark.groups.hand_out import HandOut, pin_of
from jetspark.groups.member_consumer import MemberConsumer
from jetspark.groups.message import GroupMsg
from jetspark.timestamps import Seconds, in_seconds
from jetspark.transient import is_transient_for_client
from jetspark.wire.kernel import frame_of

if TYPE_CHECKING:
    from jetspark.jetstream.context import JetStreamContext
    from jetspark.jetstream.pulling.consume import ConsumerMessages
    from jetspark.kv.bucket import Bucket

GroupCallback: TypeAlias = Callable[[GroupMsg], Awaitable[None] | None]

_SERVER_ERROR = 500
_RETRY = 0.25
"""Seconds between two attempts to have the member's consumer."""
_LOOK = 0.02
"""Seconds between two looks at the message that is being handled."""
_STANDBY = 0.4
"""Seconds that an instance waits for the pinned one to give up the consumer."""


@checked
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
            else Callback(js.client.hooking.callback(callback), what, js.client.report)
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
                        self._js.client.hooking.handed_out((message,))
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
            async with asyncio.timeout(seconds):
                return await self.__anext__()
        except StopAsyncIteration:
            raise BadSubscriptionError("Consuming has ended.") from None
        except JetsparkError:
            raise  # some are a TimeoutError too
        except TimeoutError:
            raise RequestTimeoutError(
                f"No message for member {self._member!r} within {seconds:g} s."
            ) from None

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
            try:
                async with asyncio.timeout(_RETRY if wants else None):
                    await self._wake.wait()
            except TimeoutError:
                pass

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

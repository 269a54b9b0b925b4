"""Watching a bucket: its entries now, and every change from then on (ADR-8; row K4).

Contract
- Built on an ordered consumer, which goes on over reconnects, restarts and leader changes: nothing
  is missed that the bucket still has, and nothing comes twice. It needs no task of its own; with a
  callback there is one, which calls it entry by entry; what it raises is reported and the next
  entry comes. It begins when it is first asked for an entry; with a callback at once.
- The end of the initial data is marked once, by None, behind an entry after which nothing was left
  to send, and which is not older than the last one that the bucket's leader had at the beginning:
  the entries so far are then the bucket as it was at a moment. Should that one have been removed
  before it came, the leader is asked again: silence is never taken for an end.
- Without `include_history` the initial data is the last entry of each key. When the consumer is
  lost in the middle of it, it is begun anew, and what was given out is left out.
- What a codec cannot read is reported (log, last_error, error callback) and left out.
- It ends with an error when the bucket is deleted, or made anew, or the connection lost for good;
  what is here is given out first. With a callback the error is reported. It stays in `error`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from jetspark.buckets import Operation
from jetspark.errors import (
    APIError,
    BucketNotFoundError,
    CodecError,
    ConfigError,
    ConnectionClosedError,
    JetsparkError,
    MessageNotFoundError,
    RequestTimeoutError,
    StreamNotFoundError,
    user_error,
)
from jetspark.jetstream.message import JsMsg, MessageFrame, stream_position
from jetspark.kv.entries import Entry, operation_of_message

if TYPE_CHECKING:
    from jetspark.jetstream import JetStream
    from jetspark.jetstream.ordered import OrderedMessages
    from jetspark.kv.handle import Handle

LOOK_AFTER = 0.25
"""Seconds without an entry, before the end of the initial data, until the leader is asked again."""

PULL_AHEAD = 5000
"""Entries that are here or on their way."""

HEARTBEAT = 2.0
"""Seconds: after twice as long without a sign of life the consumer is made again."""

LOT = 500
"""Entries made at once."""

EntryCallback: TypeAlias = Callable[[Entry | None], Awaitable[None] | None]

_LAST_OF_EACH = "last_per_subject"
_SERVER_SIDE = 500


class Wanted(NamedTuple):
    """What a watch is to give out; see `Bucket.watch`."""

    subjects: list[str]
    include_history: bool = False
    meta_only: bool = False
    ignore_deletes: bool = False
    updates_only: bool = False
    resume_from: int | None = None
    heartbeat: float = HEARTBEAT


class Watcher:
    """What `Bucket.watch` returns: iterate it, or give it a callback."""

    def __init__(
        self, js: JetStream, handle: Handle, wanted: Wanted, callback: EntryCallback | None = None
    ) -> None:
        self._js = js
        self._handle = handle
        self._wanted = wanted
        self._messages: OrderedMessages | None = None
        self._ready: deque[Entry | None] = deque()
        self._complete = False
        self._entered = False
        self._stopped = False
        self._error: JetsparkError | None = None
        self._last = 0
        """Revision of the last entry seen."""
        self._until = 0
        """Revision of the last entry at the beginning."""
        self._snapshot = False
        """Whether the initial data is a choice that only one consumer has made: this one."""
        self._consumer: str | None = None
        self._start: dict[str, Any] = {}
        self._callback = callback
        self._task: asyncio.Task[None] | None = None
        if callback is not None:
            self._task = js.client.loop.create_task(
                self._call_back(callback), name=f"jetspark-watch-{handle.name}"
            )
            release = js.client.adopt(_WithClient(self._task, self._ready))
            self._task.add_done_callback(lambda _: release())

    # -- what it is ----------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether more entries may come."""
        return not self._stopped and self._error is None

    @property
    def complete(self) -> bool:
        """Whether all of the initial data has arrived."""
        return self._complete

    @property
    def error(self) -> JetsparkError | None:
        """What has ended it; None while it goes on, and after an end that was asked for."""
        return self._error

    # -- the consumer --------------------------------------------------------------------------

    async def _open(self) -> None:
        """Raises StreamNotFoundError, and what else the API answers."""
        wanted = self._wanted
        state = (await self._js.stream_info(self._handle.stream)).state
        if not wanted.updates_only:
            self._until = await self._last_entry()
        if wanted.resume_from is not None:
            self._last = wanted.resume_from - 1
            self._follow(start_seq=wanted.resume_from)
        elif not self._until:
            # From here on, whatever happens to the consumer before the first entry comes.
            self._follow(start_seq=state.last_seq + 1)
        elif wanted.include_history:
            self._follow(start_seq=1)
        else:
            self._snapshot = self._handle.history != 1
            self._follow(deliver_policy=_LAST_OF_EACH)
        if self._until <= self._last:
            self._end_of_initial_data()

    def _follow(self, **start: Any) -> None:
        self._start = start
        if self._messages is not None:
            self._messages.stop()
        self._messages = self._js.ordered(
            self._handle.stream,
            subjects=self._wanted.subjects,
            headers_only=self._wanted.meta_only,
            max_messages=PULL_AHEAD,
            heartbeat=self._wanted.heartbeat,
            **start,
        )

    async def _last_entry(self) -> int:
        """The revision of the last entry that is wanted, by the leader's word; 0: there is none."""
        return max(await asyncio.gather(*map(self._last_of, self._wanted.subjects)))

    async def _last_of(self, subject: str) -> int:
        try:
            stored = await self._js.get_msg(
                self._handle.stream, last_by_subject=subject, direct=False
            )
        except MessageNotFoundError:
            return 0
        return stored.seq

    def _end_of_initial_data(self) -> None:
        self._complete = True
        self._ready.append(None)

    # -- entries -------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Entry | None]:
        if self._callback is not None:
            raise ConfigError("There is a callback; it cannot be iterated as well.")
        ready = self._ready
        try:
            while True:
                while ready:
                    yield ready.popleft()
                try:
                    await self._fill()
                except StopAsyncIteration:
                    return
        finally:
            if not self._entered:
                self.stop()

    async def __anext__(self) -> Entry | None:
        while not self._ready:
            await self._fill()
        return self._ready.popleft()

    def take_ready(self, limit: int) -> list[Entry | None]:
        """Up to `limit` entries that are here now, taken as if iterated over.

        For the blocking client, which takes many at each change of thread.
        """
        ready = self._ready
        return [ready.popleft() for _ in range(min(limit, len(ready)))]

    async def _fill(self) -> None:
        """Get on a little. StopAsyncIteration or the error when no more will come."""
        if self._stopped:
            raise StopAsyncIteration
        if self._error is not None:
            raise self._error
        try:
            if self._messages is None:
                await self._open()
            elif self._complete:
                self._take(await anext(self._messages))
            else:
                await self._fill_initially()
        except StopAsyncIteration:
            self._stopped = True
            raise
        except StreamNotFoundError:
            self._error = BucketNotFoundError(self._handle.name)
            raise self._error from None
        except JetsparkError as error:
            if not self._may_try_again(error):
                self._error = error
                raise
            self.report(error)
            await asyncio.sleep(LOOK_AFTER)
            self._follow(**self._start)

    def _may_try_again(self, error: JetsparkError) -> bool:
        """The first attempt to make a consumer is the caller's; nothing is lost by another one."""
        return (self._complete or self._last > 0) and (
            (
                isinstance(error, RequestTimeoutError)
                and not isinstance(error, ConnectionClosedError)
            )
            or (isinstance(error, APIError) and error.code >= _SERVER_SIDE)
        )

    async def _fill_initially(self) -> None:
        assert self._messages is not None  # noqa: S101
        try:
            async with asyncio.timeout(LOOK_AFTER):
                message = await anext(self._messages)
        except RequestTimeoutError:
            raise  # a TimeoutError, too, but not of this clock
        except TimeoutError:
            await self._look_again()
            return
        if self._snapshot and self._consumer is None:
            self._consumer = message.metadata.consumer
        self._take(message)
        if self._snapshot and self._consumer is None:
            self._follow(deliver_policy=_LAST_OF_EACH)

    async def _look_again(self) -> None:
        """What was to come last may have been removed, or overwritten, before it could be sent."""
        try:
            self._until = await self._last_entry()
        except (StreamNotFoundError, ConnectionClosedError):
            raise
        except JetsparkError:
            return  # no leader, no link: asked again soon
        if self._until <= self._last:
            self._end_of_initial_data()

    def _take(self, message: JsMsg) -> None:
        assert self._messages is not None  # noqa: S101
        self._add([message._frame, *self._messages.take_queued(LOT)])

    def _add(self, frames: Iterable[MessageFrame]) -> None:
        """Make entries. One loop and few calls: a large bucket starts with a million of them."""
        handle, ready, initially = self._handle, self._ready, not self._complete
        name, cut, plain = handle.name, handle.cut, handle.plain
        meta_only, ignore_deletes = self._wanted.meta_only, self._wanted.ignore_deletes
        for frame in frames:
            _, subject, reply, block, data = frame
            revision, created_ns, pending = stream_position(reply)
            if initially and self._snapshot and self._is_of_another(frame):
                # Made in place of the one that has chosen the entries, it goes on with every entry.
                self._consumer = None
                return
            if revision <= self._last:
                continue  # given out before it was begun anew
            self._last = revision
            operation = Operation.PUT
            if block is not None:
                operation = operation_of_message(JsMsg(self._js.client, frame), block)
            deleted = operation is not Operation.PUT
            if not (deleted and ignore_deletes):
                bare = deleted or meta_only
                value = b"" if bare else data
                try:
                    if plain:
                        key = subject[cut:].decode()
                    else:
                        key = handle.key_of(subject)
                        value = value if bare else handle.value_of(data)
                except (CodecError, UnicodeDecodeError) as error:
                    self.report(_unreadable(name, error))
                else:
                    ready.append(Entry(name, key, value, revision, created_ns, pending, operation))
            # Nothing was left when this was sent. Only then: of a key that is overwritten all the
            # time, the entry that was the last one at the beginning may never come.
            if initially and pending == 0 and revision >= self._until:
                self._end_of_initial_data()
                initially = False

    def _is_of_another(self, frame: MessageFrame) -> bool:
        return JsMsg(self._js.client, frame).metadata.consumer != self._consumer

    def report(self, error: JetsparkError) -> None:
        """To the client: last_error, the log, the error callback."""
        self._js.client.report(error)

    async def _call_back(self, callback: EntryCallback) -> None:
        while True:
            try:
                entry = await self.__anext__()
            except StopAsyncIteration:
                return
            except JetsparkError as error:
                self.report(error)
                return
            try:
                result = callback(entry)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                what = f"The callback of a watch on bucket {self._handle.name!r}"
                self.report(user_error(what, error))

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now, discarding what was not taken. Any number of times.

        A callback that runs is left to finish.
        """
        self._stopped = True
        self._ready.clear()
        if self._messages is not None:
            self._messages.stop()

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "active" if self.active else "ended"
        return f"Watcher({self._handle.name!r}, {state}, {len(self._ready)} here)"


class _WithClient:
    """What the client's `drain` and `close` do with a callback; the messages are known to them."""

    def __init__(self, task: asyncio.Task[None], ready: deque[Entry | None]) -> None:
        self._task = task
        self._ready = ready

    async def drain(self, timeout: float | None = None) -> None:
        if not (await asyncio.wait({self._task}, timeout=timeout))[0]:
            raise RequestTimeoutError(f"{len(self._ready)} entries were not taken in time.")

    async def abandon(self) -> None:
        self._ready.clear()
        if self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait({self._task})


def _unreadable(bucket: str, error: CodecError | UnicodeDecodeError) -> CodecError:
    if isinstance(error, CodecError):
        return error
    return CodecError(f"A key of bucket {bucket!r} is no text: {error}.")

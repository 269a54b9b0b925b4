"""Watches: the current entries of a stream's subjects, None once, then every change.

The base of the watchers of buckets (ADR-8) and object stores (ADR-20).

Contract
- It reads through an ordered consumer, which survives reconnects, restarts and leader changes: no
  entry that the stream still has is missed, none comes twice. It has no task of its own, and starts
  with the first entry needed.
- None marks the end of the initial data, once: after an entry with nothing pending behind it, which
  is not older than the leader's last one at the start. The entries so far are then the stream as of
  a moment. If that last one was removed before it came, the leader is asked again: silence never
  counts as the end.
- Without `include_history` the initial data is the last message of each subject. If the consumer is
  lost before its end, it starts anew, without the entries already given out.
- An error before the first entry is raised; later ones that are transient are reported and retried.
- It ends with an error when the stream is deleted or recreated, or the connection is lost for good;
  buffered entries are given out first. The error stays in `error`.
- It ends as consuming does (`jetspark.jetstream.consume`), but with ConnectionClosedError when the
  client is closed or drained before the end of the initial data, so that a part is never taken for
  the whole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Generic, Never, TypeAlias, TypeVar

import jetspark.errors as errors
from jetspark.client.subscription import Scoped, closed_on_purpose
from jetspark.client.tasks import move_on_after, next_within
from jetspark.documents.consumers import DeliverPolicy
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.message import JsMsg, MessageFrame, stream_position
from jetspark.jetstream.ordered import OrderedMessages, Reached, StreamOrigin, expect
from jetspark.retries import PAUSE, is_transient_for_client
from jetspark.timestamps import Seconds
from jetspark.wire.kernel import frame_of

LOOK_AFTER = 0.25
"""Seconds without an entry of the initial data until the leader is asked again."""

LOT = 500
"""Most entries created at once."""

EntryT = TypeVar("EntryT")

Fresh: TypeAlias = tuple[MessageFrame, int, int, int]
"""A message not given out yet: frame, sequence, time in ns, and pending count."""


class StreamWatcher(Scoped, Generic[EntryT]):
    """`name`: of the bucket or store. `single`: each subject has at most one message.

    `reading`: options of `JetStream.ordered`.
    """

    def __init__(
        self,
        js: JetStreamContext,
        name: str,
        stream: str,
        subjects: Sequence[str],
        *,
        single: bool = False,
        include_history: bool = False,
        updates_only: bool = False,
        resume_from: int | None = None,
        **reading: Any,
    ) -> None:
        self._js = js
        self._name = name
        self._stream = stream
        self._subjects = subjects
        self._single = single
        self._include_history = include_history
        self._updates_only = updates_only
        self._resume_from = resume_from
        self._reading = reading
        self._messages: OrderedMessages | None = None
        self._ready: deque[EntryT | None] = deque()
        self._complete = False
        self._stopped = False
        self._error: errors.JetsparkError | None = None
        self._last = 0
        """Sequence of the last message seen."""
        self._last_time = 0
        """Its time in ns; 0: unknown."""
        self._until = 0
        """Sequence of the last message at the start."""
        self._snapshot = False
        """Whether the initial data are the last messages when one consumer was created."""
        self._consumer: str | None = None
        self._start: dict[str, Any] = {}
        self._origin: StreamOrigin | None = None

    # -- what it is ----------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether more entries may come."""
        return not self._stopped and self._error is None

    @property
    def complete(self) -> bool:
        """Whether the initial data is complete."""
        return self._complete

    @property
    def last_seq(self) -> int:
        """Sequence of the last entry that arrived; 0 before the first."""
        return self._last

    @property
    def error(self) -> errors.JetsparkError | None:
        """The error that ended it; None before, and after `stop`."""
        return self._error

    def __repr__(self) -> str:
        state = "active" if self.active else "ended"
        return f"{type(self).__name__}({self._name!r}, {state}, {len(self._ready)} here)"

    # -- for subclasses ------------------------------------------------------------------------

    def _entries(self, frames: Iterable[MessageFrame]) -> None:
        """Append the entries of the `_fresh` frames to `_ready`."""
        raise NotImplementedError

    def _gone(self) -> errors.JetsparkError:
        """The error for a missing stream."""
        raise NotImplementedError

    # -- the consumer --------------------------------------------------------------------------

    async def _open(self) -> None:
        """Raises StreamNotFoundError and every API error."""
        info = await self._js.stream_info(self._stream)
        self._origin = StreamOrigin(info.created, info.state.last_seq)
        if not self._updates_only:
            self._until = await self._last_message()
        if self._resume_from is not None:
            self._last = self._resume_from - 1
            self._follow(start_seq=self._resume_from)
        elif not self._until:
            # Fix the start, whatever happens to the consumer before the first entry.
            self._follow(start_seq=info.state.last_seq + 1)
        elif self._include_history:
            self._follow(start_seq=1)
        else:
            self._snapshot = not self._single
            self._follow(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)
        if self._until <= self._last:
            self._end_of_initial_data()

    def _follow(self, **start: Any) -> None:
        if self._stopped:  # stopped in the meantime: nobody would stop a consumer created now
            raise StopAsyncIteration
        self._start = start
        # The stream may have been replaced, and a later start would skip entries of the new one.
        at_once = self._messages is not None or start.get("start_seq", 1) > 1
        if self._messages is not None:
            self._messages.stop()
        with self._js.client.hooks.quiet():
            self._messages = self._js.ordered(
                self._stream, subjects=self._subjects, **start, **self._reading
            )
        if self._origin is not None:
            reached = Reached(self._last, self._last_time)
            expect(self._messages, self._origin, reached, at_once=at_once)

    async def _last_message(self) -> int:
        """The sequence of the last wanted message, from the leader; 0: there is none."""
        return max(await asyncio.gather(*map(self._last_of, self._subjects)))

    async def _last_of(self, subject: str) -> int:
        try:
            stored = await self._js.get_msg(self._stream, last_by_subject=subject, direct=False)
        except errors.MessageNotFoundError:
            return 0
        return stored.seq

    def _end_of_initial_data(self) -> None:
        self._complete = True
        self._ready.append(None)

    # -- entries -------------------------------------------------------------------------------

    async def _loop(self) -> AsyncIterator[EntryT | None]:
        ready = self._ready
        self._loop_begins()
        try:
            while True:
                while ready:
                    yield ready.popleft()
                try:
                    await self._fill()
                except StopAsyncIteration:
                    return
        finally:
            self._loop_ends(over=not self.active)

    def take_ready(self, limit: int) -> list[EntryT | None]:
        """Up to `limit` entries that are ready, taken as if by iterating.

        For callers that take many at once.
        """
        ready = self._ready
        return [ready.popleft() for _ in range(min(limit, len(ready)))]

    async def next(self, timeout: Seconds | None = None) -> EntryT | None:
        """The next entry, or None once; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it was stopped, ConnectionClosedError,
        ConfigError when there is a callback, and the error that ended it.
        """
        if self._ready:
            return self._ready.popleft()
        late = f"Nothing changed in {self._name!r}"
        return await next_within(self.__anext__, timeout, self._over, late)

    def _over(self) -> errors.JetsparkError:
        self._js.client.require_open()
        return errors.BadSubscriptionError("The watch has ended.")

    async def __anext__(self) -> EntryT | None:
        while not self._ready:
            await self._fill()
        return self._ready.popleft()

    async def _fill(self) -> None:
        """Wait for more entries. Raises StopAsyncIteration or the error when none will come."""
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
            self._end()
        except errors.StreamNotFoundError:
            self._error = self._gone()
            raise self._error from None
        except errors.JetsparkError as error:
            if self._messages is not None and closed_on_purpose(error):
                self._end()
            # Raise an error before the first entry, since the caller waits for it.
            started = self._complete or self._last > 0
            if not (started and is_transient_for_client(error)):
                self._error = error
                raise
            self._js.client.report(error)
            await asyncio.sleep(PAUSE)
            self._follow(**self._start)

    def _end(self) -> Never:
        """The client or the user ended it."""
        if not (self._stopped or self._complete):
            self._error = errors.ConnectionClosedError(
                "The connection was closed before all entries came."
            )
            raise self._error from None
        self._stopped = True
        raise StopAsyncIteration from None

    async def _fill_initially(self) -> None:
        assert self._messages is not None  # noqa: S101
        message = None
        async with move_on_after(LOOK_AFTER):
            message = await anext(self._messages)
        if message is None:
            await self._look_again()
            return
        if self._snapshot and self._consumer is None:
            self._consumer = message.metadata.consumer
        self._take(message)
        if self._snapshot and self._consumer is None:
            self._follow(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)

    async def _look_again(self) -> None:
        """The last wanted message may have been removed or overwritten before it came."""
        try:
            self._until = await self._last_message()
        except (errors.StreamNotFoundError, errors.ConnectionClosedError):
            raise
        except errors.JetsparkError:
            return  # no leader or link: ask again after LOOK_AFTER
        if self._until <= self._last:
            self._end_of_initial_data()

    def _take(self, message: JsMsg) -> None:
        assert self._messages is not None  # noqa: S101
        self._entries([frame_of(message), *self._messages.take_queued(LOT)])

    def _fresh(self, frames: Iterable[MessageFrame]) -> Iterator[Fresh]:
        """Frames not given out yet; marks the end of the initial data after the last of it."""
        initially = not self._complete
        for frame in frames:
            seq, time_ns, pending = stream_position(frame.reply)
            if initially and self._snapshot and self._is_of_another(frame):
                # A recreated consumer also delivers other than last messages.
                self._consumer = None
                return
            if seq <= self._last:
                continue  # given out before the initial data started anew
            self._last, self._last_time = seq, time_ns
            yield frame, seq, time_ns, pending
            # Nothing was pending when this was sent, which is the only sign of the end: the last
            # entry of a key that is overwritten all the time may never come.
            if initially and pending == 0 and seq >= self._until:
                self._end_of_initial_data()
                initially = False

    def _is_of_another(self, frame: MessageFrame) -> bool:
        return JsMsg(self._js.client, frame).metadata.consumer != self._consumer

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now, and discard entries not taken. May be called again.

        A running callback finishes.
        """
        self._stopped = True
        self._ready.clear()
        if self._messages is not None:
            self._messages.stop()

    def _leave(self) -> None:
        self.stop()

"""Watches: the current entries of a stream's subjects, None once, then every change.

The base of the watchers of buckets (ADR-8) and object stores (ADR-20).

Contract
- It reads through an ordered consumer, which survives reconnects, restarts and leader changes: no
  entry that the stream still has is missed, none comes twice. It has no task of its own. It starts
  when its block is entered, or else with the first entry needed. Then there is a consumer that the
  server delivers to: a change that came before would be lost when it is overwritten.
- None marks the end of the initial data, once, when every subject that has a message has had an
  entry. Neither a pending count of 0 nor silence shows that: a consumer passes over a message that
  is overwritten before its turn, and the server counts the new one a moment later. So the leader is
  asked (`_confirm_end`): either its last message has come, or, beside writers that never pause, its
  subjects are compared with those that have. A history, and what follows `resume_from`, reach at
  least the last message that the leader had at the start.
- Without `include_history` the initial data is the last message of each subject, also if the
  consumer is lost before its end.
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
from jetspark.client.tasks import move_on_after, next_within, yielding
from jetspark.documents.consumers import DeliverPolicy
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.message import JsMsg, MessageFrame, stream_position
from jetspark.jetstream.ordered import OrderedMessages, Reached, StreamOrigin, expect
from jetspark.retries import PAUSE, is_transient_for_client
from jetspark.timestamps import Seconds
from jetspark.wire.kernel import frame_of

LOOK_AFTER = 0.25
"""Seconds without an entry of the initial data until the leader is asked again."""

_QUICK_CHECKS = 2
"""Checks that may find a newer last message at the leader before it lists its subjects."""

MAX_ENTRIES_AT_ONCE = 500
"""Most entries created at once."""

EntryT = TypeVar("EntryT")

Fresh: TypeAlias = tuple[MessageFrame, int, int, int]
"""A message not given out yet: frame, sequence, time in ns, and pending count."""


class StreamWatcher(Scoped, Generic[EntryT]):
    """`name`: of the bucket or store. `reading`: options of `Stream.ordered`."""

    def __init__(
        self,
        js: JetStreamContext,
        name: str,
        stream: str,
        subjects: Sequence[str],
        *,
        include_history: bool = False,
        updates_only: bool = False,
        resume_from: int | None = None,
        **reading: Any,
    ) -> None:
        self._js = js
        self._name = name
        self._stream = js.stream(stream)
        self._subjects = subjects
        self._include_history = include_history
        self._updates_only = updates_only
        self._resume_from = resume_from
        self._reading = reading
        self._messages: OrderedMessages | None = None
        self._opening = asyncio.Lock()
        self._had_consumer = False
        """Whether there was a consumer."""
        self._ready: deque[EntryT | None] = deque()
        self._complete = False
        self._stopped = False
        self._error: errors.JetsparkError | None = None
        self._last = 0
        """Sequence of the last message seen."""
        self._last_time = 0
        """Time of the last message in ns; 0: unknown."""
        self._until = 0
        """Sequence of the leader's last message when it was asked."""
        self._needed = 0
        """Sequence that `_last` must reach before only subjects are compared."""
        self._to_confirm = False
        """Whether the initial data may be complete, so that the leader is asked."""
        self._checks = 0
        """Times that the leader was asked in vain."""
        self._asked_at = 0.0
        self._seen: set[bytes] = set()
        """Subjects in the initial data so far."""
        self._missing: set[bytes] = set()
        """Subjects of the leader that are not among them; empty until it was asked for them."""
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

    def _missing_stream_error(self) -> errors.JetsparkError:
        """The error for a missing stream."""
        raise NotImplementedError

    # -- the consumer --------------------------------------------------------------------------

    async def _open(self) -> None:
        """Raises StreamNotFoundError and every API error. Once cancelled, it is called again."""
        if self._messages is None:
            await self._find_start()
        assert self._messages is not None  # noqa: S101
        await self._messages._begin_block()
        self._had_consumer = True
        if self._until <= self._last:
            self._end_of_initial_data()

    async def _find_start(self) -> None:
        info = await self._stream.info()
        self._origin = StreamOrigin(info.created, info.state.last_seq)
        if not self._updates_only:
            self._until = await self._last_message()
        if self._include_history or self._resume_from is not None:
            self._needed = self._until
        if self._resume_from is not None:
            self._last = self._resume_from - 1
            self._follow(start_seq=self._resume_from)
        elif not self._until:
            # Fix the start, whatever happens to the consumer before the first entry.
            self._follow(start_seq=info.state.last_seq + 1)
        elif self._include_history:
            self._follow(start_seq=1)
        else:
            self._follow(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)

    def _follow(self, **start: Any) -> None:
        if self._stopped:  # stopped in the meantime: nobody would stop a consumer created now
            raise StopAsyncIteration
        self._start = start
        # The stream may have been replaced, and a later start would skip entries of the new one.
        at_once = self._messages is not None or start.get("start_seq", 1) > 1
        if self._messages is not None:
            self._messages.stop()
        with self._js.client.hooks.quiet():
            self._messages = self._stream.ordered(subjects=self._subjects, **start, **self._reading)
        if self._origin is not None:
            # Only what came: `resume_from` may be ahead of the stream.
            reached = Reached(self._last, self._last_time) if self._last_time else Reached()
            expect(self._messages, self._origin, reached, at_once=at_once)

    async def _last_message(self) -> int:
        """The sequence of the last wanted message, from the leader; 0: there is none."""
        return max(await asyncio.gather(*map(self._last_of, self._subjects)))

    async def _last_of(self, subject: str) -> int:
        try:
            stored = await self._stream.get(last_by_subject=subject, direct=False)
        except errors.MessageNotFoundError:
            return 0
        return stored.seq

    def _end_of_initial_data(self) -> None:
        self._complete = True
        self._seen.clear()
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

        Raises RequestTimeoutError, ClosedError when it was stopped, ConnectionClosedError,
        ConfigError when there is a callback, and the error that ended it.
        """
        if self._ready:
            return self._ready.popleft()
        late = f"Nothing changed in {self._name!r}"
        return await next_within(self.__anext__, timeout, self._over, late)

    def _over(self) -> errors.JetsparkError:
        if self._error is not None:
            return self._error
        self._js.client.require_open()
        return errors.ClosedError(f"The watch on {self._name!r} has ended.")

    async def __anext__(self) -> EntryT | None:
        while not self._ready:
            await self._fill()
        return self._ready.popleft()

    async def _begin_block(self) -> None:
        try:
            while not self._had_consumer:
                await self._fill()
        except StopAsyncIteration:
            raise self._over() from None

    async def _fill(self) -> None:
        """Wait for more entries. Raises StopAsyncIteration or the error when none will come."""
        async with yielding():
            await self._wait_for_entries()

    async def _wait_for_entries(self) -> None:
        if self._stopped:
            raise StopAsyncIteration
        if self._error is not None:
            raise self._error
        try:
            if self._messages is None or not self._had_consumer:
                async with self._opening:
                    if not self._had_consumer:
                        await self._open()
            elif self._complete:
                self._take(await anext(self._messages))
            else:
                await self._fill_initially()
        except StopAsyncIteration:
            self._end()
        except errors.StreamNotFoundError:
            self._error = self._missing_stream_error()
            raise self._error from None
        except errors.JetsparkError as error:
            if self._stopped or (self._messages is not None and closed_on_purpose(error)):
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
        if self._missing and self._js.client.loop.time() > self._asked_at + LOOK_AFTER:
            self._to_confirm = True  # they may have been removed
        if self._to_confirm:
            await self._confirm_end()
            return
        message = None
        async with move_on_after(LOOK_AFTER):
            message = await anext(self._messages)
        if message is None:
            self._to_confirm = True
            return
        self._take(message)

    async def _confirm_end(self) -> None:
        """Ask the leader whether every subject that has a message has had an entry."""
        try:
            self._until = await self._last_message()
            if is_incomplete := self._until > self._last:
                self._checks += 1
                if self._checks > _QUICK_CHECKS and self._last >= self._needed:
                    # A resumed watch has had older entries elsewhere.
                    self._missing = set() if self._resume_from else await self._unseen()
                    is_incomplete = bool(self._missing)
        except (errors.StreamNotFoundError, errors.ConnectionClosedError):
            raise
        except errors.JetsparkError:
            self._to_confirm = False  # no leader or link: ask again after LOOK_AFTER
            return
        self._to_confirm = False
        self._asked_at = self._js.client.loop.time()
        if not is_incomplete:
            self._end_of_initial_data()

    async def _unseen(self) -> set[bytes]:
        """The leader's subjects that have had no entry."""
        names: set[str] = set()
        for subject in self._subjects:
            info = await self._stream.info(subjects_filter=subject)
            names.update(info.state.subjects or ())
        # Of subjects that are not UTF-8 the leader does not tell the bytes.
        return {name.encode() for name in names if "\ufffd" not in name} - self._seen

    def _take(self, message: JsMsg) -> None:
        assert self._messages is not None  # noqa: S101
        self._entries([frame_of(message), *self._messages.take_queued(MAX_ENTRIES_AT_ONCE)])

    def _fresh(self, frames: Iterable[MessageFrame]) -> Iterator[Fresh]:
        """Frames not given out yet; marks the end of the initial data after the last of it."""
        initially = not self._complete
        for frame in frames:
            seq, time_ns, pending = stream_position(frame.reply)
            if seq <= self._last:
                continue  # given out before a new consumer
            self._last, self._last_time = seq, time_ns
            yield frame, seq, time_ns, pending
            if initially:
                initially = not self._came(frame.subject, seq, pending)

    def _came(self, subject: bytes, seq: int, pending: int) -> bool:
        """Note an entry of the initial data; returns whether it was the last one."""
        self._seen.add(subject)
        if not self._missing:
            self._to_confirm = self._to_confirm or pending == 0 or seq >= self._until
            return False
        self._missing.discard(subject)
        if not self._missing:
            self._end_of_initial_data()
        return self._complete

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

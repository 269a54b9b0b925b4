"""Watching a store: its objects now, and every change from then on (ADR-20).

Contract
- Built on an ordered consumer, which goes on over reconnects, restarts and leader changes: nothing
  is missed that the store still has, and nothing comes twice. No task of its own; it begins when it
  is first asked for something.
- The end of the initial data is marked once, by None, also in an empty store. The store's leader
  says beforehand which is the last; should that one be replaced before it came, the leader is asked
  again: silence is never taken for an end. When the consumer is lost in the middle of it, it is
  begun anew, and what was given out is left out.
- Information that cannot be read is reported (log, last_error, error callback) and left out.
- It ends with an error when the store is deleted or the connection lost for good.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from jetspark.errors import (
    ConnectionClosedError,
    JetsparkError,
    JetStreamError,
    MessageNotFoundError,
    StreamNotFoundError,
)
from jetspark.jetstream import JsMsg, OrderedMessages
from jetspark.objects.info import ObjectInfo, info_of
from jetspark.objects.names import all_infos
from jetspark.objects.records import Records, no_store

LOOK_AFTER = 0.25
"""Seconds of silence, before the end of the initial data, until the leader is asked again."""

LOT = 500
"""Changes taken at once."""


class ObjectWatcher:
    """What `ObjectStore.watch` returns: iterate it."""

    def __init__(self, records: Records, *, ignore_deletes: bool, updates_only: bool) -> None:
        self._records = records
        self._js = records.js
        self._subject = all_infos(records.store)
        self._ignore_deletes = ignore_deletes
        self._updates_only = updates_only
        self._messages: OrderedMessages | None = None
        self._ready: deque[ObjectInfo | None] = deque()
        self._complete = False
        self._entered = False
        self._stopped = False
        self._last = 0
        """Sequence of the last information seen."""
        self._until = 0
        """That of the last of the initial data."""
        self._consumer: str | None = None
        self._again = False
        """Whether the initial data has to be asked for anew."""

    @property
    def complete(self) -> bool:
        """Whether all of the initial data has arrived."""
        return self._complete

    async def __aiter__(self) -> AsyncIterator[ObjectInfo | None]:
        try:
            while True:
                try:
                    change = await self.__anext__()
                except StopAsyncIteration:
                    return
                yield change
        finally:
            if not self._entered:
                self.stop()

    async def __anext__(self) -> ObjectInfo | None:
        while not self._ready:
            if self._stopped:
                raise StopAsyncIteration
            await self._fill()
        return self._ready.popleft()

    def take_ready(self, limit: int) -> list[ObjectInfo | None]:
        """Up to `limit` changes that are here now, taken as if iterated over.

        For the blocking client, which takes many at each change of thread.
        """
        ready = self._ready
        return [ready.popleft() for _ in range(min(limit, len(ready)))]

    async def _fill(self) -> None:
        try:
            if self._messages is None:
                await self._open()
                return
            if self._complete:
                self._take(await anext(self._messages), self._messages)
                return
            try:
                async with asyncio.timeout(LOOK_AFTER):
                    message = await anext(self._messages)
            except ConnectionClosedError:
                raise  # a lost connection is a TimeoutError, too
            except TimeoutError:
                await self._look_again()
            else:
                self._take(message, self._messages)
        except StreamNotFoundError:
            raise no_store(self._records.store) from None

    async def _open(self) -> None:
        stream = self._records.stream
        first = 1
        if self._updates_only:
            first = (await self._js.stream_info(stream)).state.last_seq + 1
        else:
            try:
                last = await self._js.get_msg(stream, last_by_subject=self._subject, direct=False)
                self._until = last.seq
            except MessageNotFoundError:
                pass
        if self._until:
            self._follow(deliver_policy="last_per_subject")
        else:
            self._follow(start_seq=first)
            self._end_of_initial_data()

    def _follow(self, **start: Any) -> None:
        if self._messages is not None:
            self._messages.stop()
        self._messages = self._js.ordered(self._records.stream, subjects=self._subject, **start)

    def _end_of_initial_data(self) -> None:
        self._complete = True
        self._ready.append(None)

    async def _look_again(self) -> None:
        try:
            following = await self._js.get_msg(
                self._records.stream, self._last + 1, next_by_subject=self._subject, direct=False
            )
        except MessageNotFoundError:
            self._end_of_initial_data()
        except (StreamNotFoundError, ConnectionClosedError):
            raise
        except JetsparkError:
            return  # no leader, no link: asked again soon
        else:
            if following.seq > self._until:
                self._end_of_initial_data()

    def _take(self, message: JsMsg, messages: OrderedMessages) -> None:
        if self._consumer is None:
            self._consumer = message.metadata.consumer
        self._add(message)
        for frame in messages.take_queued(LOT):
            self._add(JsMsg(self._js.client, frame))
        if self._again:
            self._again, self._consumer = False, None
            self._follow(deliver_policy="last_per_subject")

    def _add(self, message: JsMsg) -> None:
        metadata = message.metadata
        if not self._complete:
            # A consumer that was made in place of a lost one has not chosen the last of each.
            self._again = self._again or metadata.consumer != self._consumer
            if self._again or metadata.stream_seq <= self._last:
                return
            if metadata.stream_seq > self._until:
                self._end_of_initial_data()
        self._last = metadata.stream_seq
        try:
            info = info_of(message.data, metadata.timestamp)
        except JetStreamError as error:
            self._js.client.report(error)
        else:
            if not (info.deleted and self._ignore_deletes):
                self._ready.append(info)
        if not self._complete and self._last == self._until:
            self._end_of_initial_data()

    def stop(self) -> None:
        """End it now, discarding what was not taken. Any number of times."""
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
        state = "ended" if self._stopped else "active"
        return f"ObjectWatcher({self._records.store!r}, {state}, {len(self._ready)} here)"

"""Watching a bucket: its current entries, None once, then every change (ADR-8).

Contract: that of `jetspark.jetstream.ordered.watching`, and
- With a callback there is a task, which starts at once and calls it for one entry after the other;
  an exception of it is reported, and the next entry follows. An error that ends the watch is
  reported.
- Entries that a codec cannot decode are reported (log, last_error, error callback) and left out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from jetspark.client.background import background
from jetspark.client.callbacks import Callback, check_no_callback
from jetspark.client.leaving import cancelled
from jetspark.errors import (
    BucketNotFoundError,
    CodecError,
    JetsparkError,
    RequestTimeoutError,
)
from jetspark.jetstream.message import JsMsg, MessageFrame
from jetspark.jetstream.ordered.watching import Watching
from jetspark.kv.entries import Entry, operation_of_message
from jetspark.kv_rules import Operation
from jetspark.timestamps import Seconds, in_seconds

if TYPE_CHECKING:
    from jetspark.jetstream.context import JetStreamContext
    from jetspark.kv.encoding import BucketEncoding

PULL_AHEAD = 5000
"""Entries buffered or requested ahead."""

HEARTBEAT = 2.0
"""Seconds between heartbeats: a lost frame is noticed within twice as long."""

EntryCallback: TypeAlias = Callable[[Entry | None], Awaitable[None] | None]


class Wanted(NamedTuple):
    """The options of a watch; see `Bucket.watch`."""

    subjects: list[str]
    include_history: bool = False
    meta_only: bool = False
    ignore_deletes: bool = False
    updates_only: bool = False
    resume_from: int | None = None
    heartbeat: float = HEARTBEAT


class Watcher(Watching[Entry]):
    """What `Bucket.watch` returns: iterate it, or give it a callback."""

    def __init__(
        self,
        js: JetStreamContext,
        encoding: BucketEncoding,
        wanted: Wanted,
        callback: EntryCallback | None = None,
        unreadable: Callable[[str, CodecError], None] | None = None,
    ) -> None:
        """`unreadable` is told of keys whose new value is left out."""
        super().__init__(
            js,
            encoding.name,
            encoding.stream,
            wanted.subjects,
            single=encoding.history == 1,
            include_history=wanted.include_history,
            updates_only=wanted.updates_only,
            resume_from=wanted.resume_from,
            headers_only=wanted.meta_only,
            max_messages=PULL_AHEAD,
            heartbeat=wanted.heartbeat,
        )
        self._encoding = encoding
        self._wanted = wanted
        self._callback = callback
        self._unreadable = unreadable
        self._task: asyncio.Task[None] | None = None
        if callback is not None:
            self._task = background(
                self._call_back(callback),
                f"Watching bucket {encoding.name!r}",
                self._broken,
                name=f"jetspark-watch-{encoding.name}",
            )
            release = js.client.adopt(_WithClient(self._task, self._ready))
            self._task.add_done_callback(lambda _: release())

    def _gone(self) -> JetsparkError:
        return BucketNotFoundError(self._name)

    @property
    def callback_task(self) -> asyncio.Task[None] | None:
        """The task that calls the callback; None when there is none."""
        return self._task

    def report(self, error: JetsparkError) -> None:
        """Report to the client: last_error, the log, the error callback."""
        self._js.client.report(error)

    # -- entries -------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Entry | None]:
        check_no_callback(self._callback)
        return self._loop()

    async def next(self, timeout: Seconds | None = None) -> Entry | None:
        """The next entry, or None once, as when iterating; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it was stopped,
        ConnectionClosedError, ConfigError when there is a callback, and the error that ended it.
        """
        check_no_callback(self._callback)
        return await super().next(timeout)

    def _entries(self, frames: Iterable[MessageFrame]) -> None:
        """One loop with few calls: a large bucket has millions of entries."""
        encoding, ready = self._encoding, self._ready
        name, cut, plain = encoding.name, encoding.cut, encoding.plain
        meta_only, ignore_deletes = self._wanted.meta_only, self._wanted.ignore_deletes
        for frame, revision, created_ns, pending in self._fresh(frames):
            subject, block, data = frame.subject, frame.headers, frame.payload
            operation = Operation.PUT
            if block is not None:
                operation = operation_of_message(JsMsg(self._js.client, frame), block)
            deleted = operation is not Operation.PUT
            if deleted and ignore_deletes:
                continue
            bare = deleted or meta_only
            value = b"" if bare else data
            key = None
            try:
                if plain:
                    key = subject[cut:].decode()
                else:
                    key = encoding.key_of(subject)
                    value = value if bare else encoding.value_of(data)
            except (CodecError, UnicodeDecodeError) as error:
                self._left_out(key, _unreadable(name, error))
            else:
                ready.append(Entry(name, key, value, revision, created_ns, pending, operation))

    def _left_out(self, key: str | None, error: CodecError) -> None:
        self.report(error)
        if key is not None and self._unreadable is not None:
            self._unreadable(key, error)

    def _broken(self, error: JetsparkError) -> None:
        self._error = self._error or error
        self.report(error)
        self.stop()

    async def _call_back(self, callback: EntryCallback) -> None:
        what = f"The callback of a watch on bucket {self._name!r}"
        call = Callback(callback, what, self.report).call
        while True:
            try:
                entry = await self.__anext__()
            except StopAsyncIteration:
                return
            except JetsparkError as error:
                self.report(error)
                return
            if (rest := call(entry)) is not None:
                await rest


class _WithClient:
    """For the client's `drain` and `close`: the callback's task. The messages are known to them."""

    def __init__(self, task: asyncio.Task[None], ready: deque[Entry | None]) -> None:
        self._task = task
        self._ready = ready

    async def drain(self, timeout: Seconds | None = None) -> None:
        if not (await asyncio.wait({self._task}, timeout=in_seconds(timeout)))[0]:
            raise RequestTimeoutError(f"{len(self._ready)} entries of {self} were not taken.")

    def __repr__(self) -> str:
        return self._task.get_name()

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        return self._task is task

    def abandon(self) -> asyncio.Task[None] | None:
        self._ready.clear()
        return cancelled(self._task)


def _unreadable(bucket: str, error: CodecError | UnicodeDecodeError) -> CodecError:
    if isinstance(error, CodecError):
        return error
    return CodecError(f"A key of bucket {bucket!r} is not UTF-8: {error}.")

"""Watching a bucket, as an iterator, by a callback, or as a mapping that follows it (ADR-8).

Contract of a watch: that of `jetspark.jetstream.watching`, and
- With a callback a task starts at once and calls it for one entry after the other. Its exceptions
  are reported, and the next entry follows. An error that ends the watch is reported.
- Entries that a codec cannot decode are reported (log, last_error, error callback) and left out.

Contract of a live bucket
- Entering it waits for all current entries; then one task follows every change. Any thread may
  read. The mapping does not change while the link is down, and catches up afterwards.
- Entries removed without a marker (a bucket that was emptied, values past the bucket's ttl) are
  noticed within RESYNC seconds; `on_change` gets them as a PURGE of that revision.
- A key whose value the codec cannot decode is not in the mapping; reading it raises the CodecError.
- When it can no longer follow (the bucket was deleted, the connection is closed for good), reading
  raises that error. Before and after the block, reading raises ConfigError.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    ValuesView,
)
from functools import partial
from typing import NamedTuple, Self, TypeAlias, TypedDict

import msgspec

import jetspark.errors as errors
from jetspark.client.callbacks import Callback, check_no_callback
from jetspark.client.subscription import cancelled
from jetspark.client.tasks import background, start_task
from jetspark.jetstream.message import MessageFrame
from jetspark.jetstream.watching import StreamWatcher
from jetspark.kv.codecs import Entry
from jetspark.kv.stored import BucketStream
from jetspark.kv_rules import Operation, operation_in
from jetspark.timestamps import Seconds, in_seconds

PULL_AHEAD = 5000
"""Entries buffered or requested ahead."""

HEARTBEAT = 2.0
"""Seconds between heartbeats: a lost frame shows within twice as long."""

RESYNC = 5.0
"""Seconds between two checks for entries that the bucket itself removed."""

EntryCallback: TypeAlias = Callable[[Entry | None], Awaitable[None] | None]
ChangeCallback: TypeAlias = Callable[[Entry], Awaitable[None] | None]


class WatchOptions(TypedDict, total=False):
    """Options of `Bucket.watch`, for type checkers."""

    include_history: bool
    meta_only: bool
    ignore_deletes: bool
    updates_only: bool
    resume_from: int | None
    heartbeat: Seconds


class WatchSelection(NamedTuple):
    """The options of a watch; see `Bucket.watch`."""

    subjects: list[str]
    include_history: bool = False
    meta_only: bool = False
    ignore_deletes: bool = False
    updates_only: bool = False
    resume_from: int | None = None
    heartbeat: Seconds = HEARTBEAT


class Watcher(StreamWatcher[Entry]):
    """The result of `Bucket.watch`: iterate it, or give it a callback.

    Example:
        ```python
        bucket = await js.bucket("settings")
        async with bucket.watch("colour", ignore_deletes=True) as changes:
            entry = await changes.next(timeout=2)
            print(entry.key, entry.value)  # colour b'red'
        ```
    """

    def __init__(
        self,
        stored: BucketStream,
        selection: WatchSelection,
        callback: EntryCallback | None = None,
        on_unreadable: Callable[[str, errors.CodecError], None] | None = None,
    ) -> None:
        """`on_unreadable` is called with keys whose new value cannot be decoded."""
        encoding = stored.encoding
        super().__init__(
            stored.js,
            encoding.name,
            encoding.stream,
            selection.subjects,
            include_history=selection.include_history,
            updates_only=selection.updates_only,
            resume_from=selection.resume_from,
            headers_only=selection.meta_only,
            max_messages=PULL_AHEAD,
            heartbeat=in_seconds(selection.heartbeat),
        )
        self._encoding = encoding
        self._selection = selection
        self._callback = callback
        self._on_unreadable = on_unreadable
        self._task: asyncio.Task[None] | None = None
        if callback is not None:
            self._task = background(
                self._call_back(callback),
                f"Watching bucket {encoding.name!r}",
                self._broken,
                name=f"jetspark-watch-{encoding.name}",
                should_run=self._goes_on,
            )
            release = stored.js.client.adopt(_WatchSource(self._task, self._ready))
            self._task.add_done_callback(lambda _: release())

    def _missing_stream_error(self) -> errors.JetsparkError:
        return errors.BucketNotFoundError(self._name)

    @property
    def callback_task(self) -> asyncio.Task[None] | None:
        """The task that calls the callback; None without a callback."""
        return self._task

    @property
    def source(self) -> str:
        return f"a watch on bucket {self._name!r}"

    def report(self, error: errors.JetsparkError) -> None:
        """Report to the client: last_error, the log, the error callback."""
        self._js.client.report(error)

    def __aiter__(self) -> AsyncIterator[Entry | None]:
        check_no_callback(self._callback)
        return self._loop()

    async def next(self, timeout: Seconds | None = None) -> Entry | None:
        """See `StreamWatcher.next`; raises ConfigError when there is a callback."""
        check_no_callback(self._callback)
        return await super().next(timeout)

    def _entries(self, frames: Iterable[MessageFrame]) -> None:
        """One loop with few calls, since a large bucket has millions of entries."""
        encoding, ready = self._encoding, self._ready
        name, cut, plain = encoding.name, encoding.cut, encoding.plain
        meta_only, ignore_deletes = self._selection.meta_only, self._selection.ignore_deletes
        for frame, revision, created_ns, pending in self._fresh(frames):
            subject, block, data = frame.subject, frame.headers, frame.payload
            operation = operation_in(block)
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
            except (errors.CodecError, UnicodeDecodeError) as error:
                self._left_out(key, _unreadable(name, error))
            else:
                ready.append(Entry(name, key, value, revision, created_ns, pending, operation))

    def _left_out(self, key: str | None, error: errors.CodecError) -> None:
        self.report(error)
        if key is not None and self._on_unreadable is not None:
            self._on_unreadable(key, error)

    def _goes_on(self) -> bool:
        return self.active and self._js.client.status != "closed"

    def _broken(self, error: errors.JetsparkError) -> None:
        self._error = self._error or error
        self.report(error)
        self.stop()

    async def _call_back(self, callback: EntryCallback) -> None:
        call = Callback(callback, f"The callback of {self.source}", self.report).call
        try:
            while True:
                entry = await self.__anext__()
                if (rest := call(entry)) is not None:
                    await rest
        except StopAsyncIteration:
            pass
        except errors.JetsparkError as error:
            self.report(error)


class _WatchSource:
    """Draining and closing the client end the callback's task; the messages end by themselves."""

    def __init__(self, task: asyncio.Task[None], ready: deque[Entry | None]) -> None:
        self._task = task
        self._ready = ready

    async def drain(self, timeout: Seconds | None = None) -> None:
        if not (await asyncio.wait({self._task}, timeout=in_seconds(timeout)))[0]:
            raise errors.RequestTimeoutError(
                f"{len(self._ready)} entries of {self} were not handled."
            )

    def __repr__(self) -> str:
        return self._task.get_name()

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        return self._task is task

    def abandon(self) -> asyncio.Task[None] | None:
        self._ready.clear()
        return cancelled(self._task)


def _unreadable(bucket: str, error: errors.CodecError | UnicodeDecodeError) -> errors.CodecError:
    if isinstance(error, errors.CodecError):
        return error
    return errors.CodecError(f"A key of bucket {bucket!r} is not UTF-8: {error}.")


class LiveBucket(Mapping[str, bytes]):
    """The result of `Bucket.live`: once entered, it is read like a dict of keys and values.

    Example:
        ```python
        bucket = await js.bucket("settings")
        async with bucket.live() as settings:
            print(settings.get("size", b"7"))  # b'7'
            print(settings.snapshot())  # {'colour': b'red'}
        ```
    """

    def __init__(
        self,
        stored: BucketStream,
        selection: WatchSelection,
        on_change: ChangeCallback | None,
        resync: float,
    ) -> None:
        self._stored = stored
        self._client = client = stored.js.client
        self._name = stored.encoding.name
        self._selection = selection
        source = f"The callback of a live mapping on bucket {self._name!r}"
        self._on_change = None if on_change is None else Callback(on_change, source, client.report)
        self._resync = resync
        # By revision, oldest first. Single operations of a dict are safe between threads.
        self._entries: dict[str, Entry] = {}
        self._unreadable: dict[str, errors.JetsparkError] = {}
        self._error: errors.JetsparkError | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._first_seq = 0
        self._open = self._left = False

    @property
    def error(self) -> errors.JetsparkError | None:
        """Why it can no longer follow; None while it can."""
        return self._error

    # -- reading: from any thread --------------------------------------------------------------

    def _current(self) -> dict[str, Entry]:
        if self._error is not None:
            raise self._error
        if not self._open:
            if self._left:
                raise errors.ClosedError(
                    "The live bucket has ended: its with block was left. There, snapshot() gives a "
                    "copy to keep."
                )
            raise errors.ConfigError(
                "The live bucket is not open: read it inside its with block, where snapshot() "
                "gives a copy to keep."
            )
        return self._entries

    def __getitem__(self, key: str) -> bytes:
        return self.entry(key).value

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._current()))

    def __len__(self) -> int:
        return len(self._current())

    def __contains__(self, key: object) -> bool:
        return key in self._current()

    def entry(self, key: str) -> Entry:
        """The entry of a key. Raises KeyError, CodecError, and `error`."""
        entries = self._current()
        try:
            return entries[key]
        except KeyError:
            if (unreadable := self._unreadable.get(key)) is not None:
                raise unreadable from None
            raise

    def entries(self) -> dict[str, Entry]:
        """All entries at this moment. Raises `error`."""
        return self._current().copy()

    def snapshot(self) -> dict[str, bytes]:
        """All values at this moment. Raises `error`."""
        return {key: entry.value for key, entry in self.entries().items()}

    def items(self) -> ItemsView[str, bytes]:
        """The items of a `snapshot`."""
        return self.snapshot().items()

    def values(self) -> ValuesView[bytes]:
        """The values of a `snapshot`."""
        return self.snapshot().values()

    # -- following -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._tasks:
            raise errors.ConfigError("A live bucket can be entered only once.")
        loop = self._client.loop
        watcher = Watcher(self._stored, self._selection, on_unreadable=self._forget_unreadable)
        self._open = True  # `on_change` may read it from its first call on
        started: asyncio.Future[None] = loop.create_future()
        name = f"jetspark-live-{self._name}"
        self._tasks = [start_task(self._follow(watcher, started), name=name)]
        try:
            await started
        except BaseException:
            await self._end()
            raise
        failed = partial(self._fail, report=True)
        work = f"Following bucket {self._name!r}"
        self._tasks.append(background(self._resync_forever(), work, failed, name=f"{name}-resync"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        self._left = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._open = False

    async def _follow(self, watcher: Watcher, started: asyncio.Future[None]) -> None:
        try:
            async with watcher:
                async for entry in watcher:
                    if entry is None:
                        started.set_result(None)
                        continue
                    self._set(entry)
                    await self._call_back(entry)
            self._error = errors.ConnectionClosedError()
        except BaseException as error:
            if not self._left:
                self._fail(error, report=started.done())
            if not isinstance(error, Exception):
                raise
        finally:
            if self._error is not None and not started.done():
                started.set_exception(self._error)

    def _fail(self, error: BaseException, *, report: bool) -> None:
        if not isinstance(error, errors.JetsparkError):
            error = errors.user_error(f"Following bucket {self._name!r}", error)
        self._error = error
        if report:
            self._client.report(error)

    def _forget_unreadable(self, key: str, error: errors.JetsparkError) -> None:
        self._entries.pop(key, None)
        self._unreadable[key] = error

    def _set(self, entry: Entry) -> None:
        if self._unreadable:
            self._unreadable.pop(entry.key, None)
        # Appended, so that the entries stay in the order of their revisions.
        self._entries.pop(entry.key, None)
        if entry.operation is Operation.PUT:
            self._entries[entry.key] = entry

    async def _call_back(self, entry: Entry) -> None:
        if self._on_change is not None and (rest := self._on_change.call(entry)) is not None:
            await rest

    async def _resync_forever(self) -> None:
        """Find messages that limits and purges removed, always from the head of a stream."""
        while True:
            await asyncio.sleep(self._resync)
            try:
                info = await self._stored.info()
            except errors.JetsparkError:
                continue  # no leader or link, or no bucket, which `_follow` notices
            await self._forget_before(info.state.first_seq)

    async def _forget_before(self, first_seq: int) -> None:
        if first_seq <= self._first_seq:
            return
        self._first_seq = first_seq
        expired = []
        for entry in self._entries.values():
            if entry.revision >= first_seq:
                break
            expired.append(entry)
        for entry in expired:
            if self._entries.get(entry.key) is not entry:
                continue  # written in the meantime
            del self._entries[entry.key]
            purged = msgspec.structs.replace(entry, value=b"", operation=Operation.PURGE)
            await self._call_back(purged)

    def __repr__(self) -> str:
        state = "" if self._open and self._error is None else ", not followed"
        return f"LiveBucket({self._name!r}, {len(self._entries)} keys{state})"

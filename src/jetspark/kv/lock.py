"""Locks and elections in a bucket: one holder among all clients, with a fencing token and a lease.

Contract
- One key has the holder's record. The client that replaces the record it has seen (compare-and-set)
  holds the lock; the token is that write's revision, so a later holder's token is greater. The
  guarded resource remembers the greatest token and refuses smaller ones (fencing), since no lease
  can stop a holder that was suspended in the middle of a write.
- The holder renews the record every third of the lease. It counts nine tenths of the lease, from
  before it sends a write; others count from when they see the record, the server from when it
  stores it. So the holder knows that the lock is lost before another can take it, without comparing
  clocks. Time that a machine sleeps counts.
- Others wait for the delete marker of the release, or of the record's TTL with `limit_marker_ttl`.
  They replace a record that has not changed for its lease: its holder is gone.
- A write without an answer may be stored. Renewals and releases are retried until the lease ends.
  The id in a record shows that it is our own.
- Emptying the bucket removes records without a marker: another client can take the lock at once,
  and the holder learns of it from its next renewal. Their tokens still differ.
- The holder of an election's lock leads. Its states come in order: first "not leading", then each
  change. While the callback runs for a lost leadership, this client is not a candidate, so it
  cannot lead twice at once.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, Self, TypeAlias

import msgspec

import jetspark.errors as errors
from jetspark.client.callbacks import Callback, check_no_callback
from jetspark.client.client import CoreClient
from jetspark.client.subscription import cancelled
from jetspark.client.tasks import (
    background,
    move_on_after,
    next_within,
    seen_through,
    start_task,
)
from jetspark.kv.codecs import Entry
from jetspark.kv.stored import BucketStream
from jetspark.kv.watch import Watcher, WatchSelection
from jetspark.kv_rules import Operation
from jetspark.retries import PAUSE, is_transient_for_client
from jetspark.timestamps import Seconds, in_seconds, uptime
from jetspark.validation import check_text
from jetspark.wire.documents import decode_json, encode_document

LEASE = 10.0
"""Default seconds without a renewal after which others take over a lock."""
RENEWALS = 3
"""Renewals in a lease, so two may fail."""
_USABLE = 0.9
"""The part of a lease that the holder relies on, since clocks run at different speeds."""


class LockRecord(msgspec.Struct, frozen=True):
    """The holder of a lock: the value of its key, as JSON."""

    id: str
    """Different for every `Lock`."""
    holder: str
    """The holder's name, as given to `Bucket.lock`."""
    lease: float
    """Seconds."""


class Seen(NamedTuple):
    """The key's last entry. `record`: None when the lock is free."""

    revision: int
    record: LockRecord | None


async def pause_after(error: errors.JetsparkError) -> None:
    """Pause before the next attempt. Raises an error that is not transient."""
    if not is_transient_for_client(error):
        raise error
    await asyncio.sleep(PAUSE)


class LockKey:
    """The key of a lock. `record`: what this client writes into it."""

    def __init__(self, stored: BucketStream, key: str, holder: str, lease: float) -> None:
        self._stored = stored
        self._key = key
        self.record = LockRecord(secrets.token_hex(8), holder, lease)
        self._value = encode_document(self.record)
        self._ttl = math.ceil(lease) if stored.encoding.ttl else None

    def watch(self) -> Watcher:
        return Watcher(self._stored, WatchSelection(self._stored.encoding.filters(self._key)))

    async def read(self) -> Seen:
        try:
            return self.seen(await self._stored.read(self._key, leader=True))
        except errors.KeyNotFoundError as gone:
            return Seen(gone.revision or 0, None)

    def seen(self, entry: Entry) -> Seen:
        """The record in an entry. Raises CodecError for another value."""
        if entry.is_deleted:
            return Seen(entry.revision, None)
        try:
            record = decode_json(entry.value, LockRecord, "record")
        except errors.DocumentError:
            raise errors.CodecError(
                f'Key "{self._key}" of bucket "{entry.bucket}" does not hold a lock\'s record: '
                "use another key."
            ) from None
        return Seen(entry.revision, record)

    async def write(self, last: int) -> int:
        """Write the record over the entry `last`; returns its revision.

        Raises WrongLastSequenceError, and RequestTimeoutError after a third of the lease.
        """
        timeout = self.record.lease / RENEWALS
        return await self._stored.write(
            self._key, self._value, last=last, ttl=self._ttl, timeout=timeout
        )

    async def delete(self, last: int) -> None:
        """Delete the entry `last`. Raises WrongLastSequenceError when there is another one."""
        await self._stored.write(self._key, last=last, operation=Operation.DEL)


class Lock:
    """A lock in a bucket, returned by `Bucket.lock` and held within its block.

    Leaving the block releases it, and raises LockLostError when it was lost, so that no work
    without the lock goes unnoticed. A lock can be held again, but not twice at once. Calls to the
    server raise the errors of `Bucket`.

    Example:
        ```python
        locks = await js.create_bucket("locks", limit_marker_ttl=60)
        lock = locks.lock("nightly-report", holder="node-1")
        async with lock:
            print((await lock.owner()).holder)  # node-1
        ```
    """

    def __init__(self, stored: BucketStream, key: str, lease: Seconds, holder: str | None) -> None:
        encoding = stored.encoding
        encoding.write_subject(key)  # a read-only bucket has no locks
        self._lease = in_seconds(lease)
        if not self._lease >= 1:
            raise errors.ConfigError("lease must be at least 1 second.")
        if encoding.max_age and encoding.max_age.total_seconds() < self._lease:
            raise errors.ConfigError(
                f'Bucket "{encoding.name}" keeps values for {encoding.max_age.total_seconds():g} s '
                f"only: the lease cannot be {self._lease:g} s."
            )
        self._client = stored.js.client
        self._bucket = encoding.name
        self._key = key
        if holder is None:
            holder = f"{socket.gethostname()}:{os.getpid()}"
        self._at = LockKey(stored, key, check_text("holder", holder), self._lease)
        self._acquiring = False
        self._token: int | None = None
        self._revision = 0
        """The revision of the last write known to be stored."""
        self._until = 0.0
        """When the usable part of the lease ends, in `uptime`."""
        self._lost: errors.LockLostError | None = None
        self._changed = asyncio.Event()
        """Set while the lock is not held."""
        self._changed.set()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._leave_client: Callable[[], object] | None = None

    @property
    def key(self) -> str:
        """The key of the holder's record."""
        return self._key

    @property
    def held(self) -> bool:
        """Whether this object holds it, and its lease has not ended."""
        return self._token is not None and self._lost is None and uptime() < self._until

    @property
    def lost(self) -> bool:
        """Whether this object held it, but its lease is over or another client holds it."""
        return self._token is not None and not self.held

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every holder before.

        Send it to the guarded resource with every write. Raises LockLostError when the lock is
        lost, ConfigError when it was not acquired.
        """
        token = self._acquired()
        if not self.held:
            raise self._loss()
        return token

    async def wait_lost(self) -> None:
        """Wait until it is lost or released."""
        await self._changed.wait()

    async def owner(self) -> LockRecord | None:
        """The holder, from the bucket's leader; None: nobody.

        The record of a dead holder stays until its TTL or another holder. Raises CodecError when
        the key has another value.
        """
        return (await self._at.read()).record

    # -- holding it ----------------------------------------------------------------------------

    async def acquire(self, timeout: Seconds | None = None) -> int:
        """Wait until it is held, `timeout` seconds at most, None: for ever; returns the token.

        Outages do not end the wait. Raises RequestTimeoutError, ConfigError when this object
        already holds it, CodecError when the key has another value, LockLostError when its lease
        ended while this process was suspended, ConnectionClosedError when the client is drained or
        closed.
        """
        seconds = in_seconds(timeout)
        if seconds is not None and seconds <= 0:
            raise errors.BadTimeoutError(seconds)
        if self._acquiring or self.held:
            raise errors.ConfigError(
                f'Lock "{self._key}" is held or being acquired by this object: '
                "make another one to compete for it."
            )
        self._client.check_loop()
        self._drop()
        self._acquiring = True
        try:
            async with move_on_after(seconds):
                await self._contend()
                return self.token
        finally:
            self._acquiring = False
        raise errors.RequestTimeoutError(
            f'Lock "{self._key}" of bucket "{self._bucket}" was held by others for {seconds:g} s.'
        )

    async def release(self) -> None:
        """Release it. Raises LockLostError when it was lost, ConfigError when it is not held.

        Without an answer it is retried until the lease ends.
        """
        self._acquired()
        held, loss = self.held, self._loss()
        self._end_renewals()
        try:
            if not held or not await self._remove():
                raise loss
        finally:
            self._drop()

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(self, _: object, exc: BaseException | None, *__: object) -> None:
        if self._token is None:
            return  # released in the block
        try:
            await self.release()
        except errors.JetsparkError as error:
            if exc is None:
                raise
            self._client.report(error)

    def __repr__(self) -> str:
        state = f"token {self._token}" if self.held else "lost" if self.lost else "not held"
        return f"Lock({self._key!r}, {state})"

    def _acquired(self) -> int:
        if self._token is None:
            raise errors.ConfigError(f'Lock "{self._key}" is not held: acquire it first.')
        return self._token

    def _loss(self) -> errors.LockLostError:
        if self._lost is not None:
            return self._lost
        reason = "it was not renewed within its lease."
        return errors.LockLostError(self._bucket, self._key, self._token or 0, reason)

    # -- competing -----------------------------------------------------------------------------

    async def _contend(self) -> None:
        seen = Seen(0, None)
        watcher = self._at.watch()  # which begins only when another one holds it
        try:
            while True:
                if seen.record is not None and seen.record.id != self._at.record.id:
                    seen = await self._wait(watcher, seen)
                    continue
                began = uptime()
                try:
                    self._hold(await self._write_or_withdraw(seen.revision), began)
                    return
                except errors.WrongLastSequenceError:
                    pass
                except errors.JetsparkError as error:
                    await pause_after(error)
                try:
                    seen = await self._at.read()
                except errors.JetsparkError as error:
                    await pause_after(error)
        finally:
            watcher.stop()

    async def _write_or_withdraw(self, last: int) -> int:
        """Leave no record behind when cancelled."""
        writing = start_task(self._at.write(last))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            work = f"Withdrawing from lock {self._key!r}"
            background(self._withdraw(writing), work, self._client.report)
            raise

    async def _withdraw(self, writing: asyncio.Task[int]) -> None:
        try:
            revision = await writing
        except errors.JetsparkError:
            return  # if it is stored, it ends with its lease
        if not self._acquiring and self._token is None:
            await self._at.delete(revision)

    async def _wait(self, watcher: Watcher, seen: Seen) -> Seen:
        """Wait until the record changes, or has not changed for its lease."""
        assert seen.record is not None  # noqa: S101
        end = uptime() + seen.record.lease
        while (left := end - uptime()) > 0:
            try:
                entry = await watcher.next(left)
            except errors.RequestTimeoutError:
                continue  # the lease is over, or the server has not answered
            except errors.ClosedError:
                raise errors.ConnectionClosedError(
                    f'Waiting for lock "{self._key}" has ended: the connection is being drained.'
                ) from None
            except errors.JetsparkError as error:
                if watcher.error is not None:
                    raise
                await pause_after(error)
                continue
            if entry is None and not watcher.last_seq:
                return Seen(0, None)  # removed without a marker
            if entry is not None and entry.revision > seen.revision:
                return self._at.seen(entry)
        return Seen(seen.revision, None)

    # -- the lease -----------------------------------------------------------------------------

    def _hold(self, revision: int, began: float) -> None:
        self._token = revision
        self._changed.clear()
        self._renewed(revision, began)
        self._leave_client = self._client.adopt(_LockSource(self))
        work = f"Renewing lock {self._key!r}"
        self._task = background(self._renew(began), work, self.lose, name=f"jetspark-{work}")

    def _renewed(self, revision: int, began: float) -> None:
        self._revision = revision
        self._until = began + self._lease * _USABLE
        self._check_deadline()

    def _check_deadline(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if (left := self._until - uptime()) <= 0:
            self.lose("it was not renewed within its lease.")
        else:
            self._timer = self._client.loop.call_later(left, self._check_deadline)

    async def _renew(self, began: float) -> None:
        while self._lost is None:
            await asyncio.sleep(max(began + self._lease / RENEWALS - uptime(), 0))
            began = await self._renew_once()

    async def _renew_once(self) -> float:
        """Returns at the latest when the lease begins again; ends with the lease."""
        first = uptime()
        while self._lost is None:
            began = uptime()
            try:
                self._renewed(await self._at.write(self._revision), began)
                return began
            except errors.WrongLastSequenceError:
                if await self._is_ours(first):
                    return first
                self.lose("another client has taken it over, or its key was changed.")
            except errors.JetsparkError as error:
                await pause_after(error)
        return first

    async def _is_ours(self, first: float) -> bool:
        """Whether the last entry is an unanswered renewal of ours, sent not before `first`."""
        while True:
            try:
                seen = await self._at.read()
                break
            except errors.CodecError:
                return False
            except errors.JetsparkError as error:
                await pause_after(error)
        if seen.record != self._at.record:
            return False
        self._renewed(seen.revision, first)
        return True

    def lose(self, reason: str | errors.JetsparkError) -> None:
        """The lock is lost, if it was held."""
        if self._token is None or self._lost is not None:
            return
        if isinstance(reason, errors.JetsparkError):
            self._client.report(reason)
            reason = str(reason)
        self._lost = errors.LockLostError(self._bucket, self._key, self._token, reason)
        self._end_renewals()
        self._changed.set()

    def _end_renewals(self) -> None:
        cancelled(self._task)
        if self._timer is not None:
            self._timer.cancel()
        if self._leave_client is not None:
            self._leave_client()

    def _drop(self) -> None:
        self._token, self._lost = None, None
        self._changed.set()

    async def _remove(self) -> bool:
        """Delete our own record only; returns whether it was there."""
        may_be_done = False
        while True:
            try:
                try:
                    await self._at.delete(self._revision)
                    return True
                except errors.WrongLastSequenceError:
                    seen = await self._at.read()
                if seen.record != self._at.record:
                    return may_be_done
                if seen.revision == self._revision:
                    return False
                self._revision = seen.revision  # left by a renewal on its way
            except errors.JetsparkError as error:
                if uptime() >= self._until:
                    raise
                may_be_done = True
                await pause_after(error)


class _LockSource:
    """Closing the client loses the lock."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Keep the lock until the connection is closed."""

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        return False

    def abandon(self) -> None:
        self._lock.lose("the connection was closed.")


class ElectionState(NamedTuple):
    """Whether a candidate leads."""

    leading: bool
    token: int | None
    """The fencing token of this leadership; None when it does not lead."""


StateCallback: TypeAlias = Callable[[ElectionState], Awaitable[None] | None]
"""A function, plain or async, called with each state of an election."""


class Election:
    """A candidate, returned by `Bucket.election`: enter it, then iterate its states.

    Example:
        ```python
        locks = await js.create_bucket("locks", limit_marker_ttl=60)
        async with locks.election("scheduler", holder="node-1") as election:
            state = await election.next(timeout=5)
            print(state.leading)  # False
        ```
    """

    def __init__(self, client: CoreClient, lock: Lock, callback: StateCallback | None) -> None:
        self._client = client
        self._lock = lock
        source = f"The callback of election {lock.key!r}"
        self._callback = None if callback is None else Callback(callback, source, client.report)
        self._states: deque[ElectionState] = deque()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: errors.JetsparkError | None = None
        self._left = False

    @property
    def key(self) -> str:
        """The key of the leader's record."""
        return self._lock.key

    @property
    def leading(self) -> bool:
        """Whether this client leads now."""
        return self._lock.held

    @property
    def token(self) -> int:
        """The fencing token of this leadership, for the resources that the leader changes.

        Raises LockLostError when the leadership is lost, ConfigError before it.
        """
        return self._lock.token

    @property
    def error(self) -> errors.JetsparkError | None:
        """Why it is no longer a candidate; None while it is one, and after its end."""
        return self._error

    async def leader(self) -> LockRecord | None:
        """The leader, from the bucket's leader; None: nobody. Raises the errors of `Lock.owner`."""
        return await self._lock.owner()

    # -- states --------------------------------------------------------------------------------

    async def next(self, timeout: Seconds | None = None) -> ElectionState:
        """The next state; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, ClosedError after its end, ConfigError when there is a
        callback, and `error`.
        """
        if self._states:
            timeout = None
        late = f"Nothing changed in election {self.key!r}"
        return await next_within(self.__anext__, timeout, self._over, late)

    def _over(self) -> errors.JetsparkError:
        return errors.ClosedError(f"The candidacy in election {self.key!r} has ended.")

    def __aiter__(self) -> AsyncIterator[ElectionState]:
        return self

    async def __anext__(self) -> ElectionState:
        check_no_callback(self._callback)
        if self._task is None:
            raise errors.ConfigError("Enter the election first: `async with bucket.election(…)`.")
        while not self._states:
            if self._error is not None or self._left:
                await asyncio.sleep(0)  # as in `tasks.yielding`
            if self._error is not None:
                raise self._error
            if self._left:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._states.popleft()

    async def _tell(self, token: int | None) -> None:
        state = ElectionState(token is not None, token)
        if self._callback is None:
            self._states.append(state)
            self._news.set()
        elif (rest := self._callback.call(state)) is not None:
            await rest

    # -- the campaign --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise errors.ConfigError("An election can be entered only once.")
        self._task = background(
            self._campaign(),
            f"Election {self.key!r}",
            self._broken,
            name=f"jetspark-election-{self.key}",
            should_run=lambda: not self._left and self._client.status != "closed",
        )
        return self

    async def __aexit__(self, _: object, exc: BaseException | None, *__: object) -> None:
        try:
            await self.resign()
        except errors.JetsparkError as error:
            if exc is None:
                raise
            self._client.report(error)

    async def resign(self) -> None:
        """End the candidacy, and let another one lead. Raises as `Lock.release`.

        If it is interrupted, it goes on in the background.
        """
        self._left = True
        resigning = self._resign(cancelled(self._task))
        await seen_through(resigning, f"Resigning from election {self.key!r}", self._client.report)

    async def _resign(self, campaign: asyncio.Task[None] | None) -> None:
        if campaign is not None:
            await asyncio.wait({campaign})
        self._news.set()
        if self._lock.held:
            await self._lock.release()

    async def _campaign(self) -> None:
        await self._tell(None)
        while not self._left:
            try:
                token = await self._lock.acquire()
            except errors.LockLostError:  # this process was suspended
                continue
            await self._tell(token)
            await self._lock.wait_lost()
            await self._tell(None)

    def _broken(self, error: errors.JetsparkError) -> None:
        self._error = error
        self._client.report(error)
        self._news.set()

    def __repr__(self) -> str:
        return f"Election({self.key!r}, {'leading' if self.leading else 'not leading'})"

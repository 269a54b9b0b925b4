"""Messages in flight: the core of publishers, atomic batches and fast ingest.

`InFlight` is the set of messages that have no result yet. A `Sender` sends them, handles replies,
refusals and the loss of the link, and has the only timer. `BasePublisher` is the public side, which
waits for space or for results. Subclasses have the policy: the form on the wire, the meaning of a
reply, and the end.

Threads. Senders take messages (`reserve`, `withdraw`, and their callers), one at a time, in any
thread. Everything else runs in the event loop's thread, in its read loop or timer; counts may be
read anywhere. Both sides use one dict, whose single operations are atomic, and which is only
iterated as a copy. Operations that belong together take a lock, which a message that succeeds does
not need. No task, future or timer is created for a message.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar, Unpack

import jetspark.errors as errors
from jetspark.client.publishing import Publishing
from jetspark.client.subscription import Listener
from jetspark.connection.locks import new_lock
from jetspark.connection.waiting import Room, Waiters
from jetspark.documents.streams import PubAck
from jetspark.jetstream.api import Api
from jetspark.jetstream.publish_request import BatchOptions, PublishTries, publish_headers
from jetspark.retries import PAUSE
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.headers import Headers
from jetspark.wire.kernel import MessageFrame

OnResult: TypeAlias = Callable[[PubAck | errors.JetsparkError], None]
"""Called once with the ack or the error of a message, in the event loop's thread."""

Entry: TypeAlias = tuple[str, bytes, Headers | None, float, OnResult | None]
"""(subject, payload, headers, deadline, on_result): a plain tuple, since there is one per message.

Only messages that may be sent again keep payload and headers.
"""

CLOSED: Final = -1


@dataclass(frozen=True, slots=True)
class PublishFailure:
    """A message that was not acknowledged."""

    index: int
    """0 for the first message."""
    subject: str
    error: errors.JetsparkError


class InFlight:
    """Messages by index, from 0. Closed until `open`.

    Each message taken ends exactly once: acknowledged (`take`), or failed. `resends`: keep payloads
    and headers, so that messages can be sent again.
    """

    def __init__(self, *, resends: bool = False) -> None:
        self._resends = resends
        self.sent = 0
        """Messages taken so far."""
        self.acked = 0
        """Messages acknowledged."""
        self.failures: list[PublishFailure] = []
        """Messages that failed and had no `on_result`, in the order of failing."""
        self.limit: float = math.inf
        """Senders wait while so many are in flight, until it is closed."""
        self.deadline = 0.0
        """When a message sent now is overdue; updated by the sender."""
        self.closed = True
        """Whether no more messages are taken."""
        self.ended: errors.JetsparkError | None = None
        """Why no more results can arrive."""
        self._entries: dict[int, Entry] = {}
        self._lock = new_lock()
        # Methods of the dict itself, since they are called for every message.
        self.count = self._entries.__len__
        """Messages that have not ended."""
        self.find = self._entries.get
        """The entry of an index; None when it has ended."""
        self.take = self._entries.pop
        """Remove and return the entry of an index. KeyError when it has ended."""

    @property
    def full(self) -> bool:
        """Whether a sender has to wait."""
        return self.count() >= self.limit

    # -- senders ---------------------------------------------------------------------------------

    def reserve(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Headers | None = None,
        on_result: OnResult | None = None,
    ) -> int:
        """Take a message; returns its index, or CLOSED. Never waits."""
        index = self.sent
        if not self._resends:
            payload, headers = b"", None
        # In this order either `close` finds the entry, or this finds it closed.
        self._entries[index] = (subject, payload, headers, self.deadline, on_result)
        self.sent = index + 1
        if self.closed and self.withdraw(index):
            return CLOSED
        return index

    def withdraw(self, index: int) -> bool:
        """Withdraw the newest message, which was not sent. False: it has ended already."""
        if self.take(index, None) is None:
            return False
        self.sent = index
        return True

    # -- the event loop's thread -----------------------------------------------------------------

    def open(self) -> None:
        """Take messages from now on."""
        self.closed = False

    def close(self) -> None:
        """Take no more; messages taken may still be acknowledged."""
        self.closed = True
        self.limit = math.inf

    def entries(self) -> list[tuple[int, Entry]]:
        """All messages that have not ended, in order."""
        return list(self._entries.copy().items())

    def with_subject(self, subject: str) -> list[int]:
        """The indexes of the messages in flight on this subject."""
        return [index for index, entry in self.entries() if entry[0] == subject]

    def fail(self, index: int, error: errors.JetsparkError) -> None:
        """A message failed for this reason. The first result counts."""
        if (entry := self.take(index, None)) is None:
            return
        if entry[4] is None:
            self.failures.append(PublishFailure(index, entry[0], error))
        else:
            entry[4](error)

    def end(self, error: errors.JetsparkError) -> bool:
        """Close, and fail all, from any thread. False: it ended before, and that reason counts."""
        with self._lock:
            if self.ended is not None:
                return False
            self.ended = error
        self.close()
        for index, _ in self.entries():
            self.fail(index, own(error))
        return True


def own(error: errors.JetsparkError) -> errors.JetsparkError:
    """A copy for one message: tasks that raised the same instance would mix their tracebacks."""
    own_error = copy(error)
    own_error.__cause__ = error.__cause__
    return own_error


def link_lost(index: int, subject: str) -> errors.BrokenSocketError:
    """The link went down between the message and its ack."""
    return errors.BrokenSocketError(
        "The connection was lost before the ack came: "
        f"it is not known whether message {index} on {subject!r} was stored."
    )


def no_more_acks(cause: errors.JetsparkError | None) -> errors.JetsparkError:
    """The error when the subscription for acks ends: with the connection, or refused."""
    if cause is not None and not isinstance(cause, errors.ConnectionClosedError):
        refusal = copy(cause)
        refusal.replace_message(
            f"No ack can be received, so nobody knows what was stored: {cause.message}"
        )
        return refusal
    error = errors.ConnectionClosedError("The connection was closed before the ack came.")
    error.__cause__ = cause
    return error


# -------------------------------------------------------------------------------------------------
# Sending messages, and following each to its result.


class Sender:
    """Sends messages with a `Publishing`. `timeout` in seconds, default: the context's.

    Subclasses override the `on_` methods, `begin`, `send` and `check_deadlines`. Raises ConfigError
    for a timeout that cannot work.
    """

    window: InFlight
    kind = "publisher"
    """The sender's kind in error messages."""
    raise_failures = True
    """Whether the end of the block raises PublishFailedError."""
    send: Callable[[int, str, bytes, Headers | None], None]
    """Puts a message (number, subject, payload, headers) into the outbox; numbers begin at 1.

    Raises the errors of `Publishing.send`."""

    def __init__(
        self,
        api: Api,
        timeout: Seconds | None,
        window: InFlight,
        *,
        checks: int = 20,
        longest_check: float = PAUSE,
    ) -> None:
        """`checks`: the minimum number of deadline checks within a timeout."""
        self.timeout = api.timeout if timeout is None else in_seconds(timeout)
        if not self.timeout > 0:
            raise errors.ConfigError("timeout must be more than 0 seconds.")
        self.window = window
        self.client = api.client
        self.changed: Callable[[], None] = _nothing
        """Called in the event loop's thread when there may be space, or a result; set by the owner.

        Also called by `put`, in its thread, when it gives a place back."""
        self.settle: Callable[[], None] = _nothing
        """Returns when no other thread is between the check for space and `put`; set by the owner.
        """
        self.check_every = min(self.timeout / checks, longest_check)
        """Seconds between two checks of the deadlines."""
        self.inbox = ""
        """The beginning of all reply subjects."""
        self.tail_at = 0
        """Bytes of that; the end of a reply subject is the message's."""
        self.published = 0
        """The number of the last message that was sent, or may have been."""
        self._api = api
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._repeat: asyncio.TimerHandle | None = None
        self._lost_at: float | None = None  # when the link was lost
        self._away = 0.0  # seconds without a link
        self._seen = 0  # failures that the user has looked at
        self.send_with(api.client.publishing)

    def send_with(self, publishing: Publishing) -> None:
        """Send with this one: by default the asyncio client's."""
        self.publishing = publishing
        self.outbox = publishing.outbox
        self._hooks = publishing.hooked
        self.put = self._put if self._hooks is None else self._put_hooked
        """Take a message and send it: its index.

        Its arguments are subject, payload, headers and `on_result`, which may be None. Raises what
        `Publishing.send` and `check_open` raise; such a message has no index."""

    # -- senders -------------------------------------------------------------------------------

    def headers(self, **options: Unpack[BatchOptions]) -> Headers | None:
        """The headers of a message with these options. Raises as `publish_headers`."""
        return publish_headers(self._api.server, **options)

    def _put(
        self,
        subject: str,
        payload: bytes,
        headers: Headers | None,
        on_result: OnResult | None = None,
    ) -> int:
        # Before it is sent: its ack may be counted in the loop's thread while we are still here.
        index = self.window.reserve(subject, payload, headers, on_result)
        if index == CLOSED:
            self.check_open()
        try:
            self.send(index + 1, subject, payload, headers)
        except BaseException as error:
            if not isinstance(error, errors.JetsparkError) and self.may_be_sent(index + 1):
                # A signal handler's exception: a reply may come, and must not be another message's.
                self.published = index + 1
                raise
            withdrawn = self.window.withdraw(index)
            self.changed()  # somebody else may wait for the place
            if withdrawn or not isinstance(error, errors.JetsparkError):
                raise
            return index
        self.published = index + 1
        return index

    def _put_hooked(
        self,
        subject: str,
        payload: bytes,
        headers: Headers | None,
        on_result: OnResult | None = None,
    ) -> int:
        assert self._hooks is not None  # noqa: S101
        put = partial(self._put, subject, payload, on_result=on_result)
        return self._hooks.send(subject, payload, None, headers, put)

    def may_be_sent(self, number: int) -> bool:
        """Whether `send` may have sent the message, although it raised no JetsparkError."""
        return True

    def check_open(self) -> None:
        """Raise why no message can be taken: not yet, no longer, or the error that ended it."""
        if not self.inbox:
            raise errors.ConfigError(f"The {self.kind} is not open: use it inside its with block.")
        if self._listener is None:
            raise errors.ClosedError(f"The {self.kind} has ended: its with block was left.")
        if self.window.ended is not None:
            raise own(self.window.ended)

    # -- results -----------------------------------------------------------------------------------

    def failed(self) -> list[PublishFailure]:
        """The failures, which this call marks as seen."""
        failed = self.window.failures.copy()
        self._seen = len(failed)
        return sorted(failed, key=attrgetter("index"))

    def check_failures(self, error: BaseException | None) -> None:
        """Raise PublishFailedError at the end of a block, which may have raised `error`.

        Only for failures not read from `failed`; another error gets them as a note.
        """
        unseen = self.window.failures[self._seen :]
        if not (unseen and self.raise_failures):
            return
        failure = errors.PublishFailedError(unseen)
        if error is None:
            raise failure
        error.add_note(str(failure))

    # -- life --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take messages from now on. Raises the errors of `Client.listen`."""
        inbox = self.client.new_inbox()
        self.inbox = f"{inbox}."
        self.begin()
        self.tail_at = len(self.inbox.encode())
        self._listener = self.client.listen(
            f"{inbox}.>",
            self.on_reply,
            on_run=self.on_replies,
            on_disconnect=self._on_disconnect,
            on_reconnect=self._on_reconnect,
            on_refused=self._on_refused,
            on_end=self._on_end,
        )
        self._lost_at = None if self.client.is_connected else self.client.loop.time()
        self.window.open()
        self._check()

    def begin(self) -> None:
        """The inbox is known, but nothing is sent yet."""

    def close(self) -> None:
        """The block ended: take no more messages; those in flight fail."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for timer in (self._timer, self._repeat):
            if timer is not None:
                timer.cancel()
        self.end(errors.ClosedError(f"The {self.kind} has ended: no ack arrived before."))

    def end(self, error: errors.JetsparkError) -> None:
        """No more results can arrive: messages in flight fail for this reason."""
        if self.window.end(error):
            self.changed()

    # -- replies: called in the read loop ----------------------------------------------------------

    def on_reply(self, frame: MessageFrame) -> None:
        """One reply."""
        raise NotImplementedError

    def on_replies(self, frames: list[MessageFrame], size: int) -> bool:
        """Replies that arrived together. False: `on_reply` wants them one by one."""
        return False

    def index_of(self, tail: bytes) -> int | None:
        """The index of the message with this end of the reply subject; None: no message has it."""
        try:
            return int(tail) - 1
        except ValueError:
            return None

    def _on_refused(self, name: str, error: errors.JetsparkError) -> None:
        if name.startswith(self.inbox):
            index = self.index_of(name[len(self.inbox) :].encode())
            indexes = [] if index is None else [index]
        else:
            indexes = self.window.with_subject(name)
        self.on_refused(name, indexes, error)
        self.changed()

    def on_refused(self, name: str, indexes: list[int], error: errors.JetsparkError) -> None:
        """A server refused publishes with this subject or reply subject, perhaps these messages."""
        for index in indexes:
            self.window.fail(index, own(error))

    def _on_end(self, error: errors.JetsparkError | None) -> None:
        self.end(no_more_acks(error))

    # -- time and the link -------------------------------------------------------------------------

    def clock(self) -> float:
        """Seconds of connected time."""
        now = self.client.loop.time() if self._lost_at is None else self._lost_at
        return now - self._away

    @property
    def away(self) -> float:
        """Seconds without a link so far, up to the last one, which `clock` does not count."""
        return self._away

    @property
    def connected(self) -> bool:
        """Whether there is a link."""
        return self._lost_at is None

    def _check(self) -> None:
        self._timer = self.client.loop.call_later(self.check_every, self._check)
        self.check_deadlines(self.clock())

    def check_deadlines(self, now: float) -> None:
        """Called regularly, in place of a timer for each message."""
        raise NotImplementedError

    def repeat(self, tries: PublishTries, send: Callable[[], None]) -> None:
        """No responders: `send` the message again a little later. Raises NoStreamResponseError."""
        self._repeat = self.client.loop.call_later(tries.pause(), self._send_again, send)

    @property
    def repeating(self) -> bool:
        """Whether a message will soon be sent again."""
        return self._repeat is not None

    def _send_again(self, send: Callable[[], None]) -> None:
        self._repeat = None
        if self.window.ended is None:
            try:
                send()
            except errors.JetsparkError as error:
                self.end(error)

    def _on_disconnect(self) -> None:
        self.on_disconnect(self.clock())
        self._lost_at = self.client.loop.time()
        self.changed()

    def on_disconnect(self, now: float) -> None:
        """The link was lost."""

    def _on_reconnect(self) -> None:
        if self._lost_at is not None:
            self._away += self.client.loop.time() - self._lost_at
            self._lost_at = None
        self.on_reconnect(self.clock())

    def on_reconnect(self, now: float) -> None:
        """The link is back."""


def _nothing() -> None:
    """Does nothing, until there is an owner."""


# -------------------------------------------------------------------------------------------------
# The public side.


SenderT = TypeVar("SenderT", bound=Sender)


class Results(Generic[SenderT]):
    """Counts and failures of the messages of a publisher or fast ingest, with async and without."""

    _sender: SenderT

    @property
    def sent(self) -> int:
        """Messages taken so far; each one is acked, failed or pending."""
        return self._sender.window.sent

    @property
    def pending(self) -> int:
        """Messages that have no ack and no error yet."""
        return self._sender.window.count()

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._sender.window.acked

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages that failed so far, by index. Reading them marks them as seen."""
        return self._sender.failed()


def sender_of(publisher: BasePublisher[SenderT]) -> SenderT:
    """The sender of a publisher, for the blocking twin."""
    return publisher._sender


class BasePublisher(Generic[SenderT]):
    """A publisher of one event loop, for any number of its tasks."""

    def __init__(self, sender: SenderT) -> None:
        self._sender = sender
        self._window = sender.window
        self._outbox = sender.outbox
        self._loop = sender.client.loop
        self._space = Room(lambda: self._window.full)
        self._watchers = Waiters()
        sender.changed = self._changed

    async def _wait_for_space(self) -> None:
        """Wait until there may be space; who came first is first."""
        try:
            if self._outbox.crowded:
                await self._outbox.wait()
            else:
                await self._space.wait()
        except asyncio.CancelledError:
            self._changed()  # the space may have been for somebody else
            raise

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._watchers.wait()

    def _changed(self) -> None:
        """Wake one sender for each free place, and all who wait for something else."""
        window = self._window
        self._space.wake(window.limit - window.count())
        if self._watchers:
            self._watchers.wake()

    # -- the block -------------------------------------------------------------------------------

    async def _complete(self, *, failed: bool) -> None:
        """Wait for all results. `failed`: the block raised an exception."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._sender.open()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                await self._complete(failed=kind is not None)
        finally:
            self._sender.close()
        self._sender.check_failures(error)

"""Atomic batches: messages that are stored together or not at all (ADR-50).

Contract. `publish` sends a message to the server, which stages it; `commit` stores all of them, one
after the other with nothing in between, and returns the ack of the last one. Leaving the block
commits, unless `commit` was called; leaving it by an exception abandons the batch.

The newest message is held back, because the last message of a batch has the commit header; only
`flush` sends it earlier. So a later call, at the latest `commit`, may raise the refusal of a
message. The commit checks expectations: if one fails, the batch is refused. An error before the
commit was sent means that nothing is stored. A commit without a reply leaves open whether all or
nothing is; if one message of the batch has an expectation, it is safe to publish the batch again.

The server abandons a batch after 10 s without a message, beyond 1,000 messages, and beyond 50
batches at a time in a stream; a lost connection ends it too. Any number of tasks may publish, one
after the other.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Unpack

import msgspec

import jetspark.errors as errors
from jetspark.client.requests import room_within
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import PubAck
from jetspark.jetstream.api import Api
from jetspark.jetstream.in_flight import CLOSED, BasePublisher, InFlight, Sender, own
from jetspark.jetstream.publish_request import (
    BatchOptions,
    PublishTries,
    parse_pub_ack,
    stored_as_ordinary,
)
from jetspark.payload_bytes import Payload, payload_bytes
from jetspark.timestamps import Seconds
from jetspark.wire.headers import (
    COMMIT,
    COMMIT_BEFORE,
    MARKS,
    STAGED,
    VERSION,
    Headers,
    encode_headers,
)
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.status import status_of

_NO_HEADERS: Final = VERSION + b"\r\n"
_MARKS_SIZE: Final = 160  # bytes of the three headers, and some more


class BatchMessage(msgspec.Struct, frozen=True, gc=False):
    """A checked message. `head`: its header block without the end."""

    subject: str
    payload: bytes
    head: bytes


class AtomicWindow(InFlight):
    """The messages added, what the server keeps, and how it ended. No I/O and no clock.

    The newest message is held until `release` returns it for sending. There is no room for a second
    one before the server has answered the first. All end together, by `stored` or by `end`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: BatchMessage | None = None
        """The newest message, until it is sent."""
        self.first_confirmed = False
        """Whether the server confirmed the first message."""
        self.committing = False
        """Whether the commit was sent, so that all or nothing may be stored."""
        self.ack: PubAck | None = None
        """The answer to the commit."""
        self.subject = ""
        """The subject of the last message released."""

    def open(self) -> None:
        super().open()
        self.limit = 1

    def confirm_first(self) -> None:
        """The server keeps the first message: take the others."""
        self.first_confirmed = True
        self.limit = math.inf

    def hold(self, message: BatchMessage) -> int:
        """Hold one more message; returns its index, or CLOSED."""
        if (index := self.reserve(message.subject)) != CLOSED:
            self.held = message
        return index

    def release(self) -> tuple[int, BatchMessage] | None:
        """The number and the message that is held, for sending now; None without one."""
        if (held := self.held) is None:
            return None
        self.held = None
        self.subject = held.subject
        return self.sent, held

    def commit(self) -> tuple[int, BatchMessage, bytes]:
        """Number, message and mark of the commit. Raises ConfigError for an empty batch."""
        if not self.sent:
            raise errors.ConfigError("The batch is empty.")
        self.committing = True
        self.close()
        if (last := self.release()) is not None:
            return *last, COMMIT
        return self.sent + 1, BatchMessage(self.subject, b"", _NO_HEADERS), COMMIT_BEFORE

    def stored(self, ack: PubAck) -> None:
        """The server stored all messages."""
        with self._lock:
            if self.ended is not None:
                return
            self.ack = ack
        self.acked = self.sent
        self._entries.clear()

    def end(self, error: errors.JetsparkError) -> bool:
        return self.ack is None and super().end(error)

    def lost(self) -> errors.BrokenSocketError:
        """The meaning of a lost link."""
        if self.committing:
            message = "The connection was lost at the commit: the batch may be stored or not."
        else:
            message = "The connection was lost, and the batch with it: nothing is stored."
        return errors.BrokenSocketError(message)

    def expired(self, timeout: float) -> errors.RequestTimeoutError:
        """The meaning of no answer within `timeout` seconds."""
        if self.committing:
            part = "the commit of the batch, which may be stored or not"
        else:
            part = "a message of the batch, which is not stored"
        return errors.RequestTimeoutError(f"No answer within {timeout:g} s to {part}.")


class _Question(NamedTuple):
    """A message whose reply somebody waits for, until `deadline` of the loop's clock."""

    number: int
    message: BatchMessage
    mark: bytes
    tries: PublishTries
    deadline: float


class AtomicSender(Sender):
    """Takes the options of `JetStream.atomic_batch`.

    Every message has a reply subject, for the first refusal; only the replies to the first message,
    a flush and the commit are awaited.
    """

    window: AtomicWindow
    kind = "batch"
    raise_failures = False

    def __init__(self, api: Api, timeout: Seconds | None) -> None:
        check_feature("atomic_batch", (2, 12), api.server)
        super().__init__(api, timeout, AtomicWindow())
        self._inbox = b""
        self._id = b""
        self._question: _Question | None = None

    # -- senders -------------------------------------------------------------------------------

    def message(
        self, subject: str, payload: bytes, headers: Headers | None, *, is_first: bool
    ) -> BatchMessage:
        """A message for `publish`. `is_first`: it has an option for the first message only.

        Raises the errors of `check_open` and `Publishing.send`.
        """
        if self.window.closed:
            self.check_open()
        if is_first and self.window.sent:
            raise errors.ConfigError("expect_last_seq belongs to the first message of a batch.")
        if self._hooks is None:
            return self._message(subject, payload, headers)
        make = partial(self._message, subject, payload)
        return self._hooks.send(subject, payload, None, headers, make)

    def _message(self, subject: str, payload: bytes, headers: Headers | None) -> BatchMessage:
        self.publishing.encode_subject(subject)
        head = _NO_HEADERS
        if headers is not None:
            for name in [name for name in headers if name.startswith("Nats-Batch-")]:
                headers.delete(name)  # left of the batch that the message came from
            head = encode_headers(headers)[:-2]
        size = len(head) + _MARKS_SIZE + len(payload)
        if size > self.publishing.link.max_payload:
            raise errors.MaxPayloadError(size, self.publishing.link.max_payload)
        return BatchMessage(subject, payload, head)

    def add(self, message: BatchMessage) -> int:
        """Send the held message and hold this one; returns its number. Raises as `message`."""
        if (held := self.window.release()) is not None:
            self._send(*held, STAGED)
        if (index := self.window.hold(message)) == CLOSED:
            self.check_open()
        return index + 1

    def check_open(self) -> None:
        super().check_open()
        if self.window.committing:
            raise errors.ClosedError("The batch has ended: it was committed.")

    def _send(self, number: int, message: BatchMessage, mark: bytes) -> None:
        """Put one message into the outbox; an error ends the batch. Raises as `Publishing.send`."""
        marked = message.head + MARKS % (self._id, number, mark)
        reply = b"%b%d" % (self._inbox, number)
        try:
            self.publishing.send_replying(message.subject, message.payload, reply, marked)
        except BaseException as error:  # now a message is missing
            interrupted = errors.JetStreamError(f"The batch was interrupted at message {number}.")
            self.window.end(error if isinstance(error, errors.JetsparkError) else interrupted)
            raise

    # -- the event loop's thread: questions --------------------------------------------------------

    def stage(self) -> None:
        """Send the held message, if any; `answered` when the server keeps it."""
        if (held := self.window.release()) is not None:
            self._ask(*held, STAGED)

    def flush(self) -> None:
        """`stage`. Raises the errors of `check_open`, and UnsupportedByServerError."""
        self.check_open()
        check_feature("flush of an atomic batch", (2, 14), self._api.server)
        self.stage()

    def commit(self) -> None:
        """Send the commit; `answered` when there is an ack. Raises the errors of `check_open`."""
        self.check_open()
        self._ask(*self.window.commit())

    def committed(self) -> PubAck:
        """The ack of the commit, when `answered`. Raises the error that ended the batch."""
        ack, ended = self.window.ack, self.window.ended
        if ack is None and ended is not None:
            raise own(ended)
        assert ack is not None  # noqa: S101
        return ack

    def _ask(self, number: int, message: BatchMessage, mark: bytes) -> None:
        tries = PublishTries(message.subject, self.timeout)
        deadline = self.client.loop.time() + self.timeout
        self._question = _Question(number, message, mark, tries, deadline)
        self._send(number, message, mark)

    @property
    def answered(self) -> bool:
        """Whether the wait is over: the reply came, or the batch ended."""
        return self._question is None or self.window.ended is not None

    def check_deadlines(self, now: float) -> None:
        question = self._question
        if question is not None and self.client.loop.time() > question.deadline:
            self.end(self.window.expired(self.timeout))

    # -- life --------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._inbox = self.inbox.encode()
        self._id = self._inbox[:-1].rpartition(b".")[2]

    def close(self) -> None:
        window = self.window
        window.close()
        if window.first_confirmed and not window.committing and self.client.is_connected:
            self._abandon()
        super().close()

    def _abandon(self) -> None:
        """Make the server forget the batch now, not in 10 s, with a gap in the numbers."""
        try:
            self.publishing.send_replying(
                self.window.subject,
                b"",
                self._inbox + b"0",
                _NO_HEADERS + MARKS % (self._id, self.window.sent + 2, STAGED),
            )
        except errors.JetsparkError:
            pass  # the server will forget it by itself

    def on_disconnect(self, now: float) -> None:
        self.end(self.window.lost())

    def on_refused(self, name: str, indexes: list[int], error: errors.JetsparkError) -> None:
        if indexes:
            self.end(own(error))

    # -- replies: called in the read loop ----------------------------------------------------------

    def on_reply(self, frame: MessageFrame) -> None:
        question = self._question
        if not frame.payload and frame.headers is None and question is None:
            return  # the empty reply to a staged message
        index = self.index_of(frame.subject[self.tail_at :])
        if index is None or self.window.ended is not None:
            return
        answered = question if question is not None and index + 1 == question.number else None
        try:
            ack = _ack_in(frame, self.window.subject)
            if answered is not None:
                self._on_answer(answered, ack)
        except errors.NoStreamResponseError as error:
            self._on_no_responders(answered, error)
        except errors.JetsparkError as error:
            self.end(error)

    def _on_answer(self, question: _Question, ack: PubAck | None) -> None:
        if question.mark is not STAGED:
            if ack is None:
                raise errors.JetStreamError("The reply to the commit is empty.")
            self.window.stored(ack)
        elif ack is not None:
            # A server that does not know batches stores each message as an ordinary one.
            raise stored_as_ordinary("atomic batches", ack)
        else:
            self.window.confirm_first()
        self._question = None
        self.changed()

    def _on_no_responders(self, question: _Question | None, error: errors.JetsparkError) -> None:
        try:
            if question is None:
                raise error
            self.repeat(question.tries, lambda: self._send(*question[:3]))
        except errors.JetsparkError as last:
            self.end(last)


def _ack_in(frame: MessageFrame, subject: str) -> PubAck | None:
    """The ack in a reply; None for an empty one. Raises the refusal in it."""
    status = status_of(frame.headers)
    if status is not None and status.is_no_responders:
        raise errors.NoStreamResponseError(subject)
    return parse_pub_ack(frame.payload) if frame.payload else None


class AtomicBatch(BasePublisher[AtomicSender]):
    """See the module and `JetStream.atomic_batch`. For one event loop.

    Example:
        ```python
        last = await js.stream("ORDERS").get(last_by_subject="orders.eu")
        async with js.atomic_batch() as batch:
            await batch.publish("orders.eu", b"4 figs", expect_last_subject_seq=last.seq)
            await batch.publish("orders.us", b"5 kiwis")
        ```
    """

    def __init__(self, sender: AtomicSender) -> None:
        super().__init__(sender)
        self._turn = asyncio.Lock()

    @property
    def size(self) -> int:
        """Messages added so far."""
        return self._window.sent

    @property
    def ack(self) -> PubAck | None:
        """The result of `commit`; None before."""
        return self._sender.window.ack

    async def publish(
        self,
        subject: str,
        payload: Payload = b"",
        **options: Unpack[BatchOptions],
    ) -> int:
        """Add a message to the batch; returns its number in it, 1 for the first.

        The options are those of `JetStream.publish`. `expect_last_seq` belongs to the first
        message; `expect_last_subject_seq` cannot follow a message of the batch on that subject.

        Raises ConfigError, BadNameError and UnsupportedByServerError for options that cannot work,
        the errors of `Client.publish`, ClosedError after `commit` or the block and, about a message
        added before, BatchError, NotEnabledOnStreamError, NoStreamResponseError,
        RequestTimeoutError, BrokenSocketError and APIError for other refusals of the stream.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, since a later call sends it
        publish_headers = self._sender.headers(**options) if options else None
        is_first = options.get("expect_last_seq") is not None
        message = self._sender.message(subject, payload, publish_headers, is_first=is_first)
        window = self._window
        while window.count() >= window.limit or self._outbox.crowded or self._turn.locked():
            await self._wait_for_space()
        return self._sender.add(message)

    async def _wait_for_space(self) -> None:
        async with self._turn:
            if self._window.full:
                await self._ask(self._sender.stage)
            else:
                await self._wait_for_room()

    async def flush(self) -> None:
        """Wait until the server has every message, so that only the commit can still fail.

        Needs nats-server 2.14. Raises the errors of `publish`.
        """
        async with self._turn:
            await self._ask(self._sender.flush)
            self._sender.check_open()

    async def commit(self) -> PubAck:
        """Store all; returns an ack with the last message's `seq` and the `count` of messages.

        Raises WrongLastSequenceError when an expectation does not hold, BatchError, APIError for
        other refusals, and the errors of `publish`: then nothing is stored. RequestTimeoutError,
        BrokenSocketError and ConnectionClosedError leave open whether all or nothing is.
        """
        async with self._turn:
            await self._ask(self._sender.commit)
            return self._sender.committed()

    async def _ask(self, ask: Callable[[], None]) -> None:
        if self._outbox.crowded:
            await self._wait_for_room()
        ask()
        await self._until(lambda: self._sender.answered)

    async def _wait_for_room(self) -> None:
        await room_within(self._outbox, self._sender.window.subject, self._sender.timeout)

    async def _complete(self, *, failed: bool) -> None:
        if not failed and self.size and not self._sender.window.committing:
            await self.commit()

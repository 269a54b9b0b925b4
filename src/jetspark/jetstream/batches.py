"""Batches: atomic ones, and fast ingest (ADR-50)."""

from __future__ import annotations

import asyncio
import math
from copy import copy
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias

import msgspec

from jetspark.arguments import check_whole, checked
from jetspark.client.publishing import NumberedPublishes, Publishing
from jetspark.documents.document import from_wire
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import PubAck
from jetspark.err_codes import BATCH_UNKNOWN
from jetspark.errors import (
    BatchError,
    BrokenSocketError,
    ConfigError,
    DocumentError,
    JetsparkError,
    JetStreamError,
    MaxPayloadError,
    NoStreamResponseError,
    NotStoredError,
    RequestTimeoutError,
)
from jetspark.jetstream.api import Api
from jetspark.jetstream.publisher import (
    PublishFailure,
    PublishTries,
    TimeToLive,
    ack_document,
    link_lost,
    no_more_acks,
    parse_pub_ack,
    publish_headers,
    refusal,
    tell_failures,
)
from jetspark.payloads import Payload, payload_bytes
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.documents import decode_document
from jetspark.wire.headers import COMMIT, COMMIT_BEFORE, MARKS, STAGED, VERSION, encode_headers
from jetspark.wire.status import status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from jetspark.client.requests import Answer
    from jetspark.client.subscription import Listener
    from jetspark.wire.documents import ServerInfo
    from jetspark.wire.headers import Headers, HeadersLike
    from jetspark.wire.kernel import MessageFrame

# -------------------------------------------------------------------------------------------------
# Shared by atomic batches and fast ingest: the checks of a message.


class BatchSending:
    """`publishing`: how messages are sent. `timeout`: seconds; ConfigError when it cannot work."""

    def __init__(self, api: Api, publishing: Publishing, timeout: float) -> None:
        if not timeout > 0:
            raise ConfigError("timeout must be more than 0 seconds.")
        self.client = api.client
        self.publishing = publishing
        self.outbox = publishing.outbox
        self.timeout = timeout
        self._api = api
        self._listener: Listener | None = None

    @property
    def server(self) -> ServerInfo | None:
        """The server that answers; None when that is not known."""
        return self._api.server

    def headers(
        self,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
        expect_last_seq: int | None,
        expect_last_subject_seq: int | None,
        expect_last_subject_seq_of: str | None,
    ) -> Headers | None:
        """The headers of a message with these options of `add`. Raises as `publish_headers`."""
        if (
            headers is None
            and msg_id is None
            and ttl is None
            and expect_last_seq is None
            and expect_last_subject_seq is None
            and expect_last_subject_seq_of is None
        ):
            return None  # most messages: a call less
        return publish_headers(
            self.server,
            headers,
            msg_id=msg_id,
            ttl=ttl,
            expect_last_seq=expect_last_seq,
            expect_last_subject_seq=expect_last_subject_seq,
            expect_last_subject_seq_of=expect_last_subject_seq_of,
        )

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


# -------------------------------------------------------------------------------------------------
# The window of an atomic batch: its messages until the server has stored all or none of them.
#
# Contract. No I/O, no event loop, no clock. Messages are numbered from 1. The newest one is held
# back, since the last one has the commit header: `reserve` holds it, and `release` returns it to
# be sent before the next one is reserved. The batch ends once: by `acked`, or by the first
# `failed`; later calls change nothing.
#
# Threads. `reserve`, `release` and `commit` are for senders, one at a time, in any thread; `acked`
# and `failed` may be called in any thread at any time, and a lock makes the first one count. The
# rest is for the event loop's thread; attributes may be read anywhere.


NO_HEADERS: Final = VERSION + b"\r\n"


class BatchMessage(msgspec.Struct, frozen=True, gc=False):
    """One message, checked. `head`: its header block without the end."""

    subject: str
    payload: bytes
    head: bytes


class AtomicWindow:
    """What was added, what the server keeps, and how it ended. Closed at first."""

    __slots__ = (
        "_lock",
        "_open",
        "ack",
        "committing",
        "error",
        "held",
        "kept",
        "size",
        "subject",
        "subjects",
    )

    def __init__(self) -> None:
        self.size = 0
        """Messages added so far."""
        self.held: BatchMessage | None = None
        """The newest message, while it was not sent."""
        self.kept = False
        """Whether the server has said that it keeps the first message."""
        self.committing = False
        """Whether the commit was sent: all or nothing may be stored."""
        self.error: JetsparkError | None = None
        """Why nothing is stored, or why that is unknown."""
        self.ack: PubAck | None = None
        """The answer to the commit."""
        self.subject = ""
        """Of the last message that was given out."""
        self.subjects: set[str] = set()
        """Of all that were given out."""
        self._open = False
        self._lock = Lock()

    def check_open(self) -> None:
        """Raises why no message can be added: the error of the batch, or ConfigError."""
        if self.error is not None:
            raise self.error
        if not self._open:
            raise ConfigError("The batch is not open: use it inside its with block.")
        if self.committing:
            raise ConfigError("The batch was committed already.")

    # -- whoever adds ----------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether the first message is held: it is sent, and answered, before there is a second."""
        return self.held is not None and not self.kept

    def release(self) -> tuple[int, BatchMessage] | None:
        """The message that is held, to be sent now, and its number. None: there is none."""
        if (held := self.held) is None:
            return None
        self.held = None
        subject = self.subject = held.subject
        self.subjects.add(subject)
        return self.size, held

    def reserve(self, message: BatchMessage) -> int:
        """One more message: its number. None may be held."""
        assert self.held is None  # noqa: S101
        self.held = message
        self.size += 1
        return self.size

    def commit(self) -> tuple[int, BatchMessage, bytes]:
        """What to commit with: number, message and mark. Raises ConfigError for an empty batch."""
        if not self.size:
            raise ConfigError("The batch is empty.")
        self.committing = True
        if (last := self.release()) is not None:
            return *last, COMMIT
        return self.size + 1, BatchMessage(self.subject, b"", NO_HEADERS), COMMIT_BEFORE

    # -- any thread ------------------------------------------------------------------------------

    def acked(self, ack: PubAck) -> None:
        """All is stored."""
        with self._lock:
            if self.error is None:
                self.ack = ack

    def failed(self, error: JetsparkError) -> bool:
        """A refusal, or an end. True: it is the first one, and the reason for all that follow."""
        with self._lock:
            if self.error is not None or self.ack is not None:
                return False
            self.error = error
            return True

    # -- the event loop's thread -----------------------------------------------------------------

    def open(self) -> None:
        """Take messages from now on."""
        self._open = True

    def close(self) -> bool:
        """Take no more. True: the server keeps messages that will not be committed."""
        self._open = False
        return self.kept and not self.committing

    def lost(self) -> BrokenSocketError:
        """What the loss of the link means."""
        if self.committing:
            message = "The connection was lost at the commit: the batch may be stored or not."
        else:
            message = "The connection was lost, and the batch with it: nothing of it is stored."
        return BrokenSocketError(message)

    def expired(self, timeout: float) -> RequestTimeoutError:
        """What it means that an answer did not come within `timeout` seconds."""
        if self.committing:
            what = "the commit of the batch, which may be stored or not"
        else:
            what = "a message of the batch, which is not stored"
        return RequestTimeoutError(f"No answer within {timeout:g} s to {what}.")


# -------------------------------------------------------------------------------------------------
# An atomic batch and its server, whether the messages come from tasks or threads (ADR-50).
#
# Contract. `message`, `add` and `send` are for senders, one at a time, in any thread; all the rest
# runs in the event loop's thread. Every message has a reply subject, so that the first refusal is
# received. Replies arrive on one wildcard inbox, whose handler runs in the read loop. No task,
# future or timer is created for a message that needs no reply.


_MARKS_SIZE: Final = 160  # bytes; of the three headers, and some more


class Staging(BatchSending):
    """Sends the messages of one batch and handles the replies."""

    def __init__(self, api: Api, publishing: Publishing, timeout: float) -> None:
        super().__init__(api, publishing, timeout)
        self.window = AtomicWindow()
        self._inbox = b""
        self._id = b""
        self._asked = 0  # the number of the message that `_answer` waits for
        self._answer: Answer | None = None

    # -- whoever adds ----------------------------------------------------------------------------

    def message(
        self,
        subject: str,
        payload: bytes,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
        expect_last_seq: int | None,
        expect_last_subject_seq: int | None,
        expect_last_subject_seq_of: str | None,
        *,
        in_hook: bool = False,
    ) -> BatchMessage:
        """A message with these options of `add`, which is sent later.

        `in_hook`: the hook was told of it. Raises what `AtomicWindow.check_open`, `publish_headers`
        and `Publishing.send` raise.
        """
        if (hooked := self.publishing.hooked) is not None and not in_hook:
            make = partial(
                self.message,
                subject,
                payload,
                msg_id=msg_id,
                ttl=ttl,
                expect_last_seq=expect_last_seq,
                expect_last_subject_seq=expect_last_subject_seq,
                expect_last_subject_seq_of=expect_last_subject_seq_of,
                in_hook=True,
            )
            return hooked.send(subject, payload, None, headers, make)
        self.window.check_open()
        if expect_last_seq is not None and self.window.size:
            raise ConfigError("expect_last_seq belongs to the first message of a batch.")
        kept = self.headers(
            headers,
            msg_id,
            ttl,
            expect_last_seq,
            expect_last_subject_seq,
            expect_last_subject_seq_of,
        )
        self.publishing.encode_subject(subject)
        head = NO_HEADERS
        if kept is not None:
            for name in [name for name in kept if name.startswith("Nats-Batch-")]:
                kept.delete(name)  # of a message that came out of another batch
            head = encode_headers(kept)[:-2]
        size = len(head) + _MARKS_SIZE + len(payload)
        if size > self.publishing.link.max_payload:
            raise MaxPayloadError(size, self.publishing.link.max_payload)
        return BatchMessage(subject, payload, head)

    def add(self, message: BatchMessage) -> int:
        """Send the message that is held and hold this one: its number.

        Raises as `send`, and what `AtomicWindow.check_open` raises.
        """
        self.window.check_open()
        if (held := self.window.release()) is not None:
            number, other = held
            self.send(number, other, STAGED)
        return self.window.reserve(message)

    def send(self, number: int, message: BatchMessage, mark: bytes) -> None:
        """Put one message into the outbox. Raises as `Publishing.send`; then the batch has failed.

        `mark`: one of `wire.headers`.
        """
        try:
            self.publishing.send_replying(
                message.subject,
                message.payload,
                b"%b%d" % (self._inbox, number),
                message.head + MARKS % (self._id, number, mark),
            )
        except BaseException as error:  # a message is missing now
            self.window.failed(error if isinstance(error, JetsparkError) else interrupted(number))
            raise

    # -- asking ----------------------------------------------------------------------------------

    def ask(self, number: int, message: BatchMessage, mark: bytes, answer: Answer) -> None:
        """`send` a message whose reply goes to `answer`, until `stop_asking`."""
        self._asked, self._answer = number, answer
        self.send(number, message, mark)

    def stop_asking(self) -> None:
        """Nobody waits for the answer any more."""
        self._answer = None

    def kept(self, frame: MessageFrame) -> None:
        """The answer to a message that the server should keep aside. Raises JetStreamError.

        A server that does not know batches stores each message as an ordinary one.
        """
        if frame.payload:
            ack = parse_pub_ack(frame.payload)
            error = JetStreamError(
                "The server does not support atomic batches: it stored the first message as an "
                f"ordinary one, in {ack.stream} at sequence {ack.seq}. The others were not sent."
            )
            self.window.failed(error)
            raise error
        self.window.kept = True

    # -- life ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Take messages from now on. Raises as `Client.listen`."""
        inbox = self.client.new_inbox()
        self._inbox = f"{inbox}.".encode()
        self._id = inbox.rpartition(".")[2].encode()
        self._listener = self.client.listen(
            f"{inbox}.*",
            self._on_answer,
            on_disconnect=lambda: self._fail(self.window.lost()),
            on_refused=self._on_refused,
            on_end=lambda error: self._fail(no_more_acks(error)),
        )
        self.window.open()

    def close(self) -> None:
        """Take no more; a batch that was not committed is given up."""
        self._stop_listening()
        if self.window.close() and self.client.is_connected:
            self._give_up()

    def _give_up(self) -> None:
        """Make the server forget the batch now, not in 10 s: a gap in the numbers does it."""
        window = self.window
        try:
            self.publishing.send_replying(
                window.subject,
                b"",
                self._inbox + b"0",
                NO_HEADERS + MARKS % (self._id, window.size + 2, STAGED),
            )
        except JetsparkError:
            pass  # it will forget by itself

    # -- answers: called in the read loop --------------------------------------------------------

    def _on_answer(self, frame: MessageFrame) -> None:
        if not frame.payload and frame.headers is None and self._answer is None:
            return  # one of many that are kept aside
        try:
            number = int(frame.subject[len(self._inbox) :])
        except ValueError:
            return
        if number == self._asked and self._answer is not None:
            if not self._answer.done():
                self._answer.set_result(frame)
        elif (error := refusal_in(frame, self.window.subject)) is not None:
            self._fail(error)

    def _on_refused(self, name: str, error: JetsparkError) -> None:
        # A copy: senders in other threads add to the set.
        if name in self.window.subjects.copy() or name.startswith(self._inbox.decode()):
            self._fail(copy(error))

    def _fail(self, error: JetsparkError) -> None:
        answer = self._answer
        if self.window.failed(error) and answer is not None and not answer.done():
            answer.set_exception(error)


def interrupted(number: int) -> JetStreamError:
    """The sender of this message no longer waits."""
    return JetStreamError(f"The batch was interrupted at message {number}.")


def refusal_in(frame: MessageFrame, subject: str) -> JetsparkError | None:
    """What an answer refuses with; an empty one, or an ack, refuses nothing."""
    status = status_of(frame.headers)
    if status is not None and status.is_no_responders:
        return NoStreamResponseError(subject)
    if frame.payload:
        try:
            parse_pub_ack(frame.payload)
        except JetsparkError as error:
            return error
    return None


# -------------------------------------------------------------------------------------------------
# Atomic batches: messages that are stored together or not at all (ADR-50).
#
# Contract. `add` sends a message to the server, which stages it; `commit` stores all of them, one
# after the other with nothing in between, and returns the ack of the last one. Leaving the block
# commits, unless that was done; leaving it by an exception abandons the batch.
#
# The newest message is held back, because the last message of a batch has the commit header; only
# `flush` sends it earlier. So the refusal of a message may be raised by a later call, at the
# latest by `commit`. Expectations are checked when the batch is committed: if one fails, the batch
# is refused. After an error before the commit was sent, nothing is stored. After that, without a
# reply it is unknown whether all or nothing was stored; if one message of the batch has an
# expectation, it is safe to publish the batch again.
#
# The server abandons a batch after 10 s without a message, at more than 1,000 messages, and at
# more than 50 batches at a time in a stream; a lost connection ends it as well. Any number of
# tasks may add, one after the other.


class AtomicBatch:
    """See the module and `JetStream.atomic_batch`. For one event loop."""

    def __init__(self, inner: Staging) -> None:
        self._inner = inner
        self._window = inner.window
        self._outbox = inner.outbox
        self._loop = inner.client.loop
        self._turn = asyncio.Lock()

    @property
    def size(self) -> int:
        """Messages added so far."""
        return self._window.size

    @property
    def ack(self) -> PubAck | None:
        """What `commit` returned; None before."""
        return self._window.ack

    async def add(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
        expect_last_seq: int | None = None,
        expect_last_subject_seq: int | None = None,
        expect_last_subject_seq_of: str | None = None,
    ) -> int:
        """One more message; returns its number in the batch, 1 for the first.

        The options are those of `JetStream.publish`. `expect_last_seq` belongs to the first
        message; `expect_last_subject_seq` cannot follow a message of the batch on that subject.

        Raises ConfigError, BadNameError and UnsupportedByServerError for options that cannot work,
        what `Client.publish` raises, and, about a message added before, BatchError,
        NotEnabledOnStreamError, NoStreamResponseError, RequestTimeoutError, BrokenSocketError and
        APIError for other refusals of the stream.
        """
        payload = payload_bytes(payload)  # as it is now: it is sent with a later call
        async with self._turn:
            message = self._inner.message(
                subject,
                payload,
                headers,
                msg_id,
                ttl,
                expect_last_seq,
                expect_last_subject_seq,
                expect_last_subject_seq_of,
            )
            if self._window.waits:
                await self._stage()
            elif self._outbox.crowded:
                await self._outbox.wait()
            return self._inner.add(message)

    async def flush(self) -> None:
        """Wait until the server has every message, so that all but the commit can have failed.

        Needs nats-server 2.14. Raises as `add`.
        """
        async with self._turn:
            self._window.check_open()
            check_feature("flush of an atomic batch", (2, 14), self._inner.server)
            await self._stage()

    async def commit(self) -> PubAck:
        """Store all: the ack has the last message's `seq` and the `count` of messages.

        Raises WrongLastSequenceError when an expectation does not hold, BatchError, APIError for
        other refusals, and what `add` raises; nothing is stored then. RequestTimeoutError,
        BrokenSocketError and ConnectionClosedError leave open whether all or nothing is.
        """
        async with self._turn:
            self._window.check_open()
            frame = await self._ask(*self._window.commit())
            ack = parse_pub_ack(frame.payload)
            self._window.acked(ack)
            return ack

    # -- life ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._inner.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._window.size and not self._window.committing:
                await self.commit()
        finally:
            self._inner.close()

    # -- asking --------------------------------------------------------------------------------

    async def _stage(self) -> None:
        """Send the message that is held, if any, and wait until the server keeps it."""
        if (held := self._window.release()) is not None:
            self._inner.kept(await self._ask(*held, STAGED))

    async def _ask(self, number: int, message: BatchMessage, mark: bytes) -> MessageFrame:
        """Send and await the reply; retry without responders as in ADR-22."""
        inner, loop = self._inner, self._loop
        deadline = loop.time() + inner.timeout
        tries = PublishTries(message.subject, inner.timeout)
        try:
            while True:
                if self._outbox.crowded:
                    await self._outbox.wait()
                answer: asyncio.Future[MessageFrame] = loop.create_future()
                inner.ask(number, message, mark, answer)
                async with asyncio.timeout_at(deadline):
                    frame = await answer
                refused = refusal_in(frame, message.subject)
                if refused is None:
                    return frame
                if not isinstance(refused, NoStreamResponseError):
                    raise refused
                await asyncio.sleep(tries.pause())
        except JetsparkError as error:
            self._window.failed(error)
            raise
        except TimeoutError:
            late = self._window.expired(inner.timeout)
            self._window.failed(late)
            raise late from None
        except BaseException:
            self._window.failed(interrupted(number))
            raise
        finally:
            inner.stop_asking()


# -------------------------------------------------------------------------------------------------
# The server's replies to a fast-ingest batch (ADR-50). No I/O.


START: Final = 0
APPEND: Final = 1
END: Final = 3
PING: Final = 4


class Flow(NamedTuple):
    """All up to `number` are stored, except those reported as lost; an ack every `messages`."""

    number: int
    messages: int


class Gap(NamedTuple):
    """From `first` to `last`, both included, nothing arrived."""

    first: int
    last: int


class Refusal(NamedTuple):
    """The stream does not take message `number`, or a ping or end that had this number."""

    number: int
    error: JetsparkError
    of_message: bool = True
    goes_on: bool = False
    """The server said that the batch knows of it, and may go on."""


class NoResponders(NamedTuple):
    """Nobody took message `number`, or a ping or end that had this number."""

    number: int
    of_message: bool


class Last(NamedTuple):
    """The batch ended after `stored` messages; None: the server knows no such batches."""

    stored: int | None
    ack: PubAck


Reply: TypeAlias = "Flow | Gap | Refusal | NoResponders | Last"


def parse_reply(frame: MessageFrame, head: int) -> Reply:
    """A reply, whose subject has `head` bytes before the number it answers to."""
    number, of_message = asked(frame.subject[head:])
    try:
        status = status_of(frame.headers)
        if status is not None and status.is_no_responders:
            return NoResponders(number, of_message)
        return _parse(decode_document(frame.payload, "reply"), frame.payload)
    except (DocumentError, KeyError, TypeError, ValueError, OverflowError):
        text = f"A reply to the batch cannot be read: {frame.payload[:80]!r}."
        return Refusal(number, JetStreamError(text), of_message)
    except JetsparkError as error:
        return Refusal(number, error, of_message)


def asked(tail: bytes) -> tuple[int, bool]:
    """The number that is answered to, and whether it is a message's."""
    number, _, rest = tail.partition(b".")
    operation = rest.partition(b".")[0]
    try:
        return int(number), int(operation) in (START, APPEND)
    except ValueError:
        return 0, False


def _parse(said: dict[str, Any], payload: bytes) -> Reply:
    match said.get("type"):
        case "ack":
            return Flow(int(said["seq"]), max(1, int(said["msgs"])))
        case "gap":
            return Gap(int(said["last_seq"]), int(said["seq"]) - 1)
        case "err":
            return Refusal(int(said["seq"]), refusal(said["error"]), goes_on=True)
    ack = from_wire(PubAck, ack_document(payload))
    return Last(ack.count if ack.batch is not None else None, ack)


# -- the errors of messages --------------------------------------------------------------------


def is_unknown_batch(error: JetsparkError) -> bool:
    """Whether the server has forgotten the batch: it takes no more of it."""
    return isinstance(error, BatchError) and error.err_code == BATCH_UNKNOWN


def was_lost(number: int) -> NotStoredError:
    """On the way to the stream."""
    return NotStoredError(f"Message {number - 1} of the batch did not reach the stream.")


def ended_after(stored: int) -> NotStoredError:
    """The server's last word."""
    return NotStoredError(f"The batch ended after {stored} messages; this one is not stored.")


def forgotten(cause: JetsparkError) -> JetStreamError:
    """Of messages that were sent before."""
    error = JetStreamError(f"The batch is over ({cause}); without an ack it may be stored or not.")
    error.__cause__ = cause
    return error


def no_word(timeout: float) -> RequestTimeoutError:
    """Nothing came back, not even to pings."""
    return RequestTimeoutError(
        f"The server sent nothing about the batch within {timeout:g} s; it may be stored or not."
    )


def not_known_there(ack: PubAck) -> JetStreamError:
    """A server before 2.14 behind a domain, of which we cannot know."""
    return JetStreamError(
        "The server does not support fast ingest: it stored the first message as an ordinary one, "
        f"in {ack.stream} at sequence {ack.seq}. No more were sent."
    )


# -------------------------------------------------------------------------------------------------
# The window of a fast-ingest batch: messages in flight, until they are acknowledged or fail.
#
# Contract. No I/O, no event loop, no clock. Messages are numbered from 1, as in the protocol;
# users see indexes, from 0. A message ends exactly once: acknowledged, or in `failures`, or taken
# back by `withdraw`. All messages up to `done` have ended; of those after it, some may have failed
# already. Memory is used only for messages that have not ended, and for failures.
#
# Threads. `reserve`, `withdraw` and `published` are for senders, one at a time, in any thread; all
# the rest is for the event loop's thread; attributes and counts may be read anywhere. Both sides
# use one list, whose single operations are atomic. Where two operations belong together there is a
# lock, which the sender of a successful message does not need.


class IngestWindow:
    """`flow`: messages for one ack. `outstanding`: acks that may be missing. Closed at first."""

    __slots__ = (
        "_doubted",
        "_failed_ahead",
        "_flow",
        "_lock",
        "_outstanding",
        "_refused",
        "_subject",
        "_subjects",
        "closed",
        "done",
        "failures",
        "limit",
        "published",
        "sent",
    )

    def __init__(self, *, flow: int, outstanding: int) -> None:
        self.sent = 0
        """Messages taken so far."""
        self.published = 0
        """The last message that was certainly sent; senders set it."""
        self.done = 0
        """All messages up to this one have ended."""
        self.limit: float = math.inf
        """No message is let in while so many were taken. Without end when closed: none waits."""
        self.failures: list[PublishFailure] = []
        """What failed, in the order in which that was known."""
        self._flow = flow
        self._outstanding = outstanding
        self._subjects: list[str] = []  # of the messages after `done`
        self._subject = ""  # of the last one that is `done`, as `_newest` chooses
        self._refused: set[str] = set()  # subjects that may not be published to
        self._doubted: set[str] = set()  # subjects that nobody took a message of
        self._failed_ahead: set[int] = set()  # numbers after `done`
        self.closed = True
        """Whether no more messages are taken."""
        self._lock = Lock()

    @property
    def full(self) -> bool:
        """Whether a sender has to wait."""
        return self.sent >= self.limit

    @property
    def pending(self) -> int:
        """Messages that have not ended."""
        return self.sent - self.done - len(self._failed_ahead)

    @property
    def acked(self) -> int:
        """Messages acknowledged."""
        return self.done + len(self._failed_ahead) - len(self.failures)

    # -- senders -------------------------------------------------------------------------------

    def reserve(self, subject: str) -> int:
        """Take a message: its index. Never waits. Whether it may be sent, `closed` says then.

        In this order: whoever closes the window sees the message, or the sender sees `closed`.
        """
        index = self.sent
        self._subjects.append(subject)
        self.sent = index + 1
        return index

    def withdraw(self, index: int) -> bool:
        """Take back the newest message, which was not sent. False: it has ended already."""
        with self._lock:
            if index + 1 in self._failed_ahead or index < self.done:
                return False
            self.sent = index
            self._subjects.pop()
            return True

    # -- the event loop's thread -----------------------------------------------------------------

    def open(self) -> None:
        """Accept messages: one, until the server has said how many may be in flight."""
        self.closed = False
        self.limit = 1

    def close(self) -> None:
        """Take no more; those that were taken may still be acknowledged."""
        self.closed = True
        self.limit = math.inf

    def acked_up_to(self, number: int, flow: int | None = None) -> None:
        """All messages up to this one are stored, except those that failed.

        `flow`: the server's word on how many messages get one ack from now on.
        """
        if flow is not None:
            self._flow = flow
        with self._lock:
            number = min(number, self.sent)
            step = number - self.done
            if step > 0:
                self._subject = self._newest([self._subject, *self._subjects[:step]]) or ""
                del self._subjects[:step]
                self.done = number
                if self._failed_ahead:
                    self._failed_ahead = {each for each in self._failed_ahead if each > number}
        self._let_in()

    def failed(self, numbers: Sequence[int], error: JetsparkError) -> None:
        """These messages are lost or refused; the first reason that is given counts."""
        for number in numbers:
            with self._lock:
                if number in self._failed_ahead or not self.done < number <= self.sent:
                    continue
                self._failed_ahead.add(number)
                subject = self._subjects[number - self.done - 1]
            self.failures.append(PublishFailure(number - 1, subject, error))
        self._let_in()

    def over(self, error: JetsparkError) -> None:
        """No more replies will arrive: close, and fail the messages that have not ended."""
        self.close()
        self.failed(range(self.done + 1, self.sent + 1), error)

    def _let_in(self) -> None:
        """What failed does not count as outstanding."""
        if not self.closed:
            self.limit = self.done + len(self._failed_ahead) + self._flow * self._outstanding

    # -- subjects --------------------------------------------------------------------------------

    def open_subject(self) -> str | None:
        """The subject of the newest message that may have been let through."""
        with self._lock:
            return self._newest([self._subject, *self._subjects])

    def nobody_took(self, number: int) -> None:
        """There were no responders for this message: others' subjects serve better to ask."""
        with self._lock:
            at = number - self.done - 1
            subject = self._subjects[at] if 0 <= at < len(self._subjects) else ""
            self._doubted.add(subject)
        self.failed((number,), NoStreamResponseError(subject))

    def refuse(self, subject: str) -> tuple[list[int], bool]:
        """The subject may not be published to: its messages, and whether that is news here."""
        with self._lock:
            news = subject not in self._refused and subject in (self._subject, *self._subjects)
            if news:
                self._refused.add(subject)
            numbers = enumerate(self._subjects, self.done + 1)
            return [number for number, each in numbers if each == subject], news

    def _newest(self, subjects: list[str]) -> str | None:
        """The last that may be published to, if possible one that had responders."""
        fitting = (each for each in reversed(subjects) if each and each not in self._refused)
        if not self._doubted:
            return next(fitting, None)
        kept = [*fitting]
        return next((each for each in kept if each not in self._doubted), kept[0] if kept else None)


# -------------------------------------------------------------------------------------------------
# A fast-ingest batch and its server, whether the senders are tasks or threads (ADR-50).
#
# Contract. `add` may be called in any thread, one at a time; `open`, `finish`, `close` and
# everything below them run in the event loop's thread; properties may be read anywhere. A sender
# that has to wait, for space or for the end, waits in the class that owns this one: `changed` is
# called whenever there may be space, or the batch has ended. Replies arrive on one wildcard inbox,
# whose handler runs in the read loop. No task, future or timer is created for a message.


GapPolicy: TypeAlias = Literal["fail", "ok"]

_PINGS: Final = 10  # how often within one timeout overdue acks are asked for, at least
_OVERDUE: Final = 1.0  # seconds
_KEEP_ALIVE: Final = 2.5  # seconds; the server forgets a batch after 10
_APPENDED: Final = b".%d.$FI" % APPEND


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """What `JetStream.fast_ingest` takes. Raises ConfigError for what cannot work."""

    gaps: GapPolicy
    ack_every: int
    outstanding: int
    timeout: float

    def __post_init__(self) -> None:
        if self.gaps not in ("fail", "ok"):
            raise ConfigError('gaps must be "fail" or "ok".')
        check_whole("ack_every", self.ack_every)
        if self.ack_every > 65535:
            raise ConfigError("ack_every must be from 1 to 65535.")
        check_whole("outstanding", self.outstanding)


@dataclass(frozen=True, slots=True)
class _First:
    """The message that opens the batch, kept while it may have to be sent again."""

    subject: str
    payload: bytes
    headers: Headers | None
    tries: PublishTries


class Ingesting(BatchSending):
    """Sends the messages of one batch and follows each to its ack or failure."""

    def __init__(self, api: Api, publishing: Publishing, options: IngestOptions) -> None:
        super().__init__(api, publishing, options.timeout)
        self.window = IngestWindow(flow=options.ack_every, outstanding=options.outstanding)
        self.ack: PubAck | None = None
        """The server's last word."""
        self.over: JetsparkError | None = None
        """Why nothing more will be heard; None before the end."""
        self.changed: Callable[[], None] = _nothing
        """Called in the event loop's thread; set by the owner."""
        self._gaps = options.gaps
        self._head = b""  # of all reply subjects: the inbox and how the batch goes
        self._agreed = f"{options.ack_every}.{options.gaps}"
        self._append = NumberedPublishes(publishing, b"").send
        self._looked_at = 0
        self._timer: asyncio.TimerHandle | None = None
        self._first: _First | None = None
        self._repeating: asyncio.TimerHandle | None = None  # the first message is sent again then
        self._ending = False
        self._broken: JetsparkError | None = None  # a message that is missing ends the batch
        self._heard = 0.0

    # -- senders -------------------------------------------------------------------------------

    def add(
        self, subject: str, payload: bytes, headers: Headers | None, *, in_hook: bool = False
    ) -> int:
        """Take a message and send it: its index. `in_hook`: the hook was told of it.

        Raises what `Publishing.send` raises and, when the batch is over, why; such a message has
        no index.
        """
        if (hooked := self.publishing.hooked) is not None and not in_hook:
            put = partial(self.add, subject, payload, in_hook=True)
            return hooked.send(subject, payload, None, headers, put)
        window = self.window
        # Before it is sent: an ack may be counted in the loop's thread while we are still here.
        index = window.reserve(subject)
        if window.closed:
            if window.withdraw(index):
                self.check_open()
            return index
        try:
            if index:
                self._append(index + 1, subject, payload, headers)
            else:
                tries = PublishTries(subject, self.timeout)
                self._first = _First(subject, payload, headers, tries)
                self._control(START, 1, subject, payload, headers)
        except BaseException as error:
            if window.withdraw(index) or not isinstance(error, JetsparkError):
                raise
            return index
        window.published = index + 1
        return index

    def check_open(self) -> None:
        """Raises why no message can be added: the error that ended the batch, or ConfigError."""
        if self.over is not None:
            raise self.over
        if self._listener is None:
            raise ConfigError("The batch is not open: use it inside its with block.")
        if self._ending:
            raise self._broken or ConfigError("The batch was ended already.")

    # -- results -------------------------------------------------------------------------------

    def failed(self) -> list[PublishFailure]:
        """The failures; they count as looked at from now on."""
        failed = self.window.failures.copy()
        self._looked_at = len(failed)
        return failed

    def tell_failures(self, error: BaseException | None) -> None:
        """At the end of a block that may have raised `error`: raises PublishFailedError.

        Only for failures that nobody has looked at; to another error they are added as a note.
        """
        tell_failures(self.window.failures[self._looked_at :], error)

    # -- life ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Take messages from now on. Raises as `Client.listen`."""
        inbox = self.client.new_inbox()
        self._head = f"{inbox}.{self._agreed}.".encode()
        self._append = NumberedPublishes(self.publishing, self._head, _APPENDED).send
        self._listener = self.client.listen(
            f"{inbox}.>",
            self._on_reply,
            on_disconnect=self._on_disconnect,
            on_reconnect=self._on_reconnect,
            on_refused=self._on_refused,
            on_end=lambda error: self._end(no_more_acks(error)),
        )
        self.window.open()
        self._heard = self.client.loop.time()
        self._look_at_the_clock()

    def finish(self) -> None:
        """Take no more and ask for the server's last word, once. Raises as `check_open`."""
        if self.over is not None or self._ending:
            return
        self.check_open()
        self._finish()

    def _finish(self) -> None:
        self._ending = True
        self.window.close()
        if not self.window.sent:
            self.over = ConfigError("The batch was ended already.")
        else:
            self._ask()
        self.changed()

    def close(self) -> None:
        """Unsubscribe; pending messages fail."""
        self._stop_listening()
        for timer in (self._timer, self._repeating):
            if timer is not None:
                timer.cancel()
        self._end(JetStreamError("The batch was left before the ack came."))

    def _end(self, error: JetsparkError) -> None:
        """The batch is over: pending messages fail for this reason."""
        if self.over is None:
            self.over = error
            self.window.over(error)
            self.changed()

    # -- replies: called in the read loop --------------------------------------------------------

    def _on_reply(self, frame: MessageFrame) -> None:
        if self.over is not None:
            return
        reply = parse_reply(frame, len(self._head))
        match reply:
            case NoResponders(_, of_message=False):
                return  # a ping, or the end: if it is lost, it is repeated later
            case Refusal(_, error, of_message=False):
                self._end(forgotten(error))
                return
        window = self.window
        self._heard = self.client.loop.time()
        if not isinstance(reply, NoResponders):
            self._first = None
        match reply:
            case NoResponders(number):
                self._on_no_responders(number)
            case Flow(number, messages):
                window.acked_up_to(number, messages)
            case Gap(first, last):
                for number in range(first, min(last, window.sent) + 1):
                    window.failed((number,), was_lost(number))
            case Refusal(number, error):
                self._on_refusal(number, error, goes_on=reply.goes_on)
            case Last(stored, ack):
                self._on_last_word(stored, ack)
        self.changed()

    def _on_no_responders(self, number: int) -> None:
        """Nobody took a message. The first is sent again (ADR-22): no other one is on its way."""
        if number == 1 and self._first is not None:
            try:
                pause = self._first.tries.pause()
            except NoStreamResponseError as error:
                self.window.failed((1,), error)
                self._end(error)
                return
            self._repeating = self.client.loop.call_later(
                pause, self._send_first_again, self._first
            )
        else:
            self.window.nobody_took(number)
            if self._ending:
                self._ask()  # the end may have gone the same way

    def _send_first_again(self, first: _First) -> None:
        self._repeating = None
        if self.over is not None:
            return
        try:
            self._control(START, 1, first.subject, first.payload, first.headers)
        except JetsparkError as error:
            self.window.failed((1,), error)
            self._end(error)
            return
        if self._ending:
            self._ask()

    def _on_refusal(self, number: int, error: JetsparkError, *, goes_on: bool) -> None:
        window = self.window
        if is_unknown_batch(error):
            window.failed(range(number, window.sent + 1), error)
            self._end(forgotten(error))
        else:
            window.failed((number,), error)
            if number == 1 and not goes_on:
                self._end(error)

    def _on_last_word(self, stored: int | None, ack: PubAck) -> None:
        if stored is None:
            self.window.acked_up_to(1)
            self._end(not_known_there(ack))
            return
        self.ack = ack
        self.window.acked_up_to(stored)
        self._end(ended_after(stored))

    def _on_refused(self, name: str, error: JetsparkError) -> None:
        """Messages, or a question, that never came to the stream."""
        if self.over is not None:
            return
        if name.startswith(head := self._head.decode()):
            number, of_message = asked(name[len(head) :].encode())
            numbers, again = [number] if of_message else [], False
        else:
            numbers, again = self.window.refuse(name)
        for number in numbers:
            self.window.failed((number,), copy(error))
        if 1 in numbers or (again and self.window.open_subject() is None):
            self._end(error)  # it has not begun, or nothing can be asked
        elif numbers and self._gaps == "fail" and not self._ending:
            self._broken = error
            self._finish()
        elif again and self._ending:
            self._ask()  # it may have been the end that was refused
        self.changed()

    # -- time and the link -----------------------------------------------------------------------

    def _look_at_the_clock(self) -> None:
        """Ask when an answer is overdue, or when the server would forget us."""
        loop, window = self.client.loop, self.window
        pause = min(self.timeout / _PINGS, _OVERDUE)
        self._timer = loop.call_later(pause, self._look_at_the_clock)
        if not window.sent or self.over is not None or not self.client.is_connected:
            self._heard = loop.time()
            return
        silent = loop.time() - self._heard
        waits = window.pending > 0 or self._ending
        if silent > self.timeout and waits:
            self._end(no_word(self.timeout))
        elif silent >= (pause if waits else min(self.timeout / 2, _KEEP_ALIVE)):
            self._ask()

    def _ask(self) -> None:
        """For the acks that are missing, or for the last word; asked again in time."""
        subject = self.window.open_subject()
        if subject is not None and self._repeating is None:
            operation = END if self._ending else PING
            try:
                self._control(operation, self.window.published + self._ending, subject)
            except JetsparkError:
                pass

    def _control(
        self,
        operation: int,
        number: int,
        subject: str,
        payload: bytes = b"",
        headers: Headers | None = None,
    ) -> None:
        """The first message, or one that the server does not store: a ping, or the end."""
        reply = b"%b%d.%d.$FI" % (self._head, number, operation)
        self.publishing.send_replying(subject, payload, reply, headers)

    def _on_disconnect(self) -> None:
        # Asked about the first message, a server that has restarted would begin a new batch.
        window = self.window
        if window.sent == window.pending == 1 and self._repeating is None:
            self._end(link_lost(0, window.open_subject() or ""))

    def _on_reconnect(self) -> None:
        self._heard = self.client.loop.time()
        if self.window.sent and self.over is None:
            self._ask()


def _nothing() -> None:
    """Before there is an owner."""


# -------------------------------------------------------------------------------------------------
# Fast ingest: an open-ended batch with one ack for hundreds of messages (ADR-50).
#
# Contract. `add` returns as soon as the message is in the outbox; it waits while `outstanding`
# acks are missing, each of which covers as many messages as the server decides. Every message ends
# in exactly one way: acknowledged (counted in `acked`) or failed (listed in `failed`). Leaving the
# block ends the batch, waits for its final ack, then raises PublishFailedError for failures since
# `failed` was last read.
#
# `gaps="fail"`: the first message that is lost or refused ends the batch; all messages before it
# are stored, in order, and all after it fail with NotStoredError. `gaps="ok"`: the batch
# continues, and lost or refused messages are listed. Nothing is sent a second time, except the
# first message while there are no responders for it (ADR-22). The server reports a refused message
# (an expectation, a limit of the stream) only once; its acks and the final ack count that message
# as the others. If the report is lost, the message counts as acknowledged, and no client can know.
# So "ok" is for messages that the stream will not refuse; the acks of "fail" are exact.
#
# A message that no server accepts, by permission or size, fails at once: with "fail" the batch
# ends before it.
#
# The server drops a batch after 10 s without a message: a ping keeps it alive, and requests
# overdue acks and, after a reconnect, what was lost. A restarted server does not know the batch:
# it is over, and messages without an ack may be stored or not. The same applies when nothing is
# received within `timeout` seconds of connected time.


class FastIngest:
    """See the module and `JetStream.fast_ingest`. For one event loop; many tasks may add."""

    def __init__(self, inner: Ingesting) -> None:
        self._inner = inner
        self._window = inner.window
        self._outbox = inner.outbox
        self._loop = inner.client.loop
        self._waiting: list[asyncio.Future[None]] = []
        inner.changed = self._changed

    # -- results -------------------------------------------------------------------------------

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._window.sent

    @property
    def pending(self) -> int:
        """Messages of which nothing is known yet."""
        return self._window.pending

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._window.acked

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages that failed so far. Reading counts as having looked at them."""
        return self._inner.failed()

    @property
    def ack(self) -> PubAck | None:
        """The server's last word: `seq` of the last message stored; None before."""
        return self._inner.ack

    # -- sending -------------------------------------------------------------------------------

    async def add(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
        expect_last_seq: int | None = None,
        expect_last_subject_seq: int | None = None,
        expect_last_subject_seq_of: str | None = None,
    ) -> int:
        """Publish, waiting only while too many acks are outstanding; returns the message's index.

        The options are those of `JetStream.publish`. Raises what `Client.publish` raises, and
        ConfigError, BadNameError and UnsupportedByServerError for options that cannot work; such a
        message was not taken and has no index. When the batch is over it raises why.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # as it is now, not when there is room
        inner, window = self._inner, self._window
        while window.sent >= window.limit or self._outbox.crowded:
            await self._wait_for_space()
        kept = inner.headers(
            headers,
            msg_id,
            ttl,
            expect_last_seq,
            expect_last_subject_seq,
            expect_last_subject_seq_of,
        )
        return inner.add(subject, payload, kept)

    async def commit(self) -> PubAck | None:
        """End the batch and wait until the fate of every message is known.

        Returns the server's last word; None when there was none, or nothing was sent. Raises
        ConfigError outside of the block, and nothing that `failed` tells.
        """
        self._inner.finish()
        while self._inner.over is None:
            await self._change()
        return self._inner.ack

    # -- waiting -------------------------------------------------------------------------------

    async def _wait_for_space(self) -> None:
        self._inner.check_open()
        if self._outbox.crowded:
            await self._outbox.wait()
        else:
            await self._change()

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _changed(self) -> None:
        """Wake all who wait, if there is space or the end; they look for themselves."""
        if self._waiting and (not self._window.full or self._inner.over is not None):
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    # -- life ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._inner.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                await self.commit()
        finally:
            self._inner.close()
        self._inner.tell_failures(error)


# -------------------------------------------------------------------------------------------------
# The calls of JetStream that open a batch (ADR-50).


@checked
class BatchCalls:
    """The part of JetStream that is about batches."""

    _api: Api

    def atomic_batch(self, *, timeout: Seconds | None = None) -> AtomicBatch:
        """Store messages together or not at all: `async with js.atomic_batch() as batch`.

        The stream needs `allow_atomic` (2.12). `timeout`: seconds for the answer to the first
        message and to the commit; default: the context's. The rest is in `AtomicBatch`.
        """
        return AtomicBatch(atomic_batch(self._api, self._api.client.publishing, timeout))

    def fast_ingest(
        self,
        *,
        gaps: GapPolicy = "fail",
        ack_every: int = 500,
        outstanding: int = 2,
        timeout: Seconds | None = None,
    ) -> FastIngest:
        """Publish as fast as the stream takes it: `async with js.fast_ingest() as ingest`.

        The stream needs `allow_batched` (2.14). `gaps`: what a lost or refused message does,
        "fail" (the batch ends there) or "ok" (it goes on). `ack_every`: most messages for one
        ack; the server says how many it lets be, up to 500 for all who do this at a time.
        `outstanding`: acks that may be missing before `add` waits. `timeout`: seconds of
        connected time without a word from the server; default: the context's. The rest is in
        `FastIngest`.
        """
        publishing = self._api.client.publishing
        return FastIngest(fast_ingest(self._api, publishing, gaps, ack_every, outstanding, timeout))


@checked  # the blocking client calls it, too
def atomic_batch(api: Api, publishing: Publishing, timeout: Seconds | None) -> Staging:
    """`BatchCalls.atomic_batch`, sending by `publishing`."""
    check_feature("atomic_batch", (2, 12), api.server)
    return Staging(api, publishing, api.timeout if timeout is None else in_seconds(timeout))


@checked
def fast_ingest(
    api: Api,
    publishing: Publishing,
    gaps: GapPolicy,
    ack_every: int,
    outstanding: int,
    timeout: Seconds | None,
) -> Ingesting:
    """`BatchCalls.fast_ingest`, sending by `publishing`."""
    check_feature("fast_ingest", (2, 14), api.server)
    seconds = api.timeout if timeout is None else in_seconds(timeout)
    return Ingesting(api, publishing, IngestOptions(gaps, ack_every, outstanding, seconds))

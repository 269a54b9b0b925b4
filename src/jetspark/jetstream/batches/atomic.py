"""Atomic batches: messages that are stored together or not at all (ADR-50; row J3).

Contract. `add` hands a message to the server, which keeps it aside; `commit` has all of them
stored, one after the other with nothing in between, and returns the ack of the last one. Leaving
the block commits, unless that was done; leaving it by an exception gives the batch up.

The newest message is held back, because the last one of a batch carries the commit; only `flush`
sends it before. So the refusal of a message may be raised by a later call: by `commit` at last.
Expectations are looked at when the batch is committed: one that does not hold refuses the batch.
Whatever goes wrong before the commit was sent leaves nothing stored. After that, an answer that
does not come leaves open whether all or nothing was stored; one message of the batch with an
expectation makes it harmless to try again.

The server gives a batch up after 10 s without a message, at more than 1,000 messages, and at more
than 50 batches at a time in a stream; a lost connection ends it as well. Every message has a
reply, so that it is the first refusal that is raised. No task is made; any number of tasks may
add, one after the other.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from jetspark.errors import (
    BrokenSocketError,
    ConfigError,
    JetsparkError,
    JetStreamError,
    MaxPayloadError,
    NoStreamResponseError,
    RequestTimeoutError,
)
from jetspark.jetstream.publishing.headers import TimeToLive, publish_headers
from jetspark.jetstream.publishing.pub_ack import RETRIES, RETRY_WAIT, parse_pub_ack
from jetspark.jetstream.publishing.results import no_more_acks
from jetspark.jetstream.requirements import check_feature
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.batch_headers import COMMIT, COMMIT_BEFORE, MARKS, STAGED
from jetspark.wire.headers import VERSION, Headers, HeadersLike, encode_headers
from jetspark.wire.status import status_of

if TYPE_CHECKING:
    from types import TracebackType

    from jetspark.client.listener import Listener
    from jetspark.client.publishing import Publishing
    from jetspark.jetstream.api import Api
    from jetspark.jetstream.documents import PubAck
    from jetspark.wire.events import MessageFrame

_NO_HEADERS: Final = VERSION + b"\r\n"
_MARKS_SIZE: Final = 160  # bytes; of the three headers, and some more

_Held: TypeAlias = "tuple[str, bytes, bytes]"
"""Subject, payload, and the header block without its end."""


class AtomicBatch:
    """See the module and `JetStream.atomic_batch`. For one event loop."""

    def __init__(self, api: Api, publishing: Publishing, *, timeout: float) -> None:
        if not timeout > 0:
            raise ConfigError("timeout must be more than 0 seconds.")
        self._api = api
        self._client = api.client
        self._publishing = publishing
        self._outbox = publishing.outbox
        self._timeout = timeout
        self._listener: Listener | None = None
        self._inbox = b""
        self._id = b""
        self._turn = asyncio.Lock()
        self._held: _Held | None = None
        self._subject = ""  # of the last message that was sent
        self._subjects: set[str] = set()  # of all that were sent
        self._size = 0
        self._staged = False  # the server has the first message
        self._committing = False
        self._error: JetsparkError | None = None
        self._asked = 0
        self._answer: asyncio.Future[MessageFrame] | None = None
        self._ack: PubAck | None = None

    @property
    def size(self) -> int:
        """Messages added so far."""
        return self._size

    @property
    def ack(self) -> PubAck | None:
        """What `commit` returned; None before."""
        return self._ack

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

        Raises ConfigError, what `Client.publish` raises, and, about a message added before,
        BatchError, NotEnabledOnStreamError, NoStreamResponseError, RequestTimeoutError,
        BrokenSocketError.
        """
        payload = payload_bytes(payload)  # as it is now: it is sent with a later call
        async with self._turn:
            self._check_open()
            if expect_last_seq is not None and self._size:
                raise ConfigError("expect_last_seq belongs to the first message of a batch.")
            kept = publish_headers(
                self._api.server,
                headers,
                msg_id=msg_id,
                ttl=ttl,
                expect_last_seq=expect_last_seq,
                expect_last_subject_seq=expect_last_subject_seq,
                expect_last_subject_seq_of=expect_last_subject_seq_of,
            )
            message = self._checked(subject, payload, kept)
            if self._held is not None:
                await self._stage(self._held)
            self._held = message
            self._size += 1
            return self._size

    def _checked(self, subject: str, payload: bytes, headers: Headers | None) -> _Held:
        """It is sent later: what cannot be sent is refused now."""
        publishing = self._publishing
        publishing.encode_subject(subject)
        head = _NO_HEADERS
        if headers is not None:
            for name in [name for name in headers if name.startswith("Nats-Batch-")]:
                headers.delete(name)  # of a message that came out of another batch
            head = encode_headers(headers)[:-2]
        size = len(head) + _MARKS_SIZE + len(payload)
        if size > publishing.max_payload:
            raise MaxPayloadError(size, publishing.max_payload)
        return subject, payload, head

    async def flush(self) -> None:
        """Wait until the server has every message, so that all but the commit can have failed.

        Needs nats-server 2.14. Raises as `add`.
        """
        async with self._turn:
            self._check_open()
            check_feature("flush of an atomic batch", (2, 14), self._api.server)
            if self._held is not None:
                held, self._held = self._held, None
                await self._ask(self._size, held, STAGED)
                self._staged = True

    async def commit(self) -> PubAck:
        """Store all: the ack has the last message's `seq` and the `count` of messages.

        Raises WrongLastSequenceError when an expectation does not hold, BatchError, APIError for
        other refusals, and what `add` raises; nothing is stored then. RequestTimeoutError,
        BrokenSocketError and ConnectionClosedError leave open whether all or nothing is.
        """
        async with self._turn:
            self._check_open()
            if not self._size:
                raise ConfigError("The batch is empty.")
            if self._held is not None:
                number, last, how = self._size, self._held, COMMIT
            else:
                number, last, how = self._size + 1, (self._subject, b"", _NO_HEADERS), COMMIT_BEFORE
            self._committing = True
            frame = await self._ask(number, last, how)
            self._ack = parse_pub_ack(frame.payload)
            return self._ack

    # -- life ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        inbox = self._client.new_inbox()
        self._inbox = f"{inbox}.".encode()
        self._id = inbox.rpartition(".")[2].encode()
        self._listener = self._client.listen(
            f"{inbox}.*",
            self._on_answer,
            on_disconnect=self._on_disconnect,
            on_refused=self._on_refused,
            on_end=lambda error: self._fail(no_more_acks(error)),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._size and not self._committing:
                await self.commit()
        finally:
            self._close()

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._staged and not self._committing and self._client.is_connected:
            self._give_up()

    def _give_up(self) -> None:
        """Make the server forget the batch now, not in 10 s: a gap in the numbers does it."""
        try:
            marks = MARKS % (self._id, self._size + 2, STAGED)
            self._publishing.send_replying(
                self._subject, b"", self._inbox + b"0", _NO_HEADERS + marks
            )
        except JetsparkError:
            pass  # it will forget by itself

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._listener is None:
            raise ConfigError("The batch is not open: use it inside its async with block.")
        if self._committing:
            raise ConfigError("The batch was committed already.")

    # -- sending -------------------------------------------------------------------------------

    async def _stage(self, message: _Held) -> None:
        """Send a message that is not the last one; the first one is waited for.

        A server that does not know batches would store each as an ordinary message.
        """
        if self._staged:
            await self._send(self._size, message, STAGED)
            return
        frame = await self._ask(1, message, STAGED)
        if frame.payload:
            ack = parse_pub_ack(frame.payload)
            self._error = JetStreamError(
                "The server does not know atomic batches: it stored the first message as an "
                f"ordinary one, in {ack.stream} at sequence {ack.seq}. The others were not sent."
            )
            raise self._error
        self._staged = True

    async def _send(self, number: int, message: _Held, commit: bytes) -> None:
        subject, payload, head = message
        self._subject = subject
        self._subjects.add(subject)
        try:
            if self._outbox.crowded:
                await self._outbox.wait()
            self._publishing.send_replying(
                subject,
                payload,
                b"%b%d" % (self._inbox, number),
                head + MARKS % (self._id, number, commit),
            )
        except BaseException as error:  # a message is missing now
            self._fail(error if isinstance(error, JetsparkError) else _interrupted(number))
            raise

    async def _ask(self, number: int, message: _Held, commit: bytes) -> MessageFrame:
        """Send and await the answer; while nobody listens, again as in ADR-22."""
        loop = self._client.loop
        deadline = loop.time() + self._timeout
        retries = 0
        try:
            while True:
                self._asked, self._answer = number, loop.create_future()
                await self._send(number, message, commit)
                async with asyncio.timeout_at(deadline):
                    frame = await self._answer
                refused = _error_in(frame, message[0])
                if refused is None:
                    return frame
                if (
                    not isinstance(refused, NoStreamResponseError)
                    or retries == RETRIES
                    or loop.time() + RETRY_WAIT >= deadline
                ):
                    raise refused
                retries += 1
                await asyncio.sleep(RETRY_WAIT)
        except JetsparkError as error:
            self._fail(error)
            raise
        except TimeoutError:
            late = self._no_answer()
            self._fail(late)
            raise late from None
        except BaseException:
            self._fail(_interrupted(number))
            raise
        finally:
            self._answer = None

    def _no_answer(self) -> RequestTimeoutError:
        if self._committing:
            what = "the commit of the batch, which may be stored or not"
        else:
            what = "a message of the batch, which is not stored"
        return RequestTimeoutError(f"No answer within {self._timeout:g} s to {what}.")

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
        elif (error := _error_in(frame, self._subject)) is not None:
            self._fail(error)

    def _on_refused(self, name: str, error: JetsparkError) -> None:
        if name in self._subjects or name.startswith(self._inbox.decode()):
            self._fail(copy(error))

    def _on_disconnect(self) -> None:
        if self._committing:
            message = "The connection was lost at the commit: the batch may be stored or not."
        else:
            message = "The connection was lost, and the batch with it: nothing of it is stored."
        self._fail(BrokenSocketError(message))

    def _fail(self, error: JetsparkError) -> None:
        """The first refusal is the reason for all that follow."""
        if self._error is None and self._ack is None:
            self._error = error
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(error)


def _interrupted(number: int) -> JetStreamError:
    return JetStreamError(f"The batch was interrupted at message {number}.")


def _error_in(frame: MessageFrame, subject: str) -> JetsparkError | None:
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

"""An atomic batch and its server, whether the messages come from tasks or threads (ADR-50).

Contract. `message`, `add` and `send` are for senders, one at a time, in any thread; all the rest
runs in the event loop's thread. Every message has a reply subject, so that the first refusal is
received. Replies arrive on one wildcard inbox, whose handler runs in the read loop. No task, future
or timer is created for a message that needs no reply.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final

from jetspark.errors import (
    ConfigError,
    JetsparkError,
    JetStreamError,
    MaxPayloadError,
    NoStreamResponseError,
)
from jetspark.jetstream.batches.atomic_window import NO_HEADERS, AtomicWindow, BatchMessage
from jetspark.jetstream.batches.sending import BatchSending
from jetspark.jetstream.publishing.pub_ack import parse_pub_ack
from jetspark.jetstream.publishing.results import no_more_acks
from jetspark.wire.batch_headers import MARKS, STAGED
from jetspark.wire.headers import encode_headers
from jetspark.wire.status import status_of

if TYPE_CHECKING:
    from jetspark.client.publishing import Publishing
    from jetspark.client.requests import Answer
    from jetspark.jetstream.api import Api
    from jetspark.jetstream.publishing.headers import TimeToLive
    from jetspark.wire.events import MessageFrame
    from jetspark.wire.headers import HeadersLike

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
        if size > self.publishing.max_payload:
            raise MaxPayloadError(size, self.publishing.max_payload)
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

        `mark`: one of `wire.batch_headers`.
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

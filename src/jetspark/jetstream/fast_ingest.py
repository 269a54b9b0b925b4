"""Fast ingest: an open-ended batch with one ack for hundreds of messages (ADR-50).

Contract. `publish` returns as soon as the message is in the outbox; it waits while `outstanding`
acks are missing. The server decides how many messages an ack covers. Every message ends in exactly
one way: acknowledged (counted in `acked`) or failed (listed in `failed`). Leaving the block ends
the batch, waits for its final ack, then raises PublishFailedError for failures since `failed` was
last read.

`gaps="fail"`: the first message that is lost or refused ends the batch; all messages before it are
stored, in order, and all after it fail with NotStoredError. `gaps="ok"`: the batch continues, and
lost or refused messages are listed. Nothing is sent twice, except the first message while it has no
responders (ADR-22). The server reports a refused message (an expectation, a limit of the stream)
only once, and its acks count that message too. If the report is lost, the message counts as
acknowledged, and no client can know. So "ok" is for messages that the stream will not refuse; the
acks of "fail" are exact.

A message that no server accepts, by permission or size, fails at once; with "fail" the batch ends
before it.

The server drops a batch after 10 s without a message. A ping keeps it alive, and requests overdue
acks and, after a reconnect, lost ones. A restarted server does not know the batch: it is over, and
messages without an ack may be stored or not. So it is after `timeout` seconds on a link without a
reply.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any, Final, Literal, TypeAlias, Unpack

import msgspec

import jetspark.errors as errors
from jetspark.client.publishing import NumberedPublishes
from jetspark.documents.document import from_wire
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import PubAck
from jetspark.err_codes import BATCH_PUBLISH_UNKNOWN_BATCH_ID
from jetspark.jetstream.api import Api
from jetspark.jetstream.in_flight import (
    BasePublisher,
    InFlight,
    Results,
    Sender,
    link_lost,
)
from jetspark.jetstream.publish_request import (
    BatchOptions,
    PublishTries,
    ack_document,
    refusal,
    stored_as_ordinary,
)
from jetspark.payload_bytes import Payload, payload_bytes
from jetspark.timestamps import Seconds
from jetspark.validation import check_whole, check_word
from jetspark.wire.headers import Headers
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.status import status_of

GapPolicy: TypeAlias = Literal["fail", "ok"]

_MOST_PER_ACK: Final = 65535
_KEEP_ALIVE: Final = 2.5  # seconds; the server forgets a batch after 10

# Operations: the first message, a later one, a last one that is not stored, a ping.
_START: Final = 0
_APPEND: Final = 1
_END: Final = 3
_PING: Final = 4
_APPENDED: Final = b".%d.$FI" % _APPEND


# -------------------------------------------------------------------------------------------------
# The server's replies. Messages have numbers from 1 on the wire, and indexes from 0 here.


class BatchFlow(msgspec.Struct, tag="ack", tag_field="type"):
    """All up to number `seq` are stored, except those reported as lost; an ack for `msgs` each."""

    seq: int
    msgs: int


class BatchGap(msgspec.Struct, tag="gap", tag_field="type"):
    """The numbers from `last_seq` to before `seq` did not arrive."""

    last_seq: int
    seq: int


class BatchRefusal(msgspec.Struct, tag="err", tag_field="type"):
    """The stream refuses message `seq`; the batch may go on."""

    seq: int
    error: Any


_REPLIES: Final[msgspec.json.Decoder[BatchFlow | BatchGap | BatchRefusal]] = msgspec.json.Decoder(
    BatchFlow | BatchGap | BatchRefusal
)


def parse_reply(payload: bytes) -> BatchFlow | BatchGap | BatchRefusal | PubAck:
    """A reply; a PubAck is the last one. Raises the refusal in it, or JetStreamError."""
    try:
        return _REPLIES.decode(payload)
    except (ValueError, RecursionError):  # all of msgspec's errors
        pass
    try:
        return from_wire(PubAck, ack_document(payload))
    except errors.DocumentError:
        raise errors.JetStreamError(
            f"A reply to the batch cannot be read: {payload[:80]!r}."
        ) from None


def _committed() -> errors.ClosedError:
    return errors.ClosedError("The batch has ended: it was committed.")


def outcome_unknown(cause: errors.JetsparkError) -> errors.JetStreamError:
    """The error of messages sent before the server forgot the batch."""
    error = errors.JetStreamError(
        f"The batch is over ({cause}); without an ack it may be stored or not."
    )
    error.__cause__ = cause
    return error


# -------------------------------------------------------------------------------------------------
# The window: messages in flight, and a subject for questions about them.


class IngestWindow(InFlight):
    """One ack covers `flow` messages; `outstanding` acks may be missing. No I/O and no clock."""

    def __init__(self, *, flow: int, outstanding: int) -> None:
        super().__init__()
        self._flow = flow
        self._outstanding = outstanding
        self._acked_to = 0  # all messages before this index have ended
        self.stream_subject = ""
        """A subject of the batch's stream: the first, then the last one acknowledged."""
        self._denied_subjects: set[str] = set()  # subjects without permission to publish

    def open(self) -> None:
        """Allow one message, until the server says how many may be in flight."""
        super().open()
        self.limit = 1

    def acked_to(self, count: int, flow: int | None = None) -> None:
        """The first `count` messages are stored, except those that failed.

        `flow`: how many messages get one ack from now on.
        """
        if flow is not None:
            self._flow = flow
        indexes = range(self._acked_to, min(count, self.sent))
        self._acked_to += len(indexes)
        ended = [entry for entry in map(self.take, indexes, repeat(None)) if entry is not None]
        if ended:
            self.acked += len(ended)
            self.stream_subject = ended[-1][0]
        self.admit()

    def admit(self) -> None:
        """The stream has answered: allow as many in flight as it does."""
        if not self.closed:
            self.limit = self._flow * self._outstanding

    def refuse(self, subject: str) -> bool:
        """No permission to publish to this subject. True: questions may have used it."""
        is_used = subject == self.stream_subject or bool(self.with_subject(subject))
        if not is_used or subject in self._denied_subjects:
            return False
        self._denied_subjects.add(subject)
        return True

    def open_subject(self) -> str | None:
        """A subject for questions to the stream; None without a permitted one."""
        newest = [entry[0] for _, entry in reversed(self.entries())]
        subjects = (subject for subject in (self.stream_subject, *newest) if subject)
        return next((subject for subject in subjects if subject not in self._denied_subjects), None)


# -------------------------------------------------------------------------------------------------
# Sending.


class IngestSender(Sender):
    """Takes the options of `JetStream.fast_ingest`. Raises ConfigError for unusable ones."""

    window: IngestWindow
    kind = "batch"

    def __init__(
        self,
        api: Api,
        gaps: GapPolicy,
        ack_every: int,
        outstanding: int,
        timeout: Seconds | None,
    ) -> None:
        check_feature("fast_ingest", (2, 14), api.server)
        self._gaps = check_word("gaps", gaps, ("fail", "ok"))
        window = IngestWindow(
            flow=check_whole("ack_every", ack_every, 1, _MOST_PER_ACK),
            outstanding=check_whole("outstanding", outstanding),
        )
        super().__init__(api, timeout, window, checks=10, longest_check=1.0)
        self.ack: PubAck | None = None
        """The server's last word."""
        self._agreed = f"{ack_every}.{gaps}."
        self._first: Callable[[], None] | None = None  # sends the first message again
        self._tries: PublishTries | None = None  # the first message's, until there is a reply
        self._ending = False
        self._broken: errors.JetsparkError | None = None  # a missing message ends the batch
        self._heard = 0.0

    # -- senders -------------------------------------------------------------------------------

    def _start(self, number: int, subject: str, payload: bytes, headers: Headers | None) -> None:
        """Send the first message; the others are sent with less effort."""
        self.window.stream_subject = subject
        self._tries = PublishTries(subject, self.timeout)
        self._first = partial(self._control, _START, number, subject, payload, headers)
        self.send = self._publishes.send
        try:
            self._first()
        except errors.JetsparkError:
            self.send = self._start
            raise

    def may_be_sent(self, number: int) -> bool:
        return number == 1 or number <= self._publishes.newest

    def check_open(self) -> None:
        super().check_open()
        if self._ending:
            raise self._broken or _committed()

    # -- life --------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.inbox += self._agreed
        self._publishes = NumberedPublishes(self.publishing, self.inbox.encode(), _APPENDED)
        self.send = self._start
        self._heard = self.clock()

    def finish(self) -> None:
        """Take no more, and request the server's last word, once. Raises as `check_open`."""
        if self.window.ended is None and not self._ending:
            self.check_open()
            self._finish()

    def _finish(self) -> None:
        self._ending = True
        self.window.close()
        if self.window.sent:
            self._ask()
        else:
            self.window.end(_committed())
        self.changed()

    # -- replies: called in the read loop ----------------------------------------------------------

    def on_reply(self, frame: MessageFrame) -> None:
        window = self.window
        if window.ended is not None:
            return
        index = self.index_of(frame.subject[self.tail_at :])
        status = status_of(frame.headers)
        if status is not None and status.is_no_responders:
            # A ping or the end; a lost one is repeated later.
            if index is not None:
                self._heard = self.clock()
                self._on_no_responders(index)
                self.changed()
            return
        self._heard = self.clock()
        self._first = self._tries = None
        window.admit()
        try:
            reply = parse_reply(frame.payload)
        except errors.JetsparkError as error:
            self._on_error(index, error)
        else:
            self._on_answer(reply)
        self.changed()

    def _on_answer(self, reply: BatchFlow | BatchGap | BatchRefusal | PubAck) -> None:
        window = self.window
        match reply:
            case BatchFlow(seq, msgs):
                window.acked_to(seq, max(1, msgs))
            case BatchGap(last_seq, seq):
                for index in range(last_seq - 1, min(seq - 1, window.sent)):
                    text = f"Message {index} of the batch did not reach the stream."
                    window.fail(index, errors.NotStoredError(text))
            case BatchRefusal(seq, error):
                self._on_refusal(seq - 1, refusal(error))
            case PubAck(batch=str(), count=int(stored)):
                self.ack = reply
                window.acked_to(stored)
                text = f"The batch ended after {stored} messages; this one is not stored."
                self.end(errors.NotStoredError(text))
            case PubAck():
                window.acked_to(1)
                self.end(stored_as_ordinary("fast ingest", reply))

    def _on_no_responders(self, index: int) -> None:
        """No responders: send the first message again (ADR-22). It is the only one on its way."""
        if index == 0 and self._tries is not None:
            try:
                self.repeat(self._tries, self._start_again)
            except errors.NoStreamResponseError as error:
                self.end(error)
        elif (entry := self.window.find(index)) is not None:
            self.window.fail(index, errors.NoStreamResponseError(entry[0]))
            if self._ending:
                self._ask()  # the end may have met the same fate

    def _start_again(self) -> None:
        if self._first is not None:
            self._first()
        if self._ending:
            self._ask()

    def _on_error(self, index: int | None, error: errors.JetsparkError) -> None:
        """The reply to a message, or (None) to a ping or the end, is an error."""
        if index is None:
            self.end(outcome_unknown(error))
        else:
            self._on_refusal(index, error)
            if index == 0:
                self.end(error)

    def _on_refusal(self, index: int, error: errors.JetsparkError) -> None:
        self.window.fail(index, error)
        if (
            isinstance(error, errors.BatchError)
            and error.err_code == BATCH_PUBLISH_UNKNOWN_BATCH_ID
        ):
            # The server has forgotten the batch and takes no more of it.
            for later in range(index + 1, self.window.sent):
                self.window.fail(later, error)
            self.end(outcome_unknown(error))

    def index_of(self, tail: bytes) -> int | None:
        """The index of a message; None for a ping or the end."""
        number, _, rest = tail.partition(b".")
        operation = rest.partition(b".")[0]
        try:
            return int(number) - 1 if int(operation) in (_START, _APPEND) else None
        except ValueError:
            return None

    def on_refused(self, name: str, indexes: list[int], error: errors.JetsparkError) -> None:
        """Messages, or a question, were refused before the stream."""
        if self.window.ended is not None:
            return
        ask_again = self.window.refuse(name)
        super().on_refused(name, indexes, error)
        self.window.admit()
        if 0 in indexes or (ask_again and self.window.open_subject() is None):
            self.end(error)  # the batch has not begun, or no question is possible
        elif indexes and self._gaps == "fail" and not self._ending:
            self._broken = error
            self._finish()
        elif ask_again and self._ending:
            self._ask()  # the end may have been refused

    # -- time and the link -------------------------------------------------------------------------

    def check_deadlines(self, now: float) -> None:
        """Send a ping when a reply is overdue, or before the server forgets the batch."""
        window = self.window
        if not window.sent or window.ended is not None:
            self._heard = now
            return
        if not self.connected:
            return
        silent = now - self._heard
        waits = window.count() > 0 or self._ending
        if silent > self.timeout and waits:
            self.end(
                errors.RequestTimeoutError(
                    f"The server sent nothing about the batch within {self.timeout:g} s; "
                    "it may be stored or not."
                )
            )
        elif silent >= (self.check_every if waits else min(self.timeout / 2, _KEEP_ALIVE)):
            self._ask()

    def _ask(self) -> None:
        """Request missing acks, or the last word; repeated in time."""
        subject = self.window.open_subject()
        if subject is not None and not self.repeating:
            operation = _END if self._ending else _PING
            try:
                self._control(operation, self.published + self._ending, subject)
            except errors.JetsparkError:
                pass

    def _control(
        self,
        operation: int,
        number: int,
        subject: str,
        payload: bytes = b"",
        headers: Headers | None = None,
    ) -> None:
        """Send the first message, or one that is not stored: a ping, or the end."""
        reply = f"{self.inbox}{number}.{operation}.$FI".encode()
        self.publishing.send_replying(subject, payload, reply, headers)

    def on_disconnect(self, now: float) -> None:
        # A restarted server would begin a new batch if it were asked about the first message.
        window = self.window
        if window.sent == window.count() == 1 and not self.repeating:
            self.outbox.withdraw({f"{self.inbox}1.{_START}.$FI".encode()})
            self.end(link_lost(0, window.open_subject() or ""))

    def on_reconnect(self, now: float) -> None:
        self._heard = now
        if self.window.sent and self.window.ended is None:
            self._ask()


class FastIngest(BasePublisher[IngestSender], Results[IngestSender]):
    """See the module and `JetStream.fast_ingest`. For one event loop; many tasks may publish.

    Example:
        ```python
        async with js.fast_ingest() as ingest:
            await ingest.publish("orders.eu", b"42 apples")
            await ingest.publish("orders.us", b"7 pears")

        print(ingest.acked, ingest.ack.seq)  # 2 5
        ```
    """

    @property
    def ack(self) -> PubAck | None:
        """The server's last word: `seq` of the last message stored; None before."""
        return self._sender.ack

    # -- sending -------------------------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        payload: Payload = b"",
        **options: Unpack[BatchOptions],
    ) -> int:
        """Publish, waiting only while too many acks are outstanding; returns the message's index.

        The options are those of `JetStream.publish`. Raises the errors of `Client.publish`, and
        ConfigError, BadNameError and UnsupportedByServerError for options that cannot work; such a
        message was not taken and has no index. Afterwards it raises the error that ended the batch,
        or ClosedError.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, since it is sent when there is room
        publish_headers = self._sender.headers(**options) if options else None
        window = self._window
        while window.count() >= window.limit or self._outbox.crowded:
            await self._wait_for_space()
        return self._sender.put(subject, payload, publish_headers, None)

    async def commit(self) -> PubAck | None:
        """End the batch and wait until the fate of every message is known.

        Returns the server's last word; None when there was none, or nothing was sent. Raises
        ConfigError before the block; failures are only in `failed`.
        """
        self._sender.finish()
        await self._until(lambda: self._sender.window.ended is not None)
        return self._sender.ack

    async def _complete(self, *, failed: bool) -> None:
        await self.commit()

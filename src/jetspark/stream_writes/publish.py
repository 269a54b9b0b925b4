"""Publishing many messages to one stream over a blocking link, every ack awaited.

Contract: at least once. `flush` returns when the stream has acknowledged every message. At most
`window` messages are without an ack at any time. After a lost link or a transient refusal (a leader
election, a restarting server, a full queue), messages without an ack are published again; they may
then be stored twice, and after later ones. When a leader stops, messages and acks are lost without
notice, so some seconds of silence count as a lost link. Without progress for `timeout` seconds, and
after any other refusal, publishing fails; acknowledged messages stay stored.

`in_order`: when a message is published again, so are all later ones. So a subject's last message in
the stream is the one sent last, which in a bucket is the key's value.

`only_first`: each message is stored only while its subject has none, so a message that is published
again is stored once. `rejected` has the messages whose subject had one: the caller proves that it
is theirs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Self

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.err_codes import STREAM_WRONG_LAST_SEQUENCE
from jetspark.links.link import BlockingLink, connect, has_no_responders
from jetspark.links.retry import Retry, answer_timeout, attempt
from jetspark.retries import Backoff, is_transient
from jetspark.stream_writes.encoded_messages import EncodedMessage
from jetspark.wire import frames, js_api
from jetspark.wire.documents import decode_document
from jetspark.wire.kernel import MessageFrame

_MAX_UNSENT_MESSAGES = 500
_MAX_UNSENT_BYTES = 256 * 1024
_RETRY_SECONDS = 0.25


class StreamPublisher:
    """Publishes many messages to one stream over a blocking link, and awaits every ack.

    A context manager, which flushes when the block ends without an exception. The constructor
    connects, and raises the errors of `connect`.
    """

    def __init__(
        self,
        options: ConnectOptions,
        stream: str,
        *,
        window: int = 4000,
        timeout: float = 60.0,
        in_order: bool = False,
        only_first: bool = False,
    ) -> None:
        """`window`: messages without an ack at most; `timeout`: seconds without progress.

        `in_order`: when a message is published again, so are all later ones. `only_first`: the
        messages have the header `FIRST_OF_SUBJECT`, so that each is stored only while its subject
        has none.
        """
        self._options = options
        self._stream = stream
        self._window = window
        self._timeout = timeout
        self._in_order = in_order
        self._only_first = only_first
        self.rejected: list[EncodedMessage] = []
        """Messages that are not stored, since their subjects have one (`only_first`)."""
        self._pending: dict[int, EncodedMessage] = {}
        """Messages without an ack, by index: their number in the order of sending."""
        self._acked_out_of_order: set[int] = set()
        """Indexes of messages acknowledged before an earlier one (`in_order`)."""
        self._last_index = 0
        self._unsent: list[bytes] = []
        """Frames that are written together."""
        self._unsent_bytes = 0
        self._refused: list[int] = []
        """Indexes of messages to send again at `_resend_at`, since their refusal may pass."""
        self._resend_at = 0.0
        self._refusal: errors.JetsparkError | None = None
        """The last refusal that may pass."""
        self._retry = Retry(timeout, Backoff(_RETRY_SECONDS, _RETRY_SECONDS))
        self._linked_since = self._retry.since
        self._plain_ack = b'{"stream":"%b",' % stream.encode()
        self.acked = 0
        """Messages acknowledged so far."""
        self._adopt_link(connect(options))

    def _adopt_link(self, link: BlockingLink) -> None:
        """Publish over this link from now on, with an inbox for its acks."""
        self._link = link
        self._inbox = f"{link.new_inbox()}.".encode()
        link.subscribe(f"{self._inbox.decode()}*")

    def send(self, messages: Iterable[EncodedMessage]) -> None:
        """Publish messages, and wait for acks while more than the window are without one.

        Raises APIError for a refusal that lasts; without progress, the last transient refusal
        (APIError, NoStreamResponseError) or RequestTimeoutError; JetStreamError for an answer that
        cannot be read, or from another stream; ConnectionFailure, ProtocolError, ServerError.
        """
        pending = self._pending
        for message in messages:
            self._last_index += 1
            pending[self._last_index] = message
            self._encode(self._last_index, message)
            if len(self._unsent) >= _MAX_UNSENT_MESSAGES or self._unsent_bytes >= _MAX_UNSENT_BYTES:
                self._write()
                self._wait_for_acks(self._window - _MAX_UNSENT_MESSAGES)

    def flush(self) -> None:
        """Wait until every message is acknowledged. Raises the errors of `send`."""
        self._write()
        self._wait_for_acks(0)

    def _encode(self, index: int, message: EncodedMessage) -> None:
        """Encode a message as a frame, to be written with the next ones.

        `index`: its number, which the ack's subject will have.
        """
        subject, block, payload = message
        reply = b"%b%d" % (self._inbox, index)
        frame = frames.replying(subject, reply, block or b"", payload)
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)

    def _write(self) -> None:
        """Write the encoded frames; if the link is lost, connect and publish them again."""
        data = b"".join(self._unsent)
        self._drop_unsent()
        if not data:
            return
        try:
            self._link.send(data, self._timeout)
        except errors.BrokenSocketError:
            self._connect_again()

    def _drop_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0

    # -- acks --------------------------------------------------------------------------------

    def _wait_for_acks(self, max_pending: int) -> None:
        """Process answers until at most `max_pending` messages lack an ack.

        Raises the errors of `send`.
        """
        self._retry.since = time.monotonic()
        while len(self._pending) > max(0, max_pending):
            last_sign = max(self._retry.since, self._linked_since)
            silence_ends = last_sign + answer_timeout(self._timeout)
            # Wake to send refused messages again, or when silence counts as a lost link.
            wake_at = self._resend_at if self._refused else silence_ends
            try:
                answers = self._link.messages(min(self._retry.deadline, wake_at))
                settled = [self._on_answer(answer) for answer in answers]
                if any(settled):
                    self._retry.since = time.monotonic()
            except errors.RequestTimeoutError:
                self._on_silence()
            except errors.ConnectionFailure:
                self._connect_again()

    def _on_answer(self, frame: MessageFrame) -> bool:
        """Process the answer to a message, an ack or a refusal.

        Returns whether that settles the message: it is stored, or (`only_first`) never will be.
        Raises the errors of `send` for a refusal that lasts, and for other answers.
        """
        index = int(frame.subject[len(self._inbox) :])
        if frame.payload.startswith(self._plain_ack):  # the usual answer, quickly recognized
            self._on_ack(index)
            self._refusal = None
            return True
        if has_no_responders(frame):  # no stream listens to the subject, or it has no leader now
            self._resend_later(index, errors.NoStreamResponseError(self._subject(index)))
            return False
        answer = decode_document(frame.payload, "ack")
        if document := answer.get("error"):
            error = js_api.error_of(document, {"stream": self._stream})
            # With `only_first` this means that the subject has a message already.
            if self._only_first and error.err_code == STREAM_WRONG_LAST_SEQUENCE:
                if (message := self._pending.pop(index, None)) is not None:
                    self.rejected.append(message)
                return True
            error.add_note(f'The message was for the subject "{self._subject(index)}".')
            if not is_transient(error):
                raise error
            self._resend_later(index, error)
            return False
        raise errors.JetStreamError(
            f'The subject "{self._subject(index)}" belongs to the stream '
            f'"{answer.get("stream")}", not to "{self._stream}".'
        )

    def _on_ack(self, index: int) -> None:
        """Note that a message is acknowledged, so that it is not sent again.

        With `in_order`, only when all before it are acknowledged, too: until then one of them may
        be sent again, and this one after it.
        """
        pending = self._pending
        if not self._in_order:
            self.acked += pending.pop(index, None) is not None
        elif index in pending:
            self._acked_out_of_order.add(index)
            while pending and (first := next(iter(pending))) in self._acked_out_of_order:
                self._acked_out_of_order.discard(first)
                del pending[first]
                self.acked += 1

    def _resend_later(
        self, index: int, error: errors.APIError | errors.NoStreamResponseError
    ) -> None:
        """Plan to send a refused message again in a moment, with others refused until then.

        `error`: the refusal, which is raised if it lasts.
        """
        self._refusal = error
        if not self._refused:
            self._resend_at = time.monotonic() + _RETRY_SECONDS
        self._refused.append(index)

    def _on_silence(self) -> None:
        """Act when nothing has arrived in time: send refused messages again, or connect again.

        Without refused messages, silence means that the link is lost. Raises the last refusal, or
        RequestTimeoutError, without progress for the timeout.
        """
        if time.monotonic() >= self._retry.deadline:
            raise self._refusal or errors.RequestTimeoutError(
                f'Stream "{self._stream}" acknowledged nothing for {self._timeout:g} s; '
                f"{len(self._pending)} messages are without an ack."
            )
        if not self._refused:
            self._connect_again()
            return
        resend, self._refused = self._refused, []
        if self._in_order:  # all later ones, too
            resend = [index for index in self._pending if index >= min(resend)]
            self._acked_out_of_order.difference_update(resend)
        self._resend(resend)

    def _resend(self, indices: Iterable[int]) -> None:
        """Publish messages again, unless they were acknowledged in the meantime."""
        for index in indices:
            message = self._pending.get(index)
            if message is not None:
                self._encode(index, message)
        self._write()

    def _connect_again(self) -> None:
        """Connect after a lost link, and publish all messages without an ack again."""
        self._link.close()
        attempt(lambda: self._adopt_link(connect(self._options)), self._retry)
        self._refused = []
        self._linked_since = time.monotonic()
        # Servers may accept links and drop them, which is no progress: this raises the error.
        if self._linked_since > self._retry.deadline:
            self._on_silence()
        self._acked_out_of_order.clear()
        self._drop_unsent()
        self._resend(sorted(self._pending))

    def _subject(self, index: int) -> str:
        """The subject of a message; "?" if it was acknowledged."""
        message = self._pending.get(index)
        return "?" if message is None else message[0].decode()

    # -- life --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._link.close()

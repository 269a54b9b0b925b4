"""Publishing many messages with a bounded window of unacknowledged ones.

Contract. `publish` returns as soon as the message is in the outbox; while `window` messages have no
ack it waits. Every message ends in exactly one way: acknowledged (counted in `acked`) or failed
(listed in `failed`, or set on the future that `publish_async` gave). Leaving the block waits for
all, then raises PublishFailedError for failures since `failed` was last read. With
`raise_failures=False` it never raises.

A message without a responder (503: its stream has no leader now, or there is no stream) is
certainly not stored. It is sent again every 250 ms, for `retry_for` seconds, while new messages
wait, so that they are stored after it if possible. Then it fails with NoStreamResponseError. The
first such refusal is reported at once.

A lost link, or no ack within `timeout`, leaves open whether a message was stored. `on_disconnect`:
"auto" sends those with a Nats-Msg-Id again while that is safe, and fails the others; "fail" fails
all; "resend" sends all again, and some may be stored twice. It is safe while the stream surely
recognises the id: until `timeout` seconds, which the message may take, before the end of its
duplicate window, counted from the first attempt that may be stored. The window is read from the
stream before it is relied on. Later the message fails with MayBeStoredError. Messages
sent during an outage wait in the client's buffer; timeouts do not run then.

A message that is sent again is stored after later messages that were stored at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias, Unpack

from jetspark.client.publishing import NumberedPublishes
from jetspark.client.tasks import background
from jetspark.documents.document import from_wire
from jetspark.documents.streams import PubAck
from jetspark.err_codes import STREAM_DUPLICATE_MESSAGE_CONFLICT
from jetspark.errors import (
    APIError,
    ConfigError,
    JetsparkError,
    MayBeStoredError,
    NoStreamResponseError,
)
from jetspark.jetstream.api import Api
from jetspark.jetstream.duplicate_window import DuplicateWindow, DuplicateWindows
from jetspark.jetstream.in_flight import BasePublisher, Entry, InFlight, Results, Sender, link_lost
from jetspark.jetstream.publish_request import (
    MSG_ID,
    MessageOptions,
    ack_document,
    ack_timeout,
    parse_pub_ack,
    plain_ack_head,
)
from jetspark.payload_bytes import Value, payload_bytes
from jetspark.retries import FULL, PAUSE, is_transient
from jetspark.timestamps import Seconds, in_seconds
from jetspark.validation import check_whole, check_word
from jetspark.wire.headers import PayloadCodec, codec_of
from jetspark.wire.kernel import MessageFrame, numbered_acks
from jetspark.wire.status import status_of

DisconnectPolicy: TypeAlias = Literal["auto", "fail", "resend"]

RETRY_FOR: Final = 30.0
"""Seconds; several times what a cluster needs for a new leader."""

_REPORT_EVERY: Final = 30.0  # seconds between two reports that a publisher retries


# -------------------------------------------------------------------------------------------------
# The window: messages in flight, and those to be sent again.


@dataclass(slots=True)
class MessageRetry:
    """The retry of a message with a failed attempt."""

    until: float
    """When to give up."""
    blocks_senders: bool = False
    """Whether new messages wait until it has a reply."""
    since: float = math.inf
    """When the first attempt that may be stored was overdue, by the event loop's clock; infinite:
    it is certainly not stored."""


class RetryWindow(InFlight):
    """At most `size` messages; those not stored are sent again. No I/O and no clock.

    A message that was refused temporarily keeps its place, and new ones pause: each round retries
    one message of each subject, and admits one new message, which shows whether only some subjects
    are refused. When one gets a reply, the others are sent again in order, then new ones.

    After `retry_for` seconds messages fail. If nothing was acknowledged since the first one, later
    refused ones fail with it: a whole window has waited already.
    """

    def __init__(self, size: int, on_disconnect: DisconnectPolicy, retry_for: float) -> None:
        super().__init__(resends=True)
        self.size = size
        self.paused = False
        """Whether messages were refused, and no other one got a reply since."""
        self.resuming = False
        """Whether that is over, so that the refused ones can be sent again at once."""
        self.retrying: dict[int, MessageRetry] = {}
        """Messages with a failed attempt."""
        self._due: set[int] = set()  # those of them to be sent again
        self._on_disconnect = on_disconnect
        self._retry_for = retry_for
        self._refused_since: float | None = None  # the first one since the last ack
        self._refused_at = 0.0  # the last one
        self._paused_at = 0

    def withdraw(self, index: int) -> bool:
        with self._lock:
            return index not in self.retrying and super().withdraw(index)

    # -- replies ---------------------------------------------------------------------------------

    @property
    def disturbed(self) -> bool:
        """Whether `acknowledged` must be called."""
        return self.paused or self._refused_since is not None or bool(self.retrying)

    def acknowledged(self, index: int) -> None:
        """A message is stored. Only needed while the window is `disturbed`."""
        self._refused_since = None
        self.answered(index)

    def answered(self, index: int) -> None:
        """A message got its final reply."""
        if self._forget(index) or index >= self._paused_at:
            self.resume_senders()

    def _forget(self, index: int) -> bool:
        """Forget its retry; returns whether it was sent again."""
        self._due.discard(index)
        return self.retrying.pop(index, None) is not None

    def retry_later(
        self, index: int, now: float, *, may_be_stored: bool = False, away: float = 0.0
    ) -> bool:
        """It was not stored and waits to be sent again. False: its time is over, so it fails.

        `may_be_stored`: by an earlier attempt. `away`: seconds without a link so far, which this
        clock does not count.
        """
        if self._refused_since is None or now - self._refused_at > self._retry_for:
            self._refused_since = now
        self._refused_at = now
        retry = self.retrying.setdefault(index, MessageRetry(self._refused_since + self._retry_for))
        if retry.until <= now:
            return False
        if may_be_stored:
            retry.since = min(retry.since, self._entries[index][3] + away)
        self._due.add(index)
        if not retry.blocks_senders:
            retry.blocks_senders = True
            self.pause_senders()
        return True

    def may_be_stored(self, index: int) -> bool:
        """Whether an attempt to send it may have succeeded."""
        return index in self.retrying and self.retrying[index].since < math.inf

    def overdue_since(self, index: int) -> float | None:
        """When the first attempt that may be stored was overdue, if its id must protect it."""
        if self._on_disconnect != "auto" or not self.may_be_stored(index):
            return None
        return self.retrying[index].since

    def pause_senders(self) -> None:
        """Until a message gets a reply, admit only one new message per round."""
        self._paused_at = self.sent
        self.paused, self.resuming = True, False
        self.limit = 0

    def resume_senders(self) -> None:
        """Admit new messages; after a pause, first send those that are due again."""
        self.resuming = bool(self._due) and (self.paused or self.resuming)
        self.paused = False
        self.limit = 0 if self.resuming else self.size

    # -- time and the link -------------------------------------------------------------------------

    def outcome_unknown(
        self,
        now: float,
        reason: Callable[[int, str], JetsparkError],
        *,
        overdue_only: bool = False,
        away: float = 0.0,
    ) -> int:
        """Messages on their way may be stored or not; returns how many of them fail.

        Where that is safe, they are sent again later instead. `overdue_only`: only late ones.
        `reason` is called with index and subject. `away`: as for `retry_later`.
        """
        failed: list[tuple[int, str]] = []
        for index, entry in self.entries():
            if index in self._due or (overdue_only and entry[3] > now):
                continue
            retry = self.retrying.get(index) or MessageRetry(now + self._retry_for)
            if retry.until <= now or not self._is_safe_to_resend(entry):
                failed.append((index, entry[0]))
                continue
            with self._lock:  # against `withdraw`
                if self.find(index) is not None:
                    retry.since = min(retry.since, entry[3] + away)
                    self.retrying[index] = retry
                    self._due.add(index)
        for index, subject in failed:  # now, since new messages may follow the last one
            self.fail(index, reason(index, subject))
        return len(failed)

    def _is_safe_to_resend(self, entry: Entry) -> bool:
        if self._on_disconnect == "auto":
            return entry[2] is not None and MSG_ID in entry[2]
        return self._on_disconnect == "resend"

    def due(self, now: float) -> list[int]:
        """Start a round; returns the indexes to `take_due` now, in order."""
        indexes = sorted(self._due)
        if not self.paused or self.closed:
            return indexes
        self.limit = min(self.size, self.count() + 1)
        tried: set[str] = set()
        due = []
        for index in indexes:
            subject = self._entries[index][0]
            # The first of its subject, or a message's last attempt.
            if subject not in tried or self.retrying[index].until <= now:
                tried.add(subject)
                due.append(index)
        return due

    def take_due(self, index: int) -> Entry | None:
        """The entry of a `due` message, for sending now; None: no longer needed.

        `resume_if_done` when it is sent."""
        if index not in self._due:
            return None
        self._due.discard(index)
        subject, payload, headers, _, on_result = self._entries[index]
        entry = self._entries[index] = (subject, payload, headers, self.deadline, on_result)
        return entry

    def resume_if_done(self) -> None:
        """Admit new messages if those that were due are sent."""
        if self.resuming and not self._due:
            self.resume_senders()

    def hold(self) -> None:
        """The link is lost: new messages wait until those that were on their way are sent again,
        so that the order stays."""
        if not (self.paused or self.closed):
            self.resuming, self.limit = True, 0

    # -- life --------------------------------------------------------------------------------------

    def open(self) -> None:
        super().open()
        self.limit = self.size

    def fail(self, index: int, error: JetsparkError) -> None:
        super().fail(index, error)
        self._forget(index)
        if not self.closed:
            self.resume_if_done()


# -------------------------------------------------------------------------------------------------
# Sending.


class PublisherSender(Sender):
    """Takes the options of `JetStream.publisher`. Raises ConfigError for unusable ones."""

    window: RetryWindow

    def __init__(
        self,
        api: Api,
        window: int,
        timeout: Seconds | None,
        on_disconnect: DisconnectPolicy,
        retry_for: Seconds,
        raise_failures: bool,
        duplicate_window: Seconds | None = None,
    ) -> None:
        size = check_whole("window", window)
        check_word("on_disconnect", on_disconnect, ("auto", "fail", "resend"))
        if not in_seconds(retry_for) >= 0:
            raise ConfigError("retry_for cannot be negative.")
        if duplicate_window is not None and not in_seconds(duplicate_window) > 0:
            raise ConfigError("duplicate_window must be more than 0 seconds.")
        messages = RetryWindow(size, on_disconnect, in_seconds(retry_for))
        super().__init__(api, timeout, messages)
        self._duplicates = DuplicateWindows(api, in_seconds(duplicate_window))
        self.raise_failures = raise_failures
        self.duplicates = 0
        """Acknowledged messages whose Nats-Msg-Id was already in the stream."""
        self._resending: asyncio.Task[None] | None = None
        self._round_at = 0.0
        self._reported_at = -math.inf
        self._acked_before = 0  # at the last check of the deadlines
        self._plain_ack = b"{}"

    def begin(self) -> None:
        self._publishes = NumberedPublishes(self.publishing, self.inbox.encode())
        self.send = self._publishes.send

    def may_be_sent(self, number: int) -> bool:
        return number <= self._publishes.newest

    def close(self) -> None:
        self._stop_resending()
        super().close()

    # -- replies -----------------------------------------------------------------------------------

    def on_reply(self, frame: MessageFrame) -> None:
        self.on_replies([frame], 0)

    def on_replies(self, frames: list[MessageFrame], size: int) -> bool:
        window, done = self.window, 0
        while done < len(frames):
            # Nearly all acks of a publisher are equal up to the number at the end.
            numbers = numbered_acks(frames, done, self._plain_ack, self.tail_at)
            if numbers:
                self._on_plain_acks(numbers, frames, done)
                done += len(numbers)
            else:
                self._on_other_reply(frames[done])
                done += 1
        if window.resuming:
            self._start_round(self.clock())
        self.changed()
        return True

    def _on_plain_acks(self, numbers: list[int], frames: list[MessageFrame], first: int) -> None:
        """The frames from the first one on acknowledge the messages with these numbers."""
        window = self.window
        take, disturbed, acked = window.take, window.disturbed, 0
        for position, number in enumerate(numbers, first):
            try:
                on_result = take(number - 1)[4]
            except KeyError:
                continue  # late: it failed, or was sent again and acknowledged twice
            acked += 1
            if disturbed:
                window.acknowledged(number - 1)
            if on_result is not None:
                on_result(parse_pub_ack(frames[position].payload))
        window.acked += acked

    def _on_other_reply(self, frame: MessageFrame) -> None:
        index = self.index_of(frame.subject[self.tail_at :])
        if index is None or (entry := self.window.find(index)) is None:
            return  # late, as above
        status = status_of(frame.headers)
        try:
            if status is not None and status.is_no_responders:
                raise NoStreamResponseError(entry[0])
            document = ack_document(frame.payload)
            ack = from_wire(PubAck, document)
        except JetsparkError as error:
            self._on_refusal(index, entry[0], error)
            return
        self.window.take(index)
        self.window.acknowledged(index)
        self.window.acked += 1
        self.duplicates += ack.duplicate
        self._plain_ack = plain_ack_head(frame.payload, document) or self._plain_ack
        if entry[4] is not None:
            entry[4](ack)

    def _on_refusal(self, index: int, subject: str, error: JetsparkError) -> None:
        """A stream without a leader refuses, which passes; other refusals are final."""
        window, now = self.window, self.clock()
        by_stream = isinstance(error, APIError | NoStreamResponseError)
        if by_stream and is_transient(error, but=FULL):
            # A message with this Nats-Msg-Id is already on its way into the stream.
            in_process = (
                isinstance(error, APIError) and error.err_code == STREAM_DUPLICATE_MESSAGE_CONFLICT
            )
            if window.retry_later(index, now, may_be_stored=in_process, away=self.away):
                if now > self._reported_at + _REPORT_EVERY:
                    self._reported_at = now
                    self.client.report(error)
                return
            if window.may_be_stored(index):
                error = ack_timeout(f"message {index}", subject, self.timeout)
        window.answered(index)
        window.fail(index, error)

    def on_refused(self, name: str, indexes: list[int], error: JetsparkError) -> None:
        for index in indexes:
            entry = self.window.find(index)
            if entry is not None and self.window.may_be_stored(index):  # by an earlier attempt
                unknown = ack_timeout(f"message {index}", entry[0], self.timeout)
                unknown.__cause__ = error
                self.window.fail(index, unknown)
        super().on_refused(name, indexes, error)

    # -- time and the link -------------------------------------------------------------------------

    def check_deadlines(self, now: float) -> None:
        window = self.window
        # Valid until the next check: never too early, at most two checks too late.
        window.deadline = now + self.timeout + self.check_every
        if not self.connected or window.closed:
            return
        failed = window.outcome_unknown(now, self._ack_timeout, overdue_only=True, away=self.away)
        if failed and window.acked == self._acked_before:
            window.pause_senders()  # a hanging leader loses messages
        self._acked_before = window.acked
        if now >= self._round_at and window.disturbed:
            self._start_round(now)
        self.changed()

    def _ack_timeout(self, index: int, subject: str) -> JetsparkError:
        return ack_timeout(f"message {index}", subject, self.timeout)

    def _start_round(self, now: float) -> None:
        """Send the due messages again, unless the last round has not finished."""
        if self._resending is None or self._resending.done():
            self._round_at = now + PAUSE
            self._resending = background(
                self._resend(self.window.due(now)), "Sending again", self.client.report
            )

    async def _resend(self, due: list[int]) -> None:
        window, paused = self.window, self.window.paused
        self._duplicates.begin_round()
        for index in due:
            if self.outbox.crowded:
                await self.outbox.wait()
            if window.overdue_since(index) is not None and not await self._is_recognised(index):
                continue
            if window.paused and not paused:
                break  # still no leader, which would refuse the others too
            if (entry := window.take_due(index)) is not None:
                try:
                    self.send(index + 1, *entry[:3])
                    window.resume_if_done()
                except JetsparkError as error:
                    window.fail(index, error)
        self.changed()

    async def _is_recognised(self, index: int) -> bool:
        """Whether the stream surely recognises the id of a message that may be stored.

        Otherwise it fails; without an answer of the stream, only once its time for retries is over.
        """
        window = self.window
        entry = window.find(index)
        if entry is None:
            return False
        try:
            window_of_stream = await self._duplicates.of(entry[0])
        except JetsparkError as error:
            retry = window.retrying.get(index)
            if retry is not None and retry.until > self.clock() and is_transient(error):
                return False  # it stays due
            self._give_up(
                index,
                None,
                f"its duplicate window cannot be read, so give it as duplicate_window: {error}",
            )
            return False
        since = window.overdue_since(index)
        if since is None:
            return window.find(index) is not None
        first = since - self.timeout - self.check_every
        if self.client.loop.time() + self.timeout < first + window_of_stream.seconds:
            return True
        self._give_up(
            index, window_of_stream, f"its duplicate window is {window_of_stream.seconds:g} s"
        )
        return False

    def _give_up(self, index: int, duplicate_window: DuplicateWindow | None, reason: str) -> None:
        if (entry := self.window.find(index)) is None:
            return
        # An earlier attempt may still wait in our own buffer.
        self.outbox.withdraw({b"%b%d" % (self.inbox.encode(), index + 1)})
        headers = entry[2]
        msg_id = None if headers is None else headers.get(MSG_ID)
        stream, seconds = (None, None) if duplicate_window is None else duplicate_window
        self.window.fail(index, MayBeStoredError(entry[0], msg_id, stream, seconds, reason))
        self.changed()

    def _stop_resending(self) -> None:
        if self._resending is not None:
            self._resending.cancel()
            self._resending = None

    def on_disconnect(self, now: float) -> None:
        self._stop_resending()
        self.window.hold()
        self.settle()
        inbox = self.inbox.encode()
        # What is not written would be sent before the others, or after it was reported to fail.
        self.outbox.withdraw({b"%b%d" % (inbox, index + 1) for index, _ in self.window.entries()})
        self.window.outcome_unknown(now, link_lost, away=self.away)
        self.window.resume_if_done()

    def on_reconnect(self, now: float) -> None:
        self._start_round(now)


class Publisher(BasePublisher[PublisherSender], Results[PublisherSender]):
    """See the module and `JetStream.publisher`. For one event loop, and any number of its tasks.

    Example:
        ```python
        async with js.publisher() as publisher:
            await publisher.publish("orders.eu", b"42 apples")
            await publisher.publish("orders.us", b"7 pears")
            await publisher.flush()
            print(publisher.failed)  # []
        ```
    """

    @property
    def duplicates(self) -> int:
        """Acknowledged messages whose Nats-Msg-Id was already in the stream."""
        return self._sender.duplicates

    async def publish(
        self,
        subject: str,
        payload: Value = b"",
        *,
        codec: PayloadCodec | None = None,
        **options: Unpack[MessageOptions],
    ) -> int:
        """Publish, waiting only while the window is full; returns the message's index.

        `codec`: makes the payload of a value. Raises the errors of `Client.publish`, and
        ClosedError after the block; such a message was not taken and has no index.
        """
        if codec is not None:
            payload, options["headers"] = codec_of(codec).encode(payload, options.get("headers"))
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, since it may wait and be sent again
        publish_headers = self._sender.headers(**options) if options else None
        window = self._window
        while window.count() >= window.limit or self._outbox.crowded:
            await self._wait_for_space()
        return self._sender.put(subject, payload, publish_headers, None)

    async def publish_async(
        self,
        subject: str,
        payload: Value = b"",
        *,
        codec: PayloadCodec | None = None,
        **options: Unpack[MessageOptions],
    ) -> asyncio.Future[PubAck]:
        """`publish` that returns a future with this message's PubAck or error.

        The error goes only to the future, not to `failed`.
        """
        if codec is not None:
            payload, options["headers"] = codec_of(codec).encode(payload, options.get("headers"))
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, since it may wait and be sent again
        publish_headers = self._sender.headers(**options) if options else None
        while self._window.full or self._outbox.crowded:
            await self._wait_for_space()
        future: asyncio.Future[PubAck] = self._loop.create_future()
        self._sender.put(subject, payload, publish_headers, partial(_resolve, future))
        return future

    async def flush(self) -> None:
        """Wait until every message has an ack or error. Does not raise the errors."""
        await self._until(lambda: not self._window.count())

    async def _complete(self, *, failed: bool) -> None:
        await self.flush()


def _resolve(future: asyncio.Future[PubAck], result: PubAck | JetsparkError) -> None:
    if future.done():
        return
    if isinstance(result, PubAck):
        future.set_result(result)
    else:
        future.set_exception(result)

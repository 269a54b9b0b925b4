"""Publishing many messages with a bounded window of unacknowledged ones (row J3).

Contract. `send` returns as soon as the message is on its way; while `window` messages have no ack
it waits. Every message ends in exactly one way: acknowledged (counted in `acked`) or failed
(listed in `failed`, or set on the future that `submit` gave). Leaving the block waits for all,
then raises PublishFailedError for the failures that nobody has looked at: reading `failed` is
looking. With `raise_failures=False` it never raises.

Nobody answers (503): tried again as in ADR-22, `retries` times, 250 ms apart, inside the deadline.

Lost connection: whether the messages without an ack were stored is not known. `on_disconnect`:
"auto" sends those again that carry a Nats-Msg-Id, which the stream's duplicate window makes
harmless, and fails the others at once; "fail" fails all; "resend" sends all again, and some may
then be stored twice. Messages sent during the outage wait in the client's buffer as usual; the
clock of the timeout stands still. A retry or resend is stored after later messages.

Acks come to one wildcard inbox; its handler runs in the read loop, once for all that came together.
No task, future or timer is made for a message, save the future of `submit`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from jetspark.client.numbered import NumberedPublishes
from jetspark.errors import (
    ConfigError,
    JetsparkError,
    JetStreamError,
    NoStreamResponseError,
)
from jetspark.jetstream.document import from_wire
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.pub_ack import RETRY_WAIT, ack_document, plain_ack_head
from jetspark.jetstream.publish_headers import MSG_ID, TimeToLive, publish_headers
from jetspark.jetstream.publish_results import (
    PublishFailure,
    Unacked,
    closed_before_ack,
    link_lost,
    no_ack_in_time,
    tell_failures,
)
from jetspark.wire.headers import HeadersLike
from jetspark.wire.status import status_of

if TYPE_CHECKING:
    from types import TracebackType

    from jetspark.client.listener import Listener
    from jetspark.jetstream.api import Api
    from jetspark.wire.events import MessageFrame

DisconnectPolicy: TypeAlias = Literal["auto", "fail", "resend"]

_LOOKS = 20  # how often within one timeout the clock is looked at


class Publisher:
    """See the module and `JetStream.publisher`. For one event loop; any number of tasks may send.

    Raises ConfigError for arguments that cannot work.
    """

    def __init__(
        self,
        api: Api,
        *,
        window: int,
        timeout: float,
        on_disconnect: DisconnectPolicy,
        retries: int,
        raise_failures: bool,
    ) -> None:
        if window < 1:
            raise ConfigError("window must be at least 1.")
        if not timeout > 0:
            raise ConfigError("timeout must be more than 0 seconds.")
        if on_disconnect not in ("auto", "fail", "resend"):
            raise ConfigError('on_disconnect must be "auto", "fail" or "resend".')
        if retries < 0:
            raise ConfigError("retries cannot be negative.")
        self._api = api
        self._client = api.client
        self._outbox = api.client._outbox
        self._window = window
        self._timeout = timeout
        self._policy = on_disconnect
        self._retries = retries
        self._raise_failures = raise_failures
        self._pending: dict[int, Unacked] = {}
        self._next = 0
        self._deadline = 0.0  # of a message sent now; see _look_at_the_clock
        self._retried: dict[int, int] = {}
        self._lost: set[int] = set()
        self._failed: list[PublishFailure] = []
        self._looked_at = 0
        self._senders: deque[asyncio.Future[None]] = deque()
        self._flushers: list[asyncio.Future[None]] = []
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resending: asyncio.Task[None] | None = None
        self._send = NumberedPublishes(self._client, b"").send
        self._inbox_length = 0
        self._plain_ack = b"{}"
        self.acked = 0
        """Messages acknowledged so far."""
        self.duplicates = 0
        """Of these, messages whose Nats-Msg-Id was in the stream already."""

    # -- sending -------------------------------------------------------------------------------

    async def send(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> int:
        """Publish, waiting only while the window is full; returns the message's index.

        Raises what `Client.publish` raises; such a message was not taken and has no index.
        """
        while len(self._pending) >= self._window or self._outbox.crowded:
            await self._wait_for_space()
        return self._publish(subject, payload, headers, msg_id, ttl, None)

    async def submit(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> asyncio.Future[PubAck]:
        """As `send`; returns a future with this message's PubAck or error.

        An error goes to the future only, not to `failed`.
        """
        while len(self._pending) >= self._window or self._outbox.crowded:
            await self._wait_for_space()
        future: asyncio.Future[PubAck] = self._client.loop.create_future()
        self._publish(subject, payload, headers, msg_id, ttl, future)
        return future

    def _publish(
        self,
        subject: str,
        payload: bytes,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
        future: asyncio.Future[PubAck] | None,
    ) -> int:
        """Take a place in the window and send; what is refused gives it back."""
        if self._listener is None:
            raise ConfigError("The publisher is not open: use it inside its async with block.")
        kept = None
        if headers is not None or msg_id is not None or ttl is not None:
            # A copy: the caller may go on changing theirs.
            kept = publish_headers(self._api.server, headers, msg_id=msg_id, ttl=ttl)
        index = self._next
        # Before it is sent: the blocking client's acks may come while we are still here.
        self._pending[index] = (subject, payload, kept, self._deadline, future)
        try:
            self._send(index, subject, payload, kept)
        except BaseException:
            self._pending.pop(index, None)
            self._freed()  # somebody else may wait for the place
            raise
        self._next = index + 1
        return index

    async def _wait_for_space(self) -> None:
        try:
            if self._outbox.crowded:
                await self._outbox.wait()
            else:
                space = self._client.loop.create_future()
                self._senders.append(space)
                await space
        except asyncio.CancelledError:
            self._freed()  # this waking may have been for somebody else
            raise

    # -- results -------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Messages that have no ack yet; never more than the window."""
        return len(self._pending)

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._next

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages of `send` that failed so far. Reading counts as having looked at them."""
        self._looked_at = len(self._failed)
        return list(self._failed)

    async def flush(self) -> None:
        """Wait until no message is without an ack or error. Raises nothing of theirs."""
        while self._pending:
            flusher = self._client.loop.create_future()
            self._flushers.append(flusher)
            await flusher

    async def __aenter__(self) -> Self:
        inbox = self._client.new_inbox() + "."
        self._send = NumberedPublishes(self._client, inbox.encode()).send
        self._inbox_length = len(inbox.encode())
        self._listener = self._client.listen(
            f"{inbox}*",
            self._on_ack,
            on_run=self._on_acks,
            on_disconnect=self._on_disconnect,
            on_reconnect=self._on_reconnect,
            on_end=self._on_end,
        )
        self._look_at_the_clock()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                await self.flush()
        finally:
            self._close()
        if self._raise_failures:
            tell_failures(self._failed[self._looked_at :], error)

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
        if self._resending is not None:
            self._resending.cancel()
        for index, entry in list(self._pending.items()):
            self._fail(index, entry, JetStreamError("The publisher was left before the ack came."))

    # -- acks: called in the read loop -----------------------------------------------------------

    def _on_ack(self, frame: MessageFrame) -> None:
        self._on_acks([frame])

    def _on_acks(self, frames: list[MessageFrame], _size: int = 0) -> bool:
        pending, retried, inbox = self._pending, self._retried, self._inbox_length
        plain = self._plain_ack
        for frame in frames:
            try:
                index = int(frame[1][inbox:])
                entry = pending.pop(index)
            except (KeyError, ValueError):
                continue  # late: it has failed, or was resent and acknowledged twice
            payload = frame[4]
            # Nearly all acks of a publisher are equal up to the number at the end.
            rest = payload[len(plain) : -1]
            if entry[4] is None and payload.startswith(plain) and rest.isdigit():
                self.acked += 1
                if retried:
                    retried.pop(index, None)
            else:
                self._on_other_ack(index, entry, frame)
                plain = self._plain_ack
        if self._senders or self._flushers:
            self._freed()
        return True

    def _on_other_ack(self, index: int, entry: Unacked, frame: MessageFrame) -> None:
        status = status_of(frame[3])
        if status is not None and status.is_no_responders:
            self._on_no_responders(index, entry)
            return
        self._retried.pop(index, None)
        try:
            document = ack_document(frame[4])
            ack = from_wire(PubAck, document)
        except JetsparkError as error:
            self._fail(index, entry, error)
            return
        self.acked += 1
        self.duplicates += ack.duplicate
        self._plain_ack = plain_ack_head(frame[4], document) or self._plain_ack
        future = entry[4]
        if future is not None and not future.done():
            future.set_result(ack)

    def _on_no_responders(self, index: int, entry: Unacked) -> None:
        loop = self._client.loop
        retries = self._retried.pop(index, 0)
        if retries >= self._retries or loop.time() + RETRY_WAIT >= entry[3]:
            self._fail(index, entry, NoStreamResponseError(entry[0]))
            return
        self._retried[index] = retries + 1
        self._pending[index] = entry  # it keeps its place in the window
        loop.call_later(RETRY_WAIT, self._retry, index)

    def _retry(self, index: int) -> None:
        entry = self._pending.get(index)
        if entry is None or index not in self._retried:
            return
        try:
            self._send(index, *entry[:3])
        except JetsparkError as error:
            self._fail(index, entry, error)

    # -- ends, time, and the link ------------------------------------------------------------

    def _fail(self, index: int, entry: Unacked, error: JetsparkError) -> None:
        self._pending.pop(index, None)
        subject, _, _, _, future = entry
        if future is None:
            self._failed.append(PublishFailure(index, subject, error))
        elif not future.done():
            future.set_exception(error)
        self._freed()

    def _freed(self) -> None:
        """Wake as many senders as there is space for, and who waits for the end."""
        space = self._window - len(self._pending)
        while space > 0 and self._senders:
            sender = self._senders.popleft()
            if not sender.done():
                sender.set_result(None)
                space -= 1
        if not self._pending:
            self._retried.clear()
            flushers, self._flushers = self._flushers, []
            for flusher in flushers:
                if not flusher.done():
                    flusher.set_result(None)

    def _look_at_the_clock(self) -> None:
        """Every twentieth of the timeout, instead of a timer and a look for each message."""
        loop = self._client.loop
        now = loop.time()
        pause = self._timeout / _LOOKS
        # Good until the next look: never too early, at most two looks too late.
        self._deadline = now + self._timeout + pause
        if self._client.is_connected:
            for index, entry in [one for one in self._pending.items() if one[1][3] <= now]:
                self._fail(index, entry, no_ack_in_time(index, entry[0], self._timeout))
        self._timer = loop.call_later(pause, self._look_at_the_clock)

    def _on_disconnect(self) -> None:
        for index, entry in list(self._pending.items()):
            if self._policy == "resend" or (
                self._policy == "auto" and entry[2] is not None and MSG_ID in entry[2]
            ):
                self._lost.add(index)
                self._retried.pop(index, None)  # the resend takes the retry's place
            else:
                self._fail(index, entry, link_lost(index, entry[0]))

    def _on_reconnect(self) -> None:
        deadline = self._client.loop.time() + self._timeout
        for index, (subject, payload, headers, _, future) in list(self._pending.items()):
            self._pending[index] = (subject, payload, headers, deadline, future)
        if self._resending is not None:
            self._resending.cancel()
        if self._lost:
            self._resending = self._client.loop.create_task(self._resend(sorted(self._lost)))

    async def _resend(self, lost: list[int]) -> None:
        for index in lost:
            entry = self._pending.get(index)
            self._lost.discard(index)
            if entry is None:
                continue
            try:
                if self._outbox.crowded:
                    await self._outbox.wait()
                self._send(index, *entry[:3])
            except JetsparkError as error:
                self._fail(index, entry, error)

    def _on_end(self, error: JetsparkError | None) -> None:
        for index, entry in list(self._pending.items()):
            self._fail(index, entry, closed_before_ack(error))

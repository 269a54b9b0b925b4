"""The core of publishers with a window, whether their senders are tasks or threads.

Contract. `publish` may be called in any thread, one at a time; `open`, `close` and everything below
them run in the event loop's thread; properties may be read anywhere. A sender that has to wait, for
space or for the end, waits in the publisher that owns this one: `changed` is called whenever
messages were acknowledged or failed. Acks arrive on one wildcard inbox, whose handler runs in the
read loop, once for all that arrive together. There is one timer; no task, future or timer is
created for a message.
"""

from __future__ import annotations

import asyncio
import logging
import math
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final

from jetspark.client.background import background
from jetspark.client.numbered import NumberedPublishes
from jetspark.errors import (
    ConfigError,
    JetsparkError,
    JetStreamError,
    NoStreamResponseError,
)
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.publishing.headers import MSG_ID, TimeToLive, publish_headers
from jetspark.jetstream.publishing.options import PublisherOptions
from jetspark.jetstream.publishing.pub_ack import (
    RETRY_WAIT,
    ack_document,
    is_in_process,
    is_passing,
    plain_ack_head,
)
from jetspark.jetstream.publishing.results import (
    PublishFailure,
    link_lost,
    no_ack_in_time,
    no_more_acks,
    tell_failures,
)
from jetspark.jetstream.publishing.window import CLOSED, Told, Unacked, Window
from jetspark.wire.headers import HeadersLike
from jetspark.wire.status import status_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.client.hooking import Hooked
    from jetspark.client.listener import Listener
    from jetspark.client.publishing import Publishing
    from jetspark.jetstream.api import Api
    from jetspark.wire.events import MessageFrame

logger = logging.getLogger("jetspark")

_WARN_AFTER: Final = 1.0  # seconds
_LOOKS: Final = 20  # how often within one timeout the clock is looked at


class WindowedPublishing:
    """Sends messages and follows each to its ack or failure.

    `publishing`: how they are sent. `changed`: called without arguments in the event loop's thread,
    and by `publish` when it gives a place in the window back.
    """

    def __init__(
        self,
        api: Api,
        options: PublisherOptions,
        publishing: Publishing,
        changed: Callable[[], None],
    ) -> None:
        self.raise_failures = options.raise_failures
        self._api = api
        self._client = api.client
        self._publishing = publishing
        self._outbox = publishing.outbox
        self._changed = changed
        self._timeout = options.timeout
        self._retry_for = options.retry_for
        self._policy = options.on_disconnect
        self.window = Window(
            options.window, retry_for=options.retry_for, unknown_again=self._unknown_again
        )
        self._failed: list[PublishFailure] = []
        self._looked_at = 0
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resending: asyncio.Task[None] | None = None
        self._round_at = 0.0
        self._refusal: JetsparkError | None = None  # the first one of this time of trouble
        self._warn_at = 0.0
        self._told = False  # of the first refusal of all
        self._left_at: float | None = None  # when the link was lost
        self._away = 0.0  # seconds without a link
        self._send = NumberedPublishes(publishing, b"").send
        self._inbox = ""
        self._inbox_length = 0
        self._ended: JetsparkError | None = None  # no acks can come any more
        self._plain_ack = b"{}"
        self._acked = 0
        self._acked_before = 0  # at the last look at the clock
        self._duplicates = 0

    # -- results -------------------------------------------------------------------------------

    @property
    def acked(self) -> int:
        """Messages acknowledged."""
        return self._acked

    @property
    def duplicates(self) -> int:
        """Of `acked`, messages whose Nats-Msg-Id was in the stream already."""
        return self._duplicates

    def failed(self) -> list[PublishFailure]:
        """The failures that no future got; they count as looked at from now on."""
        failed = self._failed.copy()
        self._looked_at = len(failed)
        return failed

    def tell_failures(self, error: BaseException | None) -> None:
        """At the end of a block that may have raised `error`: raises PublishFailedError.

        Only for failures that nobody has looked at; to another error they are added as a note.
        """
        if self.raise_failures:
            tell_failures(self._failed[self._looked_at :], error)

    # -- sending -------------------------------------------------------------------------------

    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
        told: Told | None,
        hooked: Hooked | None,
    ) -> int:
        """Take a place in the window and send: the message's index.

        `told`, if given, is called with its ack or error. Raises what `Publishing.send` and
        `publish_headers` raise, ConfigError when not open, and ConnectionClosedError or
        JetsparkError when no more acks can come; such a message has no index. `hooked` is
        told of it once, in the sender's thread, however often it is sent.
        """
        if hooked is not None:
            put = partial(
                self.publish, subject, payload, msg_id=msg_id, ttl=ttl, told=told, hooked=None
            )
            return hooked.send(subject, payload, None, headers, put)
        kept = None
        if headers is not None or msg_id is not None or ttl is not None:
            # A copy: the caller may go on changing theirs.
            kept = publish_headers(self._api.server, headers, msg_id=msg_id, ttl=ttl)
        # Before it is sent: its ack may be counted in the loop's thread while we are still here.
        index = self.window.reserve(subject, payload, kept, told)
        if index == CLOSED:
            raise self._not_open()
        try:
            self._send(index, subject, payload, kept)
        except BaseException as error:
            withdrawn = self.window.withdraw(index)
            self._changed()  # somebody else may wait for the place
            if withdrawn or not isinstance(error, JetsparkError):
                raise
        return index

    def _not_open(self) -> JetsparkError:
        if self._listener is None:
            return ConfigError("The publisher is not open: use it inside its with block.")
        return no_more_acks(self._ended)

    # -- life ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Take messages from now on. Raises as `Client.listen`."""
        inbox = self._inbox = self._client.new_inbox() + "."
        self._send = NumberedPublishes(self._publishing, inbox.encode()).send
        self._inbox_length = len(inbox.encode())
        self._listener = self._client.listen(
            f"{inbox}*",
            self._on_ack,
            on_run=self._on_acks,
            on_disconnect=self._on_disconnect,
            on_reconnect=self._on_reconnect,
            on_refused=self._on_refused,
            on_end=self._on_end,
        )
        self._left_at = None if self._client.is_connected else self._client.loop.time()
        self.window.open()
        self._look_at_the_clock()

    def close(self) -> None:
        """Accept no more messages; pending ones fail."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
        self._stop_resending()
        for index, entry in self.window.close():
            left = JetStreamError("The publisher was left before the ack came.")
            self._fail(index, entry, left)
        self._changed()

    # -- acks: called in the read loop -----------------------------------------------------------

    def _on_ack(self, frame: MessageFrame) -> None:
        self._on_acks([frame])

    def _on_acks(self, frames: list[MessageFrame], _size: int = 0) -> bool:
        window, inbox = self.window, self._inbox_length
        take, watched = window.take, window.watched
        plain, acked = self._plain_ack, 0
        for frame in frames:
            payload = frame.payload
            # Nearly all acks of a publisher are equal up to the number at the end.
            if not (payload.startswith(plain) and payload[len(plain) : -1].isdigit()):
                self._on_other_ack(frame)
                plain, watched = self._plain_ack, window.watched
                continue
            try:
                index = int(frame.subject[inbox:])
                told = take(index)[4]
            except (KeyError, ValueError):
                continue  # late: it has failed, or was sent again and acknowledged twice
            acked += 1
            if watched:
                window.acknowledged(index)
            if told is not None:
                told(from_wire(PubAck, ack_document(payload)))
        self._acked += acked
        if window.released:
            self._round(self._clock())
        self._changed()
        return True

    def _on_other_ack(self, frame: MessageFrame) -> None:
        try:
            index = int(frame.subject[self._inbox_length :])
        except ValueError:
            return
        entry = self.window.find(index)
        if entry is None:
            return  # late, as above
        status = status_of(frame.headers)
        try:
            if status is not None and status.is_no_responders:
                raise NoStreamResponseError(entry[0])
            document = ack_document(frame.payload)
            ack = from_wire(PubAck, document)
        except JetsparkError as error:
            self._on_refusal(index, entry, error)
            return
        self.window.take(index)
        self.window.acknowledged(index)
        self._acked += 1
        self._duplicates += ack.duplicate
        self._plain_ack = plain_ack_head(frame.payload, document) or self._plain_ack
        if entry[4] is not None:
            entry[4](ack)

    def _on_refusal(self, index: int, entry: Unacked, error: JetsparkError) -> None:
        """While a stream has no leader it takes nothing, which passes; other refusals are final."""
        window = self.window
        if is_passing(error):
            if window.refused(index, self._clock(), stored=is_in_process(error)):
                if self._refusal is None:
                    self._refusal, self._warn_at = error, self._clock() + _WARN_AFTER
                if not self._told:
                    self._told = True
                    self._client.report(error)
                return
            if window.may_be_stored(index):
                error = no_ack_in_time(f"message {index}", entry[0], self._timeout)
        window.take(index)
        window.settled(index)
        self._fail(index, entry, error)

    def _warn(self, now: float) -> None:
        """Once when refusals go on for a second: senders may have to wait for long."""
        if not self.window.troubled:
            self._refusal = None
        elif self._refusal is not None and now > self._warn_at:
            self._warn_at = math.inf
            logger.warning("%s It is sent again for %g s.", self._refusal, self._retry_for)

    def _fail(self, index: int, entry: Unacked, error: JetsparkError) -> None:
        """Tell the failure of a message that was taken out of the window."""
        if entry[4] is None:
            self._failed.append(PublishFailure(index, entry[0], error))
        else:
            entry[4](error)

    # -- ends, time, and the link ----------------------------------------------------------------

    def _unknown_again(self, entry: Unacked) -> bool:
        """Whether to send a message again if it is unknown whether it is stored."""
        if self._policy == "auto":
            return entry[2] is not None and MSG_ID in entry[2]
        return self._policy == "resend"

    def _clock(self) -> float:
        """Seconds of connected time."""
        now = self._client.loop.time() if self._left_at is None else self._left_at
        return now - self._away

    def _look_at_the_clock(self) -> None:
        """Every twentieth of the timeout, in place of a timer for each message."""
        window = self.window
        pause = min(self._timeout / _LOOKS, RETRY_WAIT)
        now = self._clock()
        # Valid until the next look: never too early, at most two looks too late.
        window.deadline = now + self._timeout + pause
        if self._left_at is None:
            late = window.overdue(now)
            for index, entry in late:
                self._fail(
                    index, entry, no_ack_in_time(f"message {index}", entry[0], self._timeout)
                )
            if late and self._acked == self._acked_before:
                window.hold()  # a leader that hangs loses what it is sent
            self._acked_before = self._acked
            if now >= self._round_at and window.watched:
                self._round(now)
            self._warn(now)
            self._changed()
        self._timer = self._client.loop.call_later(pause, self._look_at_the_clock)

    def _round(self, now: float) -> None:
        """Send the due messages again, unless the previous round has not finished."""
        if self._resending is None or self._resending.done():
            self._round_at = now + RETRY_WAIT
            self._resending = background(
                self._resend(self.window.due(now)), "Sending again", self._client.report
            )

    async def _resend(self, due: list[int]) -> None:
        window, held = self.window, self.window.held
        for index in due:
            if self._outbox.crowded:
                await self._outbox.wait()
            if window.held and not held:
                break  # there is no leader after all: the others would be refused as well
            if (entry := window.again(index)) is not None:
                try:
                    self._send(index, *entry[:3])
                except JetsparkError as error:
                    window.take(index)
                    window.settled(index)
                    self._fail(index, entry, error)
        self._changed()

    def _stop_resending(self) -> None:
        if self._resending is not None:
            self._resending.cancel()
            self._resending = None

    def _on_disconnect(self) -> None:
        self._stop_resending()
        for index, entry in self.window.lost(self._clock()):
            self._fail(index, entry, link_lost(index, entry[0]))
        self._left_at = self._client.loop.time()
        self._changed()

    def _on_reconnect(self) -> None:
        if self._left_at is not None:
            self._away += self._client.loop.time() - self._left_at
            self._left_at = None
        self._round(self._clock())

    def _on_refused(self, name: str, error: JetsparkError) -> None:
        refused = self.window.refused_for_good(
            lambda index, entry: name in (entry[0], f"{self._inbox}{index}")
        )
        for index, entry in refused:
            self._fail(index, entry, copy(error))
        self._changed()

    def _on_end(self, error: JetsparkError | None) -> None:
        self._ended = error
        for index, entry in self.window.close():
            self._fail(index, entry, no_more_acks(error))
        self._changed()

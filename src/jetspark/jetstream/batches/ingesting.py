"""A fast-ingest batch and its server, whether the senders are tasks or threads (ADR-50).

Contract. `add` may be called in any thread, one at a time; `open`, `finish`, `close` and everything
below them run in the event loop's thread; properties may be read anywhere. A sender that has to
wait, for space or for the end, waits in the class that owns this one: `changed` is called whenever
there may be space, or the batch has ended. Replies arrive on one wildcard inbox, whose handler runs
in the read loop. No task, future or timer is created for a message.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from jetspark.arguments import check_whole
from jetspark.client.numbered import NumberedPublishes
from jetspark.errors import (
    ConfigError,
    JetsparkError,
    JetStreamError,
    NoStreamResponseError,
)
from jetspark.jetstream.batches.ingest_window import IngestWindow
from jetspark.jetstream.batches.replies import (
    APPEND,
    END,
    PING,
    START,
    Flow,
    Gap,
    Last,
    NoResponders,
    Refusal,
    asked,
    ended_after,
    forgotten,
    is_unknown_batch,
    no_word,
    not_known_there,
    parse_reply,
    was_lost,
)
from jetspark.jetstream.batches.sending import BatchSending
from jetspark.jetstream.publishing.pub_ack import PublishTries
from jetspark.jetstream.publishing.results import (
    PublishFailure,
    link_lost,
    no_more_acks,
    tell_failures,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.client.publishing import Publishing
    from jetspark.jetstream.api import Api
    from jetspark.jetstream.documents import PubAck
    from jetspark.wire.events import MessageFrame
    from jetspark.wire.headers import Headers

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

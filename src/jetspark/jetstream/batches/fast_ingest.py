"""Fast ingest: a batch without end, with one ack for hundreds of messages (ADR-50; row J3).

Contract. `add` returns as soon as the message is on its way; while `outstanding` acks, each for as
many messages as the server says, have not come, it waits. Every message ends in exactly one way:
acknowledged (counted in `acked`) or failed (listed in `failed`). Leaving the block ends the batch,
waits for the server's last word, then raises PublishFailedError for the failures that nobody has
looked at: reading `failed` is looking.

`gaps="fail"`: the first message that is lost or refused ends the batch; what was stored is
everything before it, in order, and all after it fails with NotStoredError. `gaps="ok"`: the batch
goes on, and what was lost or refused is listed. Nothing is sent a second time. The server says
once that it refused a message (an expectation, a limit of the stream); its acks and its last word
count that message as the others, and nothing repeats the refusal. If it is lost on the way, the
message counts as acknowledged, and no client can know. So "ok" is for messages that the stream will
not refuse; the acks of "fail" are exact.

What no server takes, by permission or size, fails at once: with "fail" the batch ends before it.

The server forgets a batch after 10 s without a message: a ping keeps it alive, asks for acks that
are overdue, and after a reconnect for what was lost. A server that restarted does not know the
batch any more: it is over, and messages without an ack may be stored or not. So it is when
nothing is heard within `timeout` seconds of connected time.

Replies come to one wildcard inbox; its handler runs in the read loop. No task, future or timer is
made for a message.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from jetspark.arguments import check_whole
from jetspark.errors import (
    ConfigError,
    JetsparkError,
    JetStreamError,
    NoStreamResponseError,
)
from jetspark.jetstream.batches.fates import MessageFates
from jetspark.jetstream.batches.replies import (
    APPEND,
    END,
    PING,
    START,
    Flow,
    Gap,
    Last,
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
from jetspark.jetstream.publishing.headers import TimeToLive, publish_headers
from jetspark.jetstream.publishing.results import link_lost, no_more_acks, tell_failures
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.headers import HeadersLike

if TYPE_CHECKING:
    from types import TracebackType

    from jetspark.client.listener import Listener
    from jetspark.jetstream.api import Api
    from jetspark.jetstream.documents import PubAck
    from jetspark.wire.events import MessageFrame

GapPolicy: TypeAlias = Literal["fail", "ok"]

_PINGS: Final = 10  # how often within one timeout overdue acks are asked for, at least
_OVERDUE: Final = 1.0  # seconds
_KEEP_ALIVE: Final = 2.5  # seconds; the server's patience is 10
_NEVER: Final = -1  # a limit that no number of messages is below


class FastIngest(MessageFates):
    """See the module and `JetStream.fast_ingest`. For one event loop; any number of tasks may add.

    Raises ConfigError for arguments that cannot work.
    """

    def __init__(
        self, api: Api, *, gaps: GapPolicy, ack_every: int, outstanding: int, timeout: float
    ) -> None:
        if gaps not in ("fail", "ok"):
            raise ConfigError('gaps must be "fail" or "ok".')
        check_whole("ack_every", ack_every)
        if ack_every > 65535:
            raise ConfigError("ack_every must be from 1 to 65535.")
        check_whole("outstanding", outstanding)
        if not timeout > 0:
            raise ConfigError("timeout must be more than 0 seconds.")
        super().__init__()
        self._api = api
        self._client = api.client
        self._outbox = api.client._outbox
        self._gaps = gaps
        self._flow = ack_every  # messages for one ack, as the server said last
        self._outstanding = outstanding
        self._timeout = timeout
        self._reply = b""
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._limit = _NEVER  # no more are sent than so many
        self._ending = False
        self._over: JetsparkError | None = None
        self._broken: JetsparkError | None = None  # a message that is missing ends the batch
        self._heard = 0.0

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

        The options are those of `JetStream.publish`. Raises what `Client.publish` raises; such a
        message was not taken and has no index. When the batch is over it raises why.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # as it is now, not when there is room
        while self._sent >= self._limit or self._outbox.crowded:
            await self._wait_for_space()
        kept = None
        if (  # rarely: a call less for each message
            headers is not None
            or msg_id is not None
            or ttl is not None
            or expect_last_seq is not None
            or expect_last_subject_seq is not None
            or expect_last_subject_seq_of is not None
        ):
            kept = publish_headers(
                self._api.server,
                headers,
                msg_id=msg_id,
                ttl=ttl,
                expect_last_seq=expect_last_seq,
                expect_last_subject_seq=expect_last_subject_seq,
                expect_last_subject_seq_of=expect_last_subject_seq_of,
            )
        # Before it is sent: in the blocking client acks may come while we are still here.
        index = self._take(subject)
        if self._limit == _NEVER:  # the batch has just ended
            if self._withdraw(index):
                self._check_open()
            return index
        try:
            self._client.publish_replying(
                subject,
                payload,
                b"%b%d.%d.$FI" % (self._reply, index + 1, APPEND if index else START),
                kept,
            )
        except BaseException as error:
            if self._withdraw(index) or not isinstance(error, JetsparkError):
                raise
            return index
        self._published = index + 1
        return index

    async def _wait_for_space(self) -> None:
        self._check_open()
        if self._outbox.crowded:
            await self._outbox.wait()
        elif self._sent >= self._limit:
            space = self._client.loop.create_future()
            self._waiting.append(space)
            await space

    def _check_open(self) -> None:
        if self._over is not None:
            raise self._over
        if self._listener is None:
            raise ConfigError("The batch is not open: use it inside its async with block.")
        if self._ending:
            raise self._broken or ConfigError("The batch was ended already.")

    async def commit(self) -> PubAck | None:
        """End the batch and wait until the fate of every message is known.

        Returns the server's last word; None when there was none, or nothing was sent. Raises
        nothing that `failed` tells.
        """
        if self._over is None and not self._ending:
            self._check_open()
            self._finish()
        while self._over is None:
            ended = self._client.loop.create_future()
            self._waiting.append(ended)
            await ended
        return self._ack

    def _finish(self) -> None:
        self._ending = True
        self._limit = _NEVER
        self._wake()  # who waits to add is told
        if not self._sent:
            self._over = ConfigError("The batch was ended already.")
        else:
            self._ask()

    def _control(self, operation: int) -> None:
        """A ping, or the end: messages that the server does not store."""
        if (subject := self._open_subject()) is None:
            return
        number = self._published + (operation == END)
        self._client.publish_replying(
            subject,
            b"",
            b"%b%d.%d.$FI" % (self._reply, number, operation),
        )

    # -- life ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        inbox = self._client.new_inbox()
        self._reply = f"{inbox}.{self._flow}.{self._gaps}.".encode()
        self._listener = self._client.listen(
            f"{inbox}.>",
            self._on_reply,
            on_disconnect=self._on_disconnect,
            on_reconnect=self._on_reconnect,
            on_refused=self._on_refused,
            on_end=lambda error: self._end(no_more_acks(error)),
        )
        # One message, until the server has said how many.
        self._limit = 1
        self._heard = self._client.loop.time()
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
                await self.commit()
        finally:
            self._close()
        tell_failures(self._failed[self._looked_at :], error)

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
        self._end(JetStreamError("The batch was left before the ack came."))

    # -- replies: called in the read loop --------------------------------------------------------

    def _on_reply(self, frame: MessageFrame) -> None:
        if self._over is not None:
            return
        reply = parse_reply(frame, len(self._reply))
        if isinstance(reply, Refusal) and not reply.of_message:
            self._on_refused_question(reply.error)
            return
        self._heard = self._client.loop.time()
        match reply:
            case Flow(number, messages):
                self._flow = messages
                self._pass(number)
            case Gap(first, last):
                for number in range(first, min(last, self._sent) + 1):
                    self._fail(number, was_lost(number))
            case Refusal(number, error):
                self._on_refusal(number, error, goes_on=reply.goes_on)
            case Last(stored, ack):
                self._on_last_word(stored, ack)
        self._freed()

    def _on_refused_question(self, error: JetsparkError) -> None:
        """A ping, or the end. When nobody heard it, it is repeated in time."""
        if not isinstance(error, NoStreamResponseError):
            self._end(forgotten(error))

    def _on_refusal(self, number: int, error: JetsparkError, *, goes_on: bool) -> None:
        if is_unknown_batch(error):
            for each in range(number, self._sent + 1):
                self._fail(each, error)
            self._end(forgotten(error))
        else:
            self._fail(number, error)
            if number == 1 and not goes_on:
                self._end(error)

    def _on_last_word(self, stored: int | None, ack: PubAck) -> None:
        if stored is None:
            self._pass(1)
            self._end(not_known_there(ack))
            return
        self._ack = ack
        self._pass(stored)
        self._end(ended_after(stored))

    def _on_refused(self, name: str, error: JetsparkError) -> None:
        """Messages, or a question, that never came to the stream."""
        if self._over is not None:
            return
        if name.startswith(head := self._reply.decode()):
            number, of_message = asked(name[len(head) :].encode())
            numbers, again = [number] if of_message else [], False
        else:
            numbers, again = self._refuse(name)
        for number in numbers:
            self._fail(number, copy(error))
        if 1 in numbers or (again and self._open_subject() is None):
            self._end(error)  # it has not begun, or nothing can be asked
        elif numbers and self._gaps == "fail" and not self._ending:
            self._broken = error
            self._finish()
        elif again and self._ending:
            self._ask()  # it may have been the end that was refused
        self._freed()

    # -- the end ----------------------------------------------------------------------------------

    def _end(self, error: JetsparkError) -> None:
        """The batch is over: what has no fate fails for this reason."""
        if self._over is not None:
            return
        self._over = error
        self._limit = _NEVER
        for number in range(self._done + 1, self._sent + 1):
            self._fail(number, error)
        self._wake()

    def _freed(self) -> None:
        """More may be sent: what failed does not count as outstanding."""
        if self._over is None and not self._ending:
            self._limit = self._done + len(self._failures) + self._flow * self._outstanding
            if self._sent < self._limit:
                self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    # -- time and the link -----------------------------------------------------------------------

    def _look_at_the_clock(self) -> None:
        """Ask when an answer is overdue, or when the server would forget us."""
        loop = self._client.loop
        pause = min(self._timeout / _PINGS, _OVERDUE)
        self._timer = loop.call_later(pause, self._look_at_the_clock)
        if not self._sent or self._over is not None or not self._client.is_connected:
            self._heard = loop.time()
            return
        silent = loop.time() - self._heard
        waits = self.pending > 0 or self._ending
        if silent > self._timeout and waits:
            self._end(no_word(self._timeout))
        elif silent >= (pause if waits else min(self._timeout / 2, _KEEP_ALIVE)):
            self._ask()

    def _ask(self) -> None:
        try:
            self._control(END if self._ending else PING)
        except JetsparkError:
            pass  # asked again in time

    def _on_disconnect(self) -> None:
        # Asked about the first message, a server that has restarted would begin a new batch.
        if self._sent == self.pending == 1:
            self._end(link_lost(0, self._subjects[0]))

    def _on_reconnect(self) -> None:
        self._heard = self._client.loop.time()
        if self._sent and self._over is None:
            self._ask()

"""A message delivered by a JetStream consumer, and its acknowledgements.

Contract: nothing is acknowledged automatically. Each message takes one final acknowledgement (ack,
ack_sync, nak, term), after any number of `in_progress`; a second one raises
MessageAlreadyAckedError and sends nothing. One that could not be sent, or an ack_sync without
confirmation, may be repeated.
"""

from __future__ import annotations

import msgspec

import jetspark.errors as errors
from jetspark.client.messages import Message
from jetspark.subjects import NO_TEXT
from jetspark.timestamps import Seconds, ns_from_now
from jetspark.wire.kernel import MessageFrame as MessageFrame
from jetspark.wire.kernel import stream_position as stream_position

ACK = b"+ACK"
NAK = b"-NAK"
IN_PROGRESS = b"+WPI"
TERM = b"+TERM"


class JsMsg(Message):
    """One delivered message; `metadata` has its stream, consumer and sequences.

    Every acknowledgement raises MessageAlreadyAckedError after a final one,
    NotJetStreamMessageError when the message has no reply subject, and the errors of
    `Client.publish`.

    Example:
        ```python
        consumer = await js.stream("ORDERS").create_consumer(name="worker")
        msg = await consumer.next()
        print(msg.subject, msg.seq, msg.metadata.pending)  # orders.eu 1 2
        await msg.ack()
        ```
    """

    __slots__ = ("_answered",)
    # Set only by the first ack, so that creating a message costs only two stores.
    _answered: bool

    @property
    def is_acked(self) -> bool:
        """Whether this object has sent a final acknowledgement."""
        return getattr(self, "_answered", False)

    async def ack(self) -> None:
        """Acknowledge it, without waiting for the server's confirmation (see `JsMsg`).

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_consumer(name="worker")
            for msg in await consumer.fetch(10):
                await msg.ack()
            ```
        """
        await self._answer(ACK)

    async def ack_sync(self, *, timeout: Seconds | None = None) -> None:
        """Acknowledge it, and wait `timeout` seconds (None: the client's) for the confirmation.

        Raises RequestTimeoutError, NoRespondersError when the consumer is gone, and the errors of
        every acknowledgement (see `JsMsg`).

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_consumer(name="worker")
            msg = await consumer.next()
            await msg.ack_sync()  # the server has the acknowledgement
            print((await consumer.info()).ack_floor.stream_seq)  # 1
            ```
        """
        reply = self._claim()
        try:
            await self._client.request(reply, ACK, timeout=timeout)
        except BaseException:
            self._answered = False
            raise

    async def nak(self, delay: Seconds | None = None) -> None:
        """Not processed: deliver it again, at once or after `delay` (a timedelta, or seconds).

        Raises ConfigError for a negative delay, and the errors of every acknowledgement (see
        `JsMsg`).

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_consumer(name="worker")
            msg = await consumer.next()
            await msg.nak(delay=30)
            ```
        """
        if delay is None:
            await self._answer(NAK)
            return
        ns = ns_from_now("delay", delay)
        if ns < 0:
            raise errors.ConfigError("delay cannot be negative.")
        await self._answer(NAK + b" " + msgspec.json.encode({"delay": ns}))

    async def in_progress(self) -> None:
        """Still being processed: restarts the consumer's ack_wait (see `JsMsg`).

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_consumer(name="worker", ack_wait=30)
            msg = await consumer.next()
            await msg.in_progress()  # 30 more seconds
            await msg.ack()
            ```
        """
        await self._client.publish(self._reply_subject(), IN_PROGRESS)

    async def term(self, reason: str = "") -> None:
        """Never deliver it again. The server's advisory has the reason.

        A reason needs server 2.10.4: older ones would ignore the whole acknowledgement. Raises
        UnsupportedByServerError, ConfigError for a reason that is not one line of text, and the
        errors of every acknowledgement (see `JsMsg`).

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_consumer(name="worker")
            msg = await consumer.next()
            await msg.term("not JSON")
            ```
        """
        if "\n" in reason or "\r" in reason or NO_TEXT.search(reason):
            raise errors.ConfigError("The reason must be one line of text.")
        server = self._client.server_info
        if reason and server is not None and not server.at_least(2, 10, 4):
            raise errors.UnsupportedByServerError("term with a reason", "2.10.4", server.version)
        await self._answer(TERM + b" " + reason.encode() if reason else TERM)

    async def _answer(self, answer: bytes) -> None:
        reply = self._claim()
        try:
            await self._client.publish(reply, answer)
        except BaseException:
            self._answered = False
            raise

    def _claim(self) -> str:
        reply = self._reply_subject()
        # Before any await, so that two tasks cannot both answer.
        self._answered = True
        return reply

    def _reply_subject(self) -> str:
        """The subject for its acknowledgements. Raises MessageAlreadyAckedError."""
        if self.is_acked:
            raise errors.MessageAlreadyAckedError(
                f"This message on {self.subject!r} was acknowledged before."
            )
        reply = self.reply
        if reply is None:
            raise errors.NotJetStreamMessageError(
                "The message has no reply subject to acknowledge to."
            )
        return reply

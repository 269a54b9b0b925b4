"""Moving: each advisory about a message becomes one letter.

Contract
- An advisory is removed only when its letter is stored, so a killed worker loses none. A letter is
  stored only while its subject has none, so an advisory that is handled again repeats none.
- A message that is not an advisory becomes a letter itself; a replay returns it to its own subject.
- Failures are reported and retried, with growing pauses.
- A message is "gone" only when the stream's leader is past its sequence and does not have it, or
  when the message there is younger than the advisory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import jetspark.errors as errors
from jetspark.client.tasks import background
from jetspark.dead_letters.letter import ADVISORIES, WORKER, Death, died_of, letter_subject
from jetspark.documents.document import Timestamp, text_of_time
from jetspark.documents.events import MaxDeliverEvent, TerminatedEvent, parse_event
from jetspark.documents.streams import PubAck, StoredMsg
from jetspark.retries import REDELIVERY
from jetspark.subjects import check_name
from jetspark.validation import MAX_SEQUENCE, check_whole
from jetspark.wire.kernel import frame_of

if TYPE_CHECKING:
    from jetspark.jetstream.consumers import PullConsumer
    from jetspark.jetstream.context import JetStreamContext
    from jetspark.jetstream.message import JsMsg

_AHEAD = 100
"""Advisories requested ahead."""
_MAX_NAME_LENGTH = 255
_CLOCKS = timedelta(seconds=2)
"""Maximum difference between the clocks of a cluster's servers."""


class Mover:
    """Moves one message after the other. `name`: the dead letters'."""

    def __init__(self, js: JetStreamContext, name: str, *, remove_originals: bool) -> None:
        self._js = js
        self.name = name
        self._remove = remove_originals
        self.moved = 0
        self.gone = 0

    async def move(self, advisory: JsMsg) -> bool:
        """Whether the letter is stored now. Reports failures; raises only ConnectionClosedError."""
        try:
            new, gone = await self._store(advisory)
        except errors.ConnectionClosedError:
            raise
        except errors.JetsparkError as error:
            self._js.client.report(error)
            await self._settle(advisory.nak(REDELIVERY.pause(advisory.metadata.deliveries)))
            return False
        try:
            await self._settle(advisory.ack_sync())
        finally:  # so that a counted letter's advisory no longer waits
            self.moved += new
            self.gone += new and gone
        return True

    async def _settle(self, answer: Awaitable[None]) -> None:
        try:
            await answer
        except errors.ConnectionClosedError:
            raise
        except errors.JetsparkError as error:
            self._js.client.report(error)  # its redelivery finds the letter

    async def _store(self, advisory: JsMsg) -> tuple[bool, bool]:
        """Store it. Returns whether this call did, and whether the message was gone."""
        try:
            death = _death(advisory.data)
        except (errors.JetStreamError, errors.ConfigError) as error:
            # Anybody with the permission can publish anything on the subjects of advisories, and a
            # newer server may write what only a newer worker can read.
            ack = await self._send(*_unreadable_advisory(advisory, str(error)))
            advisory_text = f'Message {advisory.metadata.stream_seq} of "{self.name}{ADVISORIES}"'
            self._js.client.report(
                errors.JetStreamError(
                    f"{advisory_text} is not an advisory, and is now a letter itself: {error}"
                )
            )
            return _is_new(ack), False
        message = await self._message(death)
        try:
            ack = await self._send(death, message)
        except (errors.MaxPayloadError, errors.BadHeaderError):
            # The original stays, since its payload is nowhere else.
            ack = await self._send(death, message, complete=False)
        else:
            if self._remove and message is not None:
                await self._remove_original(death, message, ack)
        return _is_new(ack), message is None

    async def _remove_original(self, death: Death, message: StoredMsg, ack: PubAck | None) -> None:
        identity = _identity(death, message)
        if ack is not None and not await is_stored(self._js, ack, identity, message.data):
            raise errors.JetStreamError(
                f"The letter of message {death.stream_seq} of stream {death.stream!r} was stored "
                f'before, and is not in "{self.name}" now: the message is not removed.'
            )
        with suppress(errors.MessageNotFoundError, errors.StreamNotFoundError):
            await self._js.stream(death.stream).delete_msg(death.stream_seq)

    async def _send(
        self, death: Death, message: StoredMsg | None, *, complete: bool = True
    ) -> PubAck | None:
        """Send the letter. None: the advisory already has a letter."""
        try:
            return await self._js.publish(
                letter_subject(self.name, death),
                b"" if message is None or not complete else message.data,
                headers=died_of(death, message, complete=complete),
                # A restarted server may count to the limit twice and write two advisories; the
                # duplicate window drops the second letter.
                msg_id=None if message is None else _identity(death, message),
                expect_stream=self.name,
                expect_last_subject_seq=0,
            )
        except errors.WrongLastSequenceError:
            return None

    async def _message(self, death: Death) -> StoredMsg | None:
        died = death.timestamp
        try:
            original = await self._js.stream(death.stream).get(death.stream_seq, direct=False)
        except errors.StreamNotFoundError:
            return None
        except errors.MessageNotFoundError:
            try:
                info = await self._js.stream(death.stream).info()
            except errors.StreamNotFoundError:
                return None
            recreated = died is not None and info.created > died
            if recreated or info.state.last_seq >= death.stream_seq:
                return None
            raise  # the leader does not know the message yet
        recreated = died is not None and original.time - died > _CLOCKS
        return None if recreated else original


def _death(data: bytes) -> Death:
    """The death in an advisory. Raises JetStreamError or ConfigError for anything else."""
    event = parse_event(data)
    if not isinstance(event, MaxDeliverEvent | TerminatedEvent) or not event.id:
        raise errors.JetStreamError(f"An event of type {event.type!r} is about no dead letter.")
    # Anybody may have written it, and its names go into subjects and requests.
    check_whole("stream_seq", event.stream_seq, maximum=MAX_SEQUENCE)
    for key, name in (("stream", event.stream), ("consumer", event.consumer), ("id", event.id)):
        if len(check_name(key, name)) > _MAX_NAME_LENGTH:
            raise errors.ConfigError(
                f"The name of a {key} has at most {_MAX_NAME_LENGTH} characters."
            )
    return event


def _unreadable_advisory(advisory: JsMsg, reason: str) -> tuple[Death, StoredMsg]:
    """An unreadable advisory, as a message that the worker gave up."""
    metadata = advisory.metadata
    death = TerminatedEvent(
        type="terminated",
        id=f"{metadata.stream_seq}-{metadata.timestamp_ns}",  # the stream may be recreated
        stream=metadata.stream,
        consumer=metadata.consumer,
        stream_seq=metadata.stream_seq,
        consumer_seq=metadata.consumer_seq,
        deliveries=metadata.deliveries,
        reason=reason,
    )
    return death, StoredMsg(
        subject=advisory.subject,
        seq=metadata.stream_seq,
        time=Timestamp.from_ns(metadata.timestamp_ns),
        data=advisory.data,
        hdrs=frame_of(advisory).headers,
    )


def _identity(death: Death, message: StoredMsg) -> str:
    return f"{death.stream}.{death.consumer}.{death.stream_seq}.{text_of_time(message.time)}"


def _is_new(ack: PubAck | None) -> bool:
    return ack is not None and not ack.duplicate


async def is_stored(js: JetStreamContext, ack: PubAck, msg_id: str, data: bytes) -> bool:
    """Whether an acknowledged message is in its stream. Raises the errors of `Stream.get`.

    The ack of a duplicate does not prove it: the message may have been removed since, or another
    one had its id.
    """
    if not ack.duplicate:
        return True
    try:
        stored = await js.stream(ack.stream).get(ack.seq, direct=False)
    except (errors.MessageNotFoundError, errors.StreamNotFoundError):
        return False
    return stored.data == data and msg_id.encode() in (stored.hdrs or b"")


class DeadLetterWorker:
    """The result of `DeadLetters.worker`: it moves messages inside its block.

    Several workers, in as many processes, share the work. The end of the block raises the error
    that ended the worker, unless `wait_stopped` raised it.

    Example:
        ```python
        dead = await js.create_or_update_dead_letters("ORDERS_DEAD", "ORDERS")
        async with dead.worker() as worker:
            await worker.wait_stopped()  # moves messages until it fails
        ```
    """

    def __init__(self, js: JetStreamContext, name: str, *, remove_originals: bool) -> None:
        self._js = js
        self._mover = Mover(js, name, remove_originals=remove_originals)
        self._task: asyncio.Task[None] | None = None
        self._error: errors.JetsparkError | None = None
        self._raised = False

    @property
    def moved(self) -> int:
        """Letters that this worker stored."""
        return self._mover.moved

    @property
    def gone(self) -> int:
        """Letters without payload, since the stream no longer had the message."""
        return self._mover.gone

    async def wait_stopped(self) -> None:
        """Wait until its block is left.

        Raises ConsumerDeletedError, ConnectionLostError and any other end of
        `PullConsumer.consume`.
        """
        if self._task is None:
            raise errors.ConfigError(
                "A worker begins when its block is entered: async with worker."
            )
        await asyncio.wait([self._task])
        if self._error is not None:
            self._raised = True
            raise self._error

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise errors.ConfigError("A worker can be entered only once.")
        name = self._mover.name
        consumer = await self._js.stream(f"{name}{ADVISORIES}").consumer(WORKER)
        self._task = background(
            self._work(consumer),
            f"Moving dead letters to {name!r}",
            self._failed,
            name=f"jetspark-{name}",
        )
        return self

    async def _work(self, consumer: PullConsumer) -> None:
        async with consumer.consume(max_messages=_AHEAD) as messages:
            async for advisory in messages:
                await self._mover.move(advisory)

    def _failed(self, error: errors.JetsparkError) -> None:
        self._error = error
        self._js.client.report(error)

    async def __aexit__(self, kind: object, *_: object) -> None:
        if self._task is not None:
            # The current advisory is delivered again, and finds its letter if that is stored.
            self._task.cancel()
            await asyncio.wait([self._task])
        if kind is None and self._error is not None and not self._raised:
            raise self._error

    def __repr__(self) -> str:
        return f"DeadLetterWorker({self._mover.name!r}, moved={self.moved}, gone={self.gone})"

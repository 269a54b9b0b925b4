"""Moving: each advisory about a message becomes one letter.

Contract
- An advisory is removed only when its letter is stored, so a worker that is killed loses none. A
  letter is stored only while its subject has none, so an advisory that is handled again repeats
  none, whenever that is.
- A message that is no advisory becomes a letter itself: replayed, it goes back to its own subject.
- What fails is reported and tried again later, with growing pauses; the advisory waits meanwhile.
- A message is "gone" only when the stream's leader has gone past it and does not have it, or when
  the sequence belongs to a message of another stream, younger than the advisory.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from jetspark.client.tasks import background
from jetspark.dead_letters.letter import ADVISORIES, WORKER, Death, died_of, letter_subject
from jetspark.documents.document import Timestamp, text_of_time
from jetspark.documents.events import MaxDeliverEvent, TerminatedEvent, parse_event
from jetspark.documents.streams import PubAck, StoredMsg
from jetspark.errors import (
    BadHeaderError,
    ConfigError,
    ConnectionClosedError,
    ConsumerNotFoundError,
    JetsparkError,
    JetStreamError,
    MaxPayloadError,
    MessageNotFoundError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from jetspark.retries import REDELIVERY
from jetspark.subjects import check_name
from jetspark.validation import MOST_SEQUENCE, check_whole
from jetspark.wire.kernel import frame_of

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType

    from jetspark.jetstream.consumers import PullConsumer
    from jetspark.jetstream.context import JetStreamContext
    from jetspark.jetstream.message import JsMsg

_AHEAD = 100
"""Advisories requested ahead."""
_LONGEST_NAME = 255
_CLOCKS = timedelta(seconds=2)
"""How far the clocks of a cluster's servers may differ: in doubt the message is kept."""


class Mover:
    """Moves one message after the other. `name`: of the dead letters."""

    def __init__(self, js: JetStreamContext, name: str, *, remove_originals: bool) -> None:
        self._js = js
        self.name = name
        self._remove = remove_originals
        self.moved = 0
        self.gone = 0

    async def move(self, advisory: JsMsg) -> bool:
        """Whether the letter of this advisory is stored now; if not, the reason is reported.

        Raises ConnectionClosedError only.
        """
        try:
            await self._store(advisory)
        except ConnectionClosedError:
            raise
        except JetsparkError as error:
            self._js.client.report(error)
            await self._settle(advisory.nak(REDELIVERY.pause(advisory.metadata.deliveries)))
            return False
        await self._settle(advisory.ack_sync())
        return True

    async def _settle(self, answer: Awaitable[None]) -> None:
        try:
            await answer
        except ConnectionClosedError:
            raise
        except JetsparkError as error:
            self._js.client.report(error)  # it is delivered again, and finds its letter

    async def _store(self, advisory: JsMsg) -> None:
        try:
            death = _death(advisory.data)
        except (JetStreamError, ConfigError) as error:
            # Whoever may publish on the subjects of advisories can write anything there, and a
            # newer server may write what only a newer worker can read.
            ack = await self._send(*_itself(advisory, str(error)))
            self.moved += ack is not None and not ack.duplicate
            where = f'Message {advisory.metadata.stream_seq} of "{self.name}{ADVISORIES}"'
            self._js.client.report(
                JetStreamError(f"{where} is no advisory, and is a letter itself now: {error}")
            )
            return
        message = await self._message(death)
        if not await self._publish(death, message):
            return
        if message is None:
            self.gone += 1
        self.moved += 1

    async def _publish(self, death: Death, message: StoredMsg | None) -> bool:
        """False: an earlier try has stored it."""
        try:
            ack = await self._send(death, message)
        except (MaxPayloadError, BadHeaderError):
            ack = await self._send(death, message, complete=False)
            message = None  # its data is nowhere else
        if self._remove and message is not None:
            if ack is not None and not await is_stored(
                self._js, ack, _identity(death, message), message.data
            ):
                raise JetStreamError(
                    f"The letter of message {death.stream_seq} of stream {death.stream!r} was "
                    f'stored before, and is not in "{self.name}" now: the message is not removed.'
                )
            try:
                await self._js.delete_msg(death.stream, death.stream_seq)
            except (MessageNotFoundError, StreamNotFoundError):
                pass  # by an earlier try, or by somebody else
        return ack is not None and not ack.duplicate

    async def _send(
        self, death: Death, message: StoredMsg | None, *, complete: bool = True
    ) -> PubAck | None:
        """None: the advisory has a letter already."""
        try:
            return await self._js.publish(
                letter_subject(self.name, death),
                b"" if message is None or not complete else message.data,
                headers=died_of(death, message, complete=complete),
                # A server that counts to the limit twice, for example when it was restarted, writes
                # two advisories: of two letters within the duplicate window the second is left out.
                msg_id=None if message is None else _identity(death, message),
                expect_stream=self.name,
                expect_last_subject_seq=0,
            )
        except WrongLastSequenceError:
            return None

    async def _message(self, death: Death) -> StoredMsg | None:
        """The message, None when it is gone. Raises as every API call."""
        try:
            found = await self._js.get_msg(death.stream, death.stream_seq, direct=False)
        except StreamNotFoundError:
            return None
        except MessageNotFoundError:
            try:
                info = await self._js.stream_info(death.stream)
            except StreamNotFoundError:
                return None
            if info.state.last_seq >= death.stream_seq:
                return None
            if death.timestamp is not None and info.created > death.timestamp:
                return None
            raise  # of a leader that does not know it yet
        if death.timestamp is not None and found.time - death.timestamp > _CLOCKS:
            return None  # the stream was made anew
        return found


def _death(data: bytes) -> Death:
    """Raises JetStreamError, ConfigError for what is no advisory about a message."""
    event = parse_event(data)
    if not isinstance(event, MaxDeliverEvent | TerminatedEvent) or not event.id:
        raise JetStreamError(f"An event of type {event.type!r} is about no dead letter.")
    # Anybody can have written it, and what it says goes into subjects and requests.
    check_whole("stream_seq", event.stream_seq, most=MOST_SEQUENCE)
    for what, name in (("stream", event.stream), ("consumer", event.consumer), ("id", event.id)):
        if len(check_name(what, name)) > _LONGEST_NAME:
            raise ConfigError(f"The name of a {what} has at most {_LONGEST_NAME} characters.")
    return event


def _itself(advisory: JsMsg, why: str) -> tuple[Death, StoredMsg]:
    """What cannot be read, as a message that the worker has given up."""
    place = advisory.metadata
    death = TerminatedEvent(
        type="terminated",
        id=f"{place.stream_seq}-{place.timestamp_ns}",  # the stream may be made anew
        stream=place.stream,
        consumer=place.consumer,
        stream_seq=place.stream_seq,
        consumer_seq=place.consumer_seq,
        deliveries=place.deliveries,
        reason=why,
    )
    return death, StoredMsg(
        subject=advisory.subject,
        seq=place.stream_seq,
        time=Timestamp.from_ns(place.timestamp_ns),
        data=advisory.data,
        hdrs=frame_of(advisory).headers,
    )


def _identity(death: Death, message: StoredMsg) -> str:
    return f"{death.stream}.{death.consumer}.{death.stream_seq}.{text_of_time(message.time)}"


async def is_stored(js: JetStreamContext, ack: PubAck, msg_id: str, data: bytes) -> bool:
    """Whether a message that was acknowledged is in its stream.

    An ack that calls it a duplicate does not prove that: the message may have been removed since,
    or another one had its id. Raises as `get_msg`.
    """
    if not ack.duplicate:
        return True
    try:
        found = await js.get_msg(ack.stream, ack.seq, direct=False)
    except (MessageNotFoundError, StreamNotFoundError):
        return False
    return found.data == data and msg_id.encode() in (found.hdrs or b"")


async def workers_consumer(js: JetStreamContext, name: str) -> PullConsumer:
    """Raises StreamNotFoundError, ConsumerNotFoundError with the way to have it again."""
    try:
        return await js.consumer(f"{name}{ADVISORIES}", WORKER)
    except (StreamNotFoundError, ConsumerNotFoundError) as error:
        what = f'Stream "{name}{ADVISORIES}"'
        if isinstance(error, ConsumerNotFoundError):
            what = f'Consumer "{WORKER}" of stream "{name}{ADVISORIES}"'
        sentence = (
            f"{what} not found: create_dead_letters, or `jetspark dead-letters create {name} "
            "--stream …`, makes it again."
        )
        raise type(error)(error.code, error.err_code, error.description, sentence) from None


class DeadLetterWorker:
    """What `DeadLetters.worker` returns: it moves messages while its block is entered.

    Several, in as many processes, share the work. What has ended it before, if `wait` has not
    raised that, is raised at the end of the block.
    """

    def __init__(self, js: JetStreamContext, name: str, *, remove_originals: bool) -> None:
        self._js = js
        self._mover = Mover(js, name, remove_originals=remove_originals)
        self._task: asyncio.Task[None] | None = None
        self._error: JetsparkError | None = None
        self._told = False

    @property
    def moved(self) -> int:
        """Letters that this worker has stored, those of messages that were gone included."""
        return self._mover.moved

    @property
    def gone(self) -> int:
        """Letters without payload, since the stream did not have the message any more."""
        return self._mover.gone

    async def wait(self) -> None:
        """Return when it has ended by leaving its block, or raise what ended it.

        Raises ConsumerDeletedError, ConnectionLostError and what else ends a `consume`.
        """
        if self._task is None:
            raise ConfigError("A worker begins when its block is entered: async with worker.")
        await asyncio.wait([self._task])
        if self._error is not None:
            self._told = True
            raise self._error

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise ConfigError("A worker can be entered only once.")
        # Before the task, so that what is missing is raised here.
        consumer = await workers_consumer(self._js, self._mover.name)
        messages = consumer.consume(max_messages=_AHEAD)

        async def work() -> None:
            async with messages:
                async for advisory in messages:
                    await self._mover.move(advisory)

        what = f"Moving dead letters to {self._mover.name!r}"
        self._task = background(work(), what, self._failed, name=f"jetspark-{self._mover.name}")
        return self

    def _failed(self, error: JetsparkError) -> None:
        self._error = error
        self._js.client.report(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            # What is under way is delivered again, and finds its letter if it was stored.
            self._task.cancel()
            await asyncio.wait([self._task])
        if kind is None and self._error is not None and not self._told:
            raise self._error

    def __repr__(self) -> str:
        return f"DeadLetterWorker({self._mover.name!r}, moved={self.moved}, gone={self.gone})"

"""The server's replies to a fast-ingest batch (ADR-50). No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from jetspark.err_codes import BATCH_UNKNOWN
from jetspark.errors import (
    BatchError,
    DocumentError,
    JetsparkError,
    JetStreamError,
    NotStoredError,
    RequestTimeoutError,
)
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.publishing.pub_ack import ack_document, refusal
from jetspark.wire.documents import decode_document
from jetspark.wire.status import status_of

if TYPE_CHECKING:
    from jetspark.wire.events import MessageFrame


START: Final = 0
APPEND: Final = 1
END: Final = 3
PING: Final = 4


class Flow(NamedTuple):
    """All up to `number` are stored, except those reported as lost; an ack every `messages`."""

    number: int
    messages: int


class Gap(NamedTuple):
    """From `first` to `last`, both included, nothing arrived."""

    first: int
    last: int


class Refusal(NamedTuple):
    """The stream does not take message `number`, or a ping or end that had this number."""

    number: int
    error: JetsparkError
    of_message: bool = True
    goes_on: bool = False
    """The server said that the batch knows of it, and may go on."""


class NoResponders(NamedTuple):
    """Nobody took message `number`, or a ping or end that had this number."""

    number: int
    of_message: bool


class Last(NamedTuple):
    """The batch ended after `stored` messages; None: the server knows no such batches."""

    stored: int | None
    ack: PubAck


Reply: TypeAlias = "Flow | Gap | Refusal | NoResponders | Last"


def parse_reply(frame: MessageFrame, head: int) -> Reply:
    """A reply, whose subject has `head` bytes before the number it answers to."""
    number, of_message = asked(frame.subject[head:])
    try:
        status = status_of(frame.headers)
        if status is not None and status.is_no_responders:
            return NoResponders(number, of_message)
        return _parse(decode_document(frame.payload, "reply"), frame.payload)
    except (DocumentError, KeyError, TypeError, ValueError, OverflowError):
        text = f"A reply to the batch cannot be read: {frame.payload[:80]!r}."
        return Refusal(number, JetStreamError(text), of_message)
    except JetsparkError as error:
        return Refusal(number, error, of_message)


def asked(tail: bytes) -> tuple[int, bool]:
    """The number that is answered to, and whether it is a message's."""
    number, _, rest = tail.partition(b".")
    operation = rest.partition(b".")[0]
    try:
        return int(number), int(operation) in (START, APPEND)
    except ValueError:
        return 0, False


def _parse(said: dict[str, Any], payload: bytes) -> Reply:
    match said.get("type"):
        case "ack":
            return Flow(int(said["seq"]), max(1, int(said["msgs"])))
        case "gap":
            return Gap(int(said["last_seq"]), int(said["seq"]) - 1)
        case "err":
            return Refusal(int(said["seq"]), refusal(said["error"]), goes_on=True)
    ack = from_wire(PubAck, ack_document(payload))
    return Last(ack.count if ack.batch is not None else None, ack)


# -- the errors of messages --------------------------------------------------------------------


def is_unknown_batch(error: JetsparkError) -> bool:
    """Whether the server has forgotten the batch: it takes no more of it."""
    return isinstance(error, BatchError) and error.err_code == BATCH_UNKNOWN


def was_lost(number: int) -> NotStoredError:
    """On the way to the stream."""
    return NotStoredError(f"Message {number - 1} of the batch did not reach the stream.")


def ended_after(stored: int) -> NotStoredError:
    """The server's last word."""
    return NotStoredError(f"The batch ended after {stored} messages; this one is not stored.")


def forgotten(cause: JetsparkError) -> JetStreamError:
    """Of messages that were sent before."""
    error = JetStreamError(f"The batch is over ({cause}); without an ack it may be stored or not.")
    error.__cause__ = cause
    return error


def no_word(timeout: float) -> RequestTimeoutError:
    """Nothing came back, not even to pings."""
    return RequestTimeoutError(
        f"The server sent nothing about the batch within {timeout:g} s; it may be stored or not."
    )


def not_known_there(ack: PubAck) -> JetStreamError:
    """A server before 2.14 behind a domain, of which we cannot know."""
    return JetStreamError(
        "The server does not support fast ingest: it stored the first message as an ordinary one, "
        f"in {ack.stream} at sequence {ack.seq}. No more were sent."
    )

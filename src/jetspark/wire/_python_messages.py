"""The plain-Python kernel: message objects."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from jetspark.wire._python_reply import stream_sequence

M = TypeVar("M", bound="Delivered")


class MessageFrame(msgspec.Struct, frozen=True, gc=False):
    """One received message, undecoded: fields are parsed on access."""

    sid: int
    subject: bytes
    reply: bytes | None
    """The reply subject; None when there is none."""
    headers: bytes | None
    """The header block, from "NATS/1.0" to the blank line; None when there is none."""
    payload: bytes


class Delivered:
    """A frame and the client that received it: the base of all message classes.

    Subclasses add decoded fields and replies, but no constructor. Payload and stream sequence,
    which loops over many messages read, are implemented here.
    """

    __slots__ = ("_client", "_frame")

    _client: Any
    _frame: MessageFrame

    def __init__(self, client: Any, frame: MessageFrame) -> None:
        self._client = client
        self._frame = frame

    @property
    def data(self) -> bytes:
        """The payload."""
        return self._frame.payload

    @property
    def seq(self) -> int:
        """Sequence in the stream. Raises NotJetStreamMessageError."""
        return stream_sequence(self._frame.reply)


def deliver(kind: type[M], client: Any, frames: list[MessageFrame]) -> list[M]:
    """One message of class `kind` for each frame."""
    return [kind(client, frame) for frame in frames]

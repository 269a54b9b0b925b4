"""The plain-Python kernel: what a message object is made of."""

from __future__ import annotations

from typing import Any, TypeVar

from jetspark.wire._python_reply import stream_sequence
from jetspark.wire.events import MessageFrame

M = TypeVar("M", bound="Delivered")


class Delivered:
    """A frame, and the client that received it: the base of all message classes.

    Subclasses add what is decoded and what is sent, and have no constructor of their own. What a
    loop over many messages looks at, payload and stream sequence, is here.
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
        return self._frame[4]

    @property
    def seq(self) -> int:
        """Sequence in the stream. Raises NotJetStreamMessageError."""
        return stream_sequence(self._frame[2])


def deliver(kind: type[M], client: Any, frames: list[MessageFrame]) -> list[M]:
    """A message of that class for each frame."""
    return [kind(client, frame) for frame in frames]

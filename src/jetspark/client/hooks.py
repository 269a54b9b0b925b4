"""What a user may see of the traffic: the protocol of hooks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from jetspark.client.messages import MessageView
from jetspark.client.prepared import PreparedMessage
from jetspark.connection.events import ConnectionEvent
from jetspark.wire.reply_subject import Metadata

Around: TypeAlias = AbstractContextManager[Any] | None
"""Entered before, and left after; None: not interested."""

AckKind: TypeAlias = Literal["ack", "ack_sync", "nak", "in_progress", "term"]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An acknowledgement that is sent."""

    kind: AckKind
    metadata: Metadata
    """Of the message: stream, consumer, sequences, deliveries."""


class Hooks:
    """Inherit from it, override some methods, and give an object of it to `connect(hooks=…)`.

    All but `event` return a context manager, or None: it is entered before the work, in the task or
    thread of whoever asked for it, and left after it, with the error if there was one. So
    `@contextmanager` is the easiest way to write one. They are plain functions, are called for each
    message, and must not block. What a hook raises is reported and changes nothing, nor does it
    whether it suppresses an error. The JetStream API's own messages are not told.
    """

    def publish(self, message: PreparedMessage) -> Around:
        """A message is sent. `message.headers` may be changed: they are sent.

        Also by JetStream's publishers and batches, `request_many`, and as an answer; it is over
        when the message is buffered.
        """
        return None

    def request(self, message: PreparedMessage) -> Around:
        """A request is sent and its reply awaited; `message.headers` may be changed.

        A publish of JetStream whose ack is awaited is one, too. It is over when the reply came.
        """
        return None

    def deliver(self, message: MessageView, *, handled: bool) -> Around:
        """A message of a subscription or consumer, or a request to a service, is given out.

        `handled`: to a callback or handler, and it is over when that has ended. Otherwise to an
        iterator, `next` or `fetch`: it is over at once, since nobody knows when it is handled.
        """
        return None

    def ack(self, ack: Acknowledgement) -> Around:
        """A message is acknowledged; `ack_sync` is over when the server has confirmed it."""
        return None

    def event(self, event: ConnectionEvent) -> None:
        """The connection changed."""

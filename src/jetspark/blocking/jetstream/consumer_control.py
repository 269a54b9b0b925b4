"""Consumers that exist: pause, resume, reset, hand over the leadership, without async.

Contract: that of `jetspark.jetstream.consumers.control`.
"""

from __future__ import annotations

from datetime import datetime

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.consumers.control import ConsumerControl as AsyncConsumerControl
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.documents import ConsumerInfo, PauseState


class ConsumerControl:
    """The part of a consumer's handle that steers it."""

    __slots__ = ()

    _client: CallerSide
    _inner: AsyncConsumerControl

    def pause(self, until: datetime) -> PauseState:
        """Deliver nothing until then; an aware time (2.11). One that has passed resumes."""
        return self._client.thread.run(self._inner.pause, until)

    def resume(self) -> PauseState:
        """Deliver again (2.11)."""
        return self._client.thread.run(self._inner.resume)

    def reset(self, seq: int | None = None) -> ConsumerInfo:
        """Deliver again what is not acknowledged, or everything from `seq` on (2.14).

        What was acknowledged from there on, and how often a message was delivered, is forgotten.
        `seq` needs a deliver_policy of "all" or by a start, and must not be before that; otherwise
        APIError.
        """
        return self._client.thread.run(self._inner.reset, seq)


class ConsumerControlCalls:
    """The part of JetStream that steers consumers and leaders."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def pause_consumer(self, stream: str, name: str, until: datetime) -> PauseState:
        """Deliver nothing until then; an aware time (2.11). One that has passed resumes."""
        return self._thread.run(self._inner.pause_consumer, stream, name, until)

    def resume_consumer(self, stream: str, name: str) -> PauseState:
        """Deliver again (2.11)."""
        return self._thread.run(self._inner.resume_consumer, stream, name)

    def reset_consumer(self, stream: str, name: str, seq: int | None = None) -> ConsumerInfo:
        """Deliver again what is not acknowledged, or everything from `seq` on (2.14).

        See `PullConsumer.reset`.
        """
        return self._thread.run(self._inner.reset_consumer, stream, name, seq)

    def stream_leader_stepdown(self, stream: str, *, preferred: str | None = None) -> None:
        """Let another server lead the stream; `preferred` names it (2.11).

        Raises APIError on a server that is not clustered.
        """
        self._thread.run(self._inner.stream_leader_stepdown, stream, preferred=preferred)

    def consumer_leader_stepdown(
        self, stream: str, name: str, *, preferred: str | None = None
    ) -> None:
        """Let another server lead the consumer; `preferred` names it (2.11).

        Raises APIError on a server that is not clustered.
        """
        self._thread.run(self._inner.consumer_leader_stepdown, stream, name, preferred=preferred)

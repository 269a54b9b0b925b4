"""Counters, without async.

Contract: that of `jetspark.jetstream.publishing.counters`.
"""

from __future__ import annotations

from collections.abc import Sequence

from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.publishing.counters import Counter
from jetspark.timestamps import Seconds
from jetspark.wire.headers import HeadersLike


class CounterCalls:
    """The part of JetStream that is about counters."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def increment(
        self,
        subject: str,
        by: int = 1,
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Add to a counter, a negative number too, and return its new value.

        It begins at 0. `msg_id`: counted once; when it was counted before, the value is that of
        now. `timeout`: as in `publish`.

        Raises NotEnabledOnStreamError when the stream's `allow_msg_counter` is off, ConfigError,
        UnsupportedByServerError, and what `publish` raises.
        """
        return self._thread.run(
            self._inner.increment,
            subject,
            by,
            headers=headers,
            msg_id=msg_id,
            timeout=timeout,
        )

    def get_counter(self, stream: str, subject: str) -> Counter:
        """A counter's value, from the stream's leader.

        Raises MessageNotFoundError when nothing was counted yet, JetStreamError for a message
        that is no counter.
        """
        return self._thread.run(
            self._inner.get_counter,
            stream,
            subject,
        )

    def get_counters(self, stream: str, subjects: str | Sequence[str]) -> list[Counter]:
        """The counters of all matching subjects, as of one moment.

        See `get_last_msgs` for what it needs, raises, and may lag behind.
        """
        return self._thread.run(
            self._inner.get_counters,
            stream,
            subjects,
        )

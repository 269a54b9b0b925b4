"""Whether a message that has come may still be handed out, or another instance may have had it.

A process that stood still finds messages in its socket and its buffer that were sent to it long
ago. The server gave them to another instance after `ack_wait`, which is since handling later ones;
and it confirms whatever ack comes for them. So each message is handed out only

- when it was sent to us less than `ack_wait` ago, which is known without a question: with so many
  messages under way it was sent after the first of as many before it had been handed out; or
- when the server says, in less time than that, that this instance is still the pinned one, and that
  the message is not acknowledged. It is asked about redeliveries, and after a silence.

Others are dropped without an answer: they are no longer ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jetspark.errors import JetsparkError
from jetspark.groups.message import GroupMsg
from jetspark.timestamps import uptime

if TYPE_CHECKING:
    from jetspark.groups.member_consumer import MemberConsumer

PIN = "Nats-Pin-Id"
_USABLE = 0.9
"""The part of ack_wait that is counted on: clocks do not run equally fast."""


class HandOut:
    """Of one instance. `under_way`: how many messages are, at most."""

    def __init__(self, consumer: MemberConsumer, under_way: int) -> None:
        self._consumer = consumer
        self._usable = _USABLE * consumer.redelivered_after
        self._times: deque[float] = deque(maxlen=under_way)
        """When the last ones were handed out, before these when it began to pull."""

    def begin(self) -> None:
        """Before it pulls: nothing is sent to it earlier."""
        self._times.clear()
        self._times.append(uptime())

    def handed_out(self) -> None:
        """Now, one message."""
        self._times.append(uptime())

    def is_young(self, message: GroupMsg) -> bool:
        """Whether nobody else can have had it, as far as is known without a question."""
        young = uptime() - self._times[0] < self._usable
        return young and message.metadata.deliveries == 1

    async def current(self, messages: Sequence[GroupMsg]) -> list[GroupMsg]:
        """Those that nobody else can have had; none when the server cannot be asked."""
        if all(map(self.is_young, messages)):
            return list(messages)
        while True:
            began = uptime()
            try:
                state = await self._consumer.state()
            except JetsparkError:
                return []
            if state is None or state.pin is None:
                return []
            if uptime() - began < self._usable / 2:  # or it stood still meanwhile
                return [
                    message
                    for message in messages
                    if pin_of(message) == state.pin and message.metadata.stream_seq > state.floor
                ]


def pin_of(message: GroupMsg | None) -> str | None:
    """What the server called the instance that it sent the message to."""
    headers = None if message is None else message.headers
    return None if headers is None else headers.get(PIN)

"""The parser's events: control lines and runs of messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from jetspark.wire.control import OK as OK
from jetspark.wire.control import PING as PING
from jetspark.wire.control import PONG as PONG
from jetspark.wire.control import ControlEvent as ControlEvent
from jetspark.wire.control import Err as Err
from jetspark.wire.control import Info as Info
from jetspark.wire.control import Ok as Ok
from jetspark.wire.control import Ping as Ping
from jetspark.wire.control import Pong as Pong
from jetspark.wire.kernel import Event as Event
from jetspark.wire.kernel import FrameRun as FrameRun
from jetspark.wire.kernel import MessageFrame as MessageFrame

Frame: TypeAlias = MessageFrame | ControlEvent


def one_by_one(events: Iterable[Event]) -> Iterator[Frame]:
    """Events with each message by itself, for code where speed does not matter."""
    for event in events:
        if isinstance(event, tuple):
            _, messages, _ = event
            yield from messages
        else:
            yield event

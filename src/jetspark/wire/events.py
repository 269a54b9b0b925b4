"""What the parser gives: plain values, one per control frame and one per run of messages.

A message is a plain tuple, the cheapest value Python can make; everything rare is a small class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

MessageFrame: TypeAlias = tuple[int, bytes, bytes | None, bytes | None, bytes]
"""(sid, subject, reply subject, header block, payload).

`reply` and `header block` are None when absent; the block is as it came, from "NATS/1.0" to the
blank line. Nothing is decoded: headers and metadata are parsed on first use.
"""


@dataclass(frozen=True, slots=True)
class Info:
    """INFO: `document` is its JSON text, not parsed."""

    document: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """PING: the other side wants a PONG."""


@dataclass(frozen=True, slots=True)
class Pong:
    """PONG: the answer to the oldest PING still open."""


@dataclass(frozen=True, slots=True)
class Ok:
    """+OK: only in verbose mode."""


@dataclass(frozen=True, slots=True)
class Err:
    """-ERR: `text` without its quotes."""

    text: str


ControlEvent: TypeAlias = Info | Ping | Pong | Ok | Err
Frame: TypeAlias = MessageFrame | ControlEvent
FrameRun: TypeAlias = tuple[int, list[MessageFrame], int]
"""(sid, messages, bytes of their payloads): messages that follow each other.

All have that sid, and all or none a reply subject: who gets them is looked up once.
"""
Event: TypeAlias = FrameRun | ControlEvent


def one_by_one(events: Iterable[Event]) -> Iterator[Frame]:
    """Each message for itself, for those who are not in a hurry."""
    for event in events:
        if isinstance(event, tuple):
            yield from event[1]
        else:
            yield event


PING = Ping()
PONG = Pong()
OK = Ok()

"""The control lines that a server sends besides messages, one class for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Info:
    """INFO: `document` is its JSON text, not parsed."""

    document: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """PING: the receiver answers PONG."""


@dataclass(frozen=True, slots=True)
class Pong:
    """PONG: the answer to the oldest unanswered PING."""


@dataclass(frozen=True, slots=True)
class Ok:
    """+OK: sent in verbose mode only."""


@dataclass(frozen=True, slots=True)
class Err:
    """-ERR: `text` without its quotes."""

    text: str


ControlEvent: TypeAlias = Info | Ping | Pong | Ok | Err

PING = Ping()
PONG = Pong()
OK = Ok()

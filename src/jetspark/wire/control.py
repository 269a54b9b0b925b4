"""What a server sends besides messages: one small class for each control line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


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

PING = Ping()
PONG = Pong()
OK = Ok()

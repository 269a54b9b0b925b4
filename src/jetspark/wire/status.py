"""Status lines: what a server says inside a message instead of sending a user's message.

`NATS/1.0 404 No Messages` has code 404 and a description. A message with a payload and a header
that happens to be called Status is a user's message; only the version line counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jetspark.errors import BadHeaderError

CONTROL = 100
END_OF_BATCH = 204
BAD_REQUEST = 400
NOT_FOUND = 404
REQUEST_TIMEOUT = 408
CONFLICT = 409
PIN_MISMATCH = 423
NO_RESPONDERS = 503

IDLE_HEARTBEAT = "Idle Heartbeat"
FLOW_CONTROL = "FlowControl Request"

_LINE = re.compile(r"\s*(\d{3})(?:\s+(.*))?\s*")


@dataclass(frozen=True, slots=True)
class Status:
    """A status line: `code` (100, 404, 503 …) and `description`, which may be empty."""

    code: int
    description: str = ""

    @property
    def is_no_responders(self) -> bool:
        """Nobody listens on the request's subject."""
        return self.code == NO_RESPONDERS

    @property
    def is_idle_heartbeat(self) -> bool:
        """The server is alive and has nothing to send."""
        return self.code == CONTROL and self.description == IDLE_HEARTBEAT

    @property
    def is_flow_control(self) -> bool:
        """The server asks for an answer before it sends more."""
        return self.code == CONTROL and self.description == FLOW_CONTROL


def parse_status(text: str) -> Status | None:
    """The status behind `NATS/1.0`, None when there is none. Raises BadHeaderError."""
    if not text.strip():
        return None
    match = _LINE.fullmatch(text)
    if match is None:
        raise BadHeaderError(f"malformed status line {text[:60]!r}")
    return Status(int(match[1]), (match[2] or "").strip())


def status_of(block: bytes | None) -> Status | None:
    """The status of a raw header block, None for a user's message or a malformed block.

    Cheap enough for every message: most blocks have CRLF right behind the version.
    """
    if block is None or block[8:10] == b"\r\n" or not block.startswith(b"NATS/1.0"):
        return None
    line = block[8 : block.find(b"\r\n")]
    try:
        return parse_status(line.decode("utf-8", "replace"))
    except BadHeaderError:
        return None

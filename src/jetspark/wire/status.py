"""Status messages of the server: `NATS/1.0 404 No Messages` has a code and a description.

Only the version line makes a message a status; a header with the name Status does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from jetspark.errors import BadHeaderError

CONTROL = 100
END_OF_BATCH = 204
BAD_REQUEST = 400
NOT_FOUND = 404
REQUEST_TIMEOUT = 408
CONFLICT = 409
TOO_MANY_RESULTS = 413
PIN_MISMATCH = 423
NO_RESPONDERS = 503

IDLE_HEARTBEAT = "Idle Heartbeat"
FLOW_CONTROL = "FlowControl Request"


@dataclass(frozen=True, slots=True)
class Status:
    """A status line: `code` (100, 404, 503 …) and `description`, which may be empty."""

    code: int
    description: str = ""

    @property
    def is_no_responders(self) -> bool:
        """The request's subject has no subscriber."""
        return self.code == NO_RESPONDERS

    @property
    def is_idle_heartbeat(self) -> bool:
        """The consumer is alive and has no message to deliver."""
        return self.code == CONTROL and self.description == IDLE_HEARTBEAT

    @property
    def is_flow_control(self) -> bool:
        """The server asks for a reply before it delivers more."""
        return self.code == CONTROL and self.description == FLOW_CONTROL


def parse_status(text: str) -> Status | None:
    """Parse the text after `NATS/1.0`; None when it is empty. Raises BadHeaderError."""
    # Not by a regular expression: anybody may send the line, and it may be a megabyte of blanks.
    code, *rest = text.split(maxsplit=1) or [""]
    if not code and not rest:
        return None
    description = rest[0].strip() if rest else ""
    if len(code) != 3 or not code.isdecimal() or "\n" in description:
        raise BadHeaderError(f"malformed status line {text[:60]!r}")
    return Status(int(code), description)


def status_of(block: bytes | None) -> Status | None:
    """The status in a header block, None for a user's message or a malformed block.

    Cheap enough for every message, since most blocks have CRLF right after the version.
    """
    if block is None or block[8:10] == b"\r\n" or not block.startswith(b"NATS/1.0"):
        return None
    line = block[8 : block.find(b"\r\n")]
    try:
        return parse_status(line.decode("utf-8", "replace"))
    except BadHeaderError:
        return None

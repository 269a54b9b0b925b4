"""API requests and answers as people may read them in a log (rows J1, C16).

Contract: one line each to "jetspark.trace" at level DEBUG, of at most `MOST` characters of JSON.
No message is shown, neither payload nor headers, and no secret: the values of fields that are named
like one, at any depth, and what stands before the @ of a URL are masked. Bytes that are no JSON
object are shown as their number.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import msgspec

from jetspark.errors import JetsparkError

MASK: Final = "***"
MOST: Final = 2000
"""Characters of a request or answer that are shown."""

tracer = logging.getLogger("jetspark.trace")

_MESSAGE = frozenset({"data", "hdrs"})
_SECRET = re.compile(r"pass|token|secret|seed|nkey|jwt|creds|auth|sig$|api_?key|private", re.I)
_IN_URL = re.compile(r"(?<=://)[^\s/@\"]+(?=@)")
_MESSAGES: Final = ".DIRECT.GET."
"""Answers to these are messages as they are, which may happen to be JSON."""


def trace_request(subject: str, payload: bytes) -> None:
    """A request on its way out."""
    tracer.debug(">>> %s %s", subject, shown(payload))


def trace_answer(subject: str, payload: bytes) -> None:
    """The answer to a request to `subject`."""
    is_message = _MESSAGES in subject
    tracer.debug("<<< %s %s", subject, _size(payload) if is_message else shown(payload))


def trace_failure(subject: str, error: JetsparkError) -> None:
    """No answer came."""
    tracer.debug("<<< %s %s: %s", subject, type(error).__name__, error)


def shown(payload: bytes) -> str:
    """A payload as text without messages and secrets, cut off at MOST characters."""
    if not payload:
        return ""
    try:
        document = msgspec.json.decode(payload)
    except msgspec.MsgspecError:
        return _size(payload)
    if not isinstance(document, dict):
        return _size(payload)
    text = msgspec.json.encode(_masked(document)).decode()
    return text if len(text) <= MOST else f"{text[:MOST]}… ({len(payload)} bytes)"


def _size(payload: bytes) -> str:
    return f"({len(payload)} bytes)"


def _masked(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {
            key: MASK
            if (name == "message" and key in _MESSAGE) or _SECRET.search(key)
            else _masked(one, key)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_masked(one, name) for one in value]
    return _IN_URL.sub(MASK, value) if isinstance(value, str) else value

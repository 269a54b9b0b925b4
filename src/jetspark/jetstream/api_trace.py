"""API requests and answers in the log, readable and without messages and secrets.

Contract: one line each to "jetspark.trace" at level DEBUG, with at most `MOST` characters of JSON.
Payloads and headers of messages are not shown. Values of fields whose name suggests a secret, at
any depth, and the user part of URLs are masked. Of bytes that are not a JSON object only the
number is shown.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import msgspec

from jetspark.errors import DocumentError, JetsparkError
from jetspark.wire.documents import decode_document

MASK: Final = "***"
MOST: Final = 2000
"""Characters shown of a request or answer."""

tracer = logging.getLogger("jetspark.trace")

_MESSAGE = frozenset({"data", "hdrs"})
_SECRET = re.compile(r"pass|token|secret|seed|nkey|jwt|creds|auth|sig$|api_?key|private", re.I)
_IN_URL = re.compile(r"(?<=://)[^\s/@\"]+(?=@)")
_MESSAGES: Final = ".DIRECT.GET."
"""Answers to these are plain messages, which may happen to be JSON."""


def trace_request(subject: str, payload: bytes) -> None:
    """Log a request."""
    tracer.debug(">>> %s %s", subject, shown(payload))


def trace_answer(subject: str, payload: bytes) -> None:
    """Log the answer to a request to `subject`."""
    is_message = _MESSAGES in subject
    tracer.debug("<<< %s %s", subject, _size(payload) if is_message else shown(payload))


def trace_failure(subject: str, error: JetsparkError) -> None:
    """Log that a request failed."""
    tracer.debug("<<< %s %s: %s", subject, type(error).__name__, error)


def shown(payload: bytes) -> str:
    """A payload as text, without messages and secrets, at most MOST characters."""
    if not payload:
        return ""
    try:
        document = decode_document(payload, "document")
    except DocumentError:
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

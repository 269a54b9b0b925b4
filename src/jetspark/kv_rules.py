"""Rules of Key-Value buckets (ADR-6, ADR-8, ADR-48): names, and the operations of entries. Pure.

Shared by the client's buckets and by Spark.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from jetspark.errors import BadNameError
from jetspark.subjects import is_like, plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping

STREAM_PREFIX: Final = "KV_"
"""The beginning of the name of a bucket's stream; the bucket's name follows."""

MAX_HISTORY: Final = 64
"""The most entries that a bucket keeps of a key."""

OPERATION: Final = "KV-Operation"
MARKER_REASON: Final = "Nats-Marker-Reason"

_BUCKET = re.compile(r"[-_a-zA-Z0-9]+")
_TOKEN = r"[-/_=a-zA-Z0-9]+"
_KEY = re.compile(rf"{_TOKEN}(?:\.{_TOKEN})*")
_FILTER = re.compile(rf"(?:(?:{_TOKEN}|\*)\.)*(?:{_TOKEN}|\*|>)")
_RESERVED = "_kv"


def check_bucket(name: str) -> str:
    """The name as a plain str. Raises BadNameError."""
    if not is_like(_BUCKET, name):
        raise BadNameError("bucket", name, "only letters, digits, - and _ are allowed")
    return plain_text(name)


def check_key(key: str, original: str | None = None) -> str:
    """The key as a plain str. Raises BadNameError, which shows the `original` before encoding."""
    if not is_like(_KEY, key):
        _refuse(
            key, original, "only letters, digits and - / _ = are allowed, with single dots between"
        )
    if key.startswith(_RESERVED):
        _refuse(key, original, 'it begins with "_kv", which is reserved')
    return plain_text(key)


def check_filter(text: str, original: str | None = None) -> str:
    """The filter as a plain str: a key in which * stands for a token, and a last > for the rest.

    Raises BadNameError.
    """
    if not is_like(_FILTER, text):
        _refuse(
            text,
            original,
            "only letters, digits, - / _ = and the wildcards * and > are allowed, "
            "with single dots between",
        )
    return plain_text(text)


def _refuse(key: str, original: str | None, reason: str) -> None:
    if original is not None and original != key:
        reason = f"encoded as {key!r}, {reason}"
    raise BadNameError("key", key if original is None else original, reason)


# -- entries ---------------------------------------------------------------------------------


class Operation(StrEnum):
    """The effect of a write."""

    PUT = "PUT"
    DEL = "DEL"
    """Deleted; earlier values are still in the history."""
    PURGE = "PURGE"
    """Deleted with its history, or by a limit."""


_PUT, _DEL, _PURGE = Operation.PUT, Operation.DEL, Operation.PURGE
_OPERATIONS: Final[Mapping[str, Operation]] = {"DEL": _DEL, "PURGE": _PURGE}
_REASONS: Final[Mapping[str, Operation]] = {"MaxAge": _PURGE, "Purge": _PURGE, "Remove": _DEL}


def operation_in(block: bytes | None) -> Operation:
    """The operation in a header block, as other clients read it: an unknown one is a value's.

    Nothing else in the block counts: whoever may write one key must not take it, or the others that
    are read with it, from the readers by a header that cannot be read.
    """
    # Most have none, and need not be parsed.
    if block is None or not (b"KV-Operation" in block or b"Nats-Marker-Reason" in block):
        return _PUT
    headers: dict[str, str] = {}
    for line in block.split(b"\r\n"):
        name, _, value = line.decode("utf-8", "replace").partition(":")
        headers.setdefault(name, value.strip())
    if operation := headers.get(OPERATION):
        return _OPERATIONS.get(operation, _PUT)
    return _REASONS.get(headers.get(MARKER_REASON, ""), _PUT)

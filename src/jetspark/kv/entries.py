"""Entries: what a bucket holds of a key, one for each write (row K3)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from jetspark.timestamps import ns_to_datetime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetspark.client.messages import Message

OPERATION: Final = "KV-Operation"
MARKER_REASON: Final = "Nats-Marker-Reason"


class Operation(StrEnum):
    """What a write did."""

    PUT = "PUT"
    DEL = "DEL"
    """Deleted; what was before is in the history still."""
    PURGE = "PURGE"
    """Deleted with its history, or by a limit."""


_PUT, _DEL, _PURGE = Operation.PUT, Operation.DEL, Operation.PURGE
_REASONS: Final[Mapping[str, Operation]] = {"MaxAge": _PURGE, "Purge": _PURGE, "Remove": _DEL}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One write to a key. `gc=False`: a million of them are no work for the garbage collector."""

    bucket: str
    key: str
    value: bytes
    """Empty when deleted, and in a watch with `meta_only`."""
    revision: int
    """Counts the writes of the whole bucket, from 1."""
    created_ns: int
    """When the server stored it, nanoseconds since the epoch."""
    delta: int = 0
    """From a watch or a history: how many more were to come after it at that moment."""
    operation: Operation = Operation.PUT

    @property
    def created(self) -> datetime:
        """When the server stored it: aware, UTC, microseconds."""
        return ns_to_datetime(self.created_ns)

    @property
    def is_deleted(self) -> bool:
        """Whether the key has no value after this."""
        return self.operation is not _PUT


def operation_of(operation: str | None, marker_reason: str | None) -> Operation:
    """The operation that the two headers tell. Whatever is not known deletes (ADR-8)."""
    if operation is not None:
        return _PUT if operation == "PUT" else _PURGE if operation == "PURGE" else _DEL
    if marker_reason is not None:
        return _REASONS.get(marker_reason, _DEL)
    return _PUT


def operation_of_message(message: Message, block: bytes) -> Operation:
    """That of a delivered message with this header block."""
    # A meta-only watch has headers on every message, and seldom these.
    if b"KV-Operation" not in block and b"Nats-Marker-Reason" not in block:
        return _PUT
    headers = message.headers
    if headers is None:  # malformed, and reported
        return _DEL
    return operation_of(headers.get(OPERATION), headers.get(MARKER_REASON))

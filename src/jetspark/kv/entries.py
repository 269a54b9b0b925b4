"""Entries: what a bucket holds of a key, one for each write (row K3)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from jetspark.kv_rules import MARKER_REASON, OPERATION, Operation, has_operation, operation_of
from jetspark.timestamps import ns_to_datetime

if TYPE_CHECKING:
    from jetspark.client.messages import Message


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
        return self.operation is not Operation.PUT


def operation_of_message(message: Message, block: bytes) -> Operation:
    """That of a delivered message with this header block."""
    # A meta-only watch has headers on every message, and seldom these.
    if not has_operation(block):
        return Operation.PUT
    headers = message.headers
    if headers is None:  # malformed, and reported
        return Operation.DEL
    return operation_of(headers.get(OPERATION), headers.get(MARKER_REASON))

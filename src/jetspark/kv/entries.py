"""Entries: one for each write to a key."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from jetspark.kv_rules import MARKER_REASON, OPERATION, Operation, has_operation, operation_of
from jetspark.timestamps import ns_to_datetime

if TYPE_CHECKING:
    from jetspark.client.messages import Message


class Entry(msgspec.Struct, frozen=True, gc=False):  # gc: there may be millions
    """One write to a key."""

    bucket: str
    key: str
    value: bytes
    """Empty for deletions, and in a watch with `meta_only`."""
    revision: int
    """Counts the writes of the whole bucket, from 1."""
    created_ns: int
    """When the server stored it, nanoseconds since the epoch."""
    delta: int = 0
    """In a watch or history: entries pending after this one when it was sent."""
    operation: Operation = Operation.PUT

    @property
    def created(self) -> datetime:
        """When the server stored it: aware, UTC, microseconds."""
        return ns_to_datetime(self.created_ns)

    @property
    def is_deleted(self) -> bool:
        """Whether it deletes the key."""
        return self.operation is not Operation.PUT


def operation_of_message(message: Message, block: bytes) -> Operation:
    """The operation of a delivered message with this header block."""
    # In a meta-only watch every message has headers, seldom these.
    if not has_operation(block):
        return Operation.PUT
    headers = message.headers
    if headers is None:  # malformed, and reported
        return Operation.DEL
    return operation_of(headers.get(OPERATION), headers.get(MARKER_REASON))

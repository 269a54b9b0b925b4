"""Entries: one for each write to a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


class Snapshot(Mapping[str, Entry]):
    """Entries by key, all as they were at one revision of the bucket; see `Bucket.get_many`."""

    def __init__(self, entries: dict[str, Entry], revision: int) -> None:
        self._entries = entries
        self.revision = revision
        """Every entry up to this one is taken into account, and none after it. 0 when no key had
        an entry and `leader` was not asked for: a server's answer names no revision then."""

    def __getitem__(self, key: str) -> Entry:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Snapshot({list(self._entries)}, revision={self.revision})"


def operation_of_message(message: Message, block: bytes) -> Operation:
    """The operation of a delivered message with this header block."""
    # In a meta-only watch every message has headers, seldom these.
    if not has_operation(block):
        return Operation.PUT
    headers = message.headers
    if headers is None:  # malformed, and reported
        return Operation.DEL
    return operation_of(headers.get(OPERATION), headers.get(MARKER_REASON))

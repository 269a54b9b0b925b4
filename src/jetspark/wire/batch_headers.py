"""The headers that make messages an atomic batch (ADR-50), as bytes."""

from __future__ import annotations

from typing import Final

BATCH_ID: Final = "Nats-Batch-Id"

MARKS: Final = b"Nats-Batch-Id:%b\r\nNats-Batch-Sequence:%d\r\n%b\r\n"
"""The end of a message's header block: % (the batch's id, its number from 1 on, one of these)."""

STAGED: Final = b""
"""More messages follow."""
COMMIT: Final = b"Nats-Batch-Commit:1\r\n"
"""It is the last one: store all."""
COMMIT_BEFORE: Final = b"Nats-Batch-Commit:eob\r\n"
"""The one before was the last one: store all but this (since 2.14)."""

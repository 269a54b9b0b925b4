"""The headers of an atomic batch's messages (ADR-50), as bytes."""

from __future__ import annotations

from typing import Final

BATCH_ID: Final = "Nats-Batch-Id"

MARKS: Final = b"Nats-Batch-Id:%b\r\nNats-Batch-Sequence:%d\r\n%b\r\n"
"""The end of a header block: % (batch id, batch sequence from 1 on, one of the constants below)."""

STAGED: Final = b""
"""More messages follow."""
COMMIT: Final = b"Nats-Batch-Commit:1\r\n"
"""This message is the last one: commit the batch with it."""
COMMIT_BEFORE: Final = b"Nats-Batch-Commit:eob\r\n"
"""Commit the batch without this message, which is not stored (nats-server 2.14 and later)."""

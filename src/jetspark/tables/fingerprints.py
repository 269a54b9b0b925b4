"""Numbers that stand for texts in a table's transaction versions."""

from __future__ import annotations

import hashlib


def fingerprint(text: str) -> int:
    """A number that stands for a text: the first 56 bits of its SHA-256. Transaction versions, in
    which a table remembers it, can only be integers."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])

"""Reply subjects that cannot be guessed."""

from __future__ import annotations

import secrets


def new_inbox(prefix: str) -> str:
    """A fresh subject below `prefix`, 128 random bits."""
    return f"{prefix}.{secrets.token_urlsafe(16)}"

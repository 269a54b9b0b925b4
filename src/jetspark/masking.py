"""What must not be shown or logged: values of names that hold secrets, and users in URLs."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"
"""Shown in place of a secret."""
_SECRET_NAME = re.compile(r"pass|token|secret|seed|nkey|jwt|creds|auth|sig$|api_?key|private", re.I)
_USER_IN_URL = re.compile(r"(?<=://)[^\s/@\"]+(?=@)")


def is_secret_name(name: str) -> bool:
    """Whether a field, header or option of this name may hold a secret."""
    return _SECRET_NAME.search(name) is not None


def mask_users(text: str) -> str:
    """The text without the user and password of URLs in it."""
    return _USER_IN_URL.sub(MASK, text)

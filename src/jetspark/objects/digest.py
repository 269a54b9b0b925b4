"""The digest of an object's content (ADR-20). Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Final

_ALGORITHM: Final = "SHA-256"


def digest_text(sha256: bytes) -> str:
    """A digest in the form of ADR-20."""
    return f"{_ALGORITHM}={base64.urlsafe_b64encode(sha256).decode()}"


def is_digest(text: str, sha256: bytes) -> bool:
    """Whether a digest in any client's form is this one."""
    algorithm, _, value = text.partition("=")
    value = value.rstrip("=")
    try:
        said = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except (binascii.Error, ValueError):
        return False
    return algorithm.upper() == _ALGORITHM and said == sha256

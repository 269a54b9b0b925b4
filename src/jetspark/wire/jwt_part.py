"""One part of a JWT as text: Base64 for URLs, without padding, of a JSON object. Pure."""

from __future__ import annotations

import base64
from typing import Any

from jetspark.errors import DocumentError
from jetspark.wire.documents import decode_document


def bytes_of_part(part: str) -> bytes:
    """Raises ValueError for what is not Base64, and for another text of the same bytes."""
    raw = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    if not raw or part_of_bytes(raw) != part:
        raise ValueError("not Base64 of a JWT")
    return raw


def object_of_part(part: str) -> dict[str, Any]:
    """Raises ValueError for anything but a JSON object, however it is nested."""
    try:
        return decode_document(bytes_of_part(part), "part of a JWT")
    except DocumentError as error:
        raise ValueError("not a JSON object") from error


def part_of_bytes(raw: bytes) -> str:
    """The text."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")

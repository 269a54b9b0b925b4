"""What buckets, keys and filters may be called (ADR-6, ADR-8), all pure."""

from __future__ import annotations

import re
from typing import Final

from jetspark.errors import BadNameError

STREAM_PREFIX: Final = "KV_"
"""A bucket is the stream of this name and the bucket's."""

_BUCKET = re.compile(r"[-_a-zA-Z0-9]+")
_TOKEN = r"[-/_=a-zA-Z0-9]+"
_KEY = re.compile(rf"{_TOKEN}(?:\.{_TOKEN})*")
_FILTER = re.compile(rf"(?:(?:{_TOKEN}|\*)\.)*(?:{_TOKEN}|\*|>)")
_RESERVED = "_kv"


def check_bucket(name: str) -> str:
    """The name itself. Raises BadNameError."""
    if _BUCKET.fullmatch(name) is None:
        raise BadNameError("bucket", name, "only letters, digits, - and _ are allowed")
    return name


def check_key(key: str, shown: str | None = None) -> str:
    """The key itself. Raises BadNameError, which names `shown`: what it was made of."""
    if _KEY.fullmatch(key) is None:
        _refuse(
            key, shown, "only letters, digits and - / _ = are allowed, with single dots between"
        )
    if key.startswith(_RESERVED):
        _refuse(key, shown, 'it begins with "_kv", which is reserved')
    return key


def check_filter(text: str, shown: str | None = None) -> str:
    """The filter itself: a key, in which * stands for a token and a last > for the rest."""
    if _FILTER.fullmatch(text) is None:
        _refuse(
            text,
            shown,
            "only letters, digits, - / _ = and the wildcards * and > are allowed, "
            "with single dots between",
        )
    return text


def _refuse(key: str, shown: str | None, reason: str) -> None:
    if shown is not None and shown != key:
        reason = f"encoded as {key!r}, {reason}"
    raise BadNameError("key", key if shown is None else shown, reason)

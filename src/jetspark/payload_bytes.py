"""Payloads: any bytes-like object, measured in bytes.

Contract: a call copies its payload into bytes of our own. So `len` is the number of bytes, and
later changes by the caller do not reach a frame that waits. Text, numbers, None, lists and buffers
that are not contiguous are refused, because they do not say which bytes are meant; so are NumPy's
texts and numbers, which expose a buffer of their memory.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from jetspark.errors import BadPayloadError


class Payload(Protocol):
    """Objects with a buffer: bytes, bytearray, memoryview, array.array, mmap, a NumPy array."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Only type checkers need it; at run time `memoryview` decides."""


Value: TypeAlias = Payload | Mapping[str, Any]
"""A payload, or a value for a codec, which is refused without one."""


# Formats of the struct syntax whose items are addresses (O, P, X{}, &); names may surround them.
_ADDRESSES = re.compile(r"[OPX&]")
_TEXT = re.compile(r"[uw]")
_NAMES = re.compile(r":[^:]*:")
_STRUCTURE_OR_BYTES = re.compile(r"T\{.*|.*[cs]", re.DOTALL)


def payload_bytes(payload: Value) -> bytes:
    """The payload as bytes; a copy, unless it is `bytes` already. Raises BadPayloadError.

    Hot paths test `type(payload) is bytes` first, which saves the call.
    """
    return payload if type(payload) is bytes else byte_view(payload).tobytes()


def byte_view(payload: Value) -> memoryview:
    """A view of the payload's bytes, without a copy. Raises BadPayloadError."""
    try:
        view = memoryview(payload)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        raise BadPayloadError(payload, "encode it first") from None
    if not view.c_contiguous:
        raise BadPayloadError(payload, "its bytes are not contiguous; copy it with bytes()")
    items = _NAMES.sub("", view.format)
    if _ADDRESSES.search(items):
        raise BadPayloadError(payload, "its items are addresses in memory; encode it first")
    if _TEXT.search(items):
        raise BadPayloadError(payload, "its buffer is that of text; encode it first")
    is_number = view.ndim == 0 and not _STRUCTURE_OR_BYTES.fullmatch(items)
    if is_number or _is_of_numpy(payload):
        raise BadPayloadError(payload, "its buffer is that of a number; encode it first")
    try:
        return view.cast("B")
    except TypeError:  # items that Python's memoryview does not know, or none at all
        return memoryview(view.tobytes())


def _is_of_numpy(payload: object) -> bool:
    """True for one of NumPy's values, but not for one that is a `bytes`."""
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None and isinstance(payload, numpy.generic) and not isinstance(payload, bytes)
    )


def has_buffer(data: object) -> bool:
    """Whether the object is bytes-like."""
    try:
        memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        return False
    except (ValueError, BufferError):
        return True
    return True

"""What a payload may be: any bytes-like object, measured in bytes.

Contract: what is sent are bytes of our own, made once, where a call is given a payload. So `len`
is the number of bytes, and what the caller changes afterwards changes no frame that waits. Text,
numbers, None, lists, and buffers that are not contiguous are refused, since there is no
telling which bytes were meant. NumPy's texts and numbers have a buffer, too, of their memory: they
are refused as others are.
"""

from __future__ import annotations

import re
import sys
from typing import Protocol

from jetspark.errors import BadPayloadError


class Payload(Protocol):
    """bytes, bytearray, memoryview, array.array, mmap, a NumPy array: objects with a buffer."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """For type checkers; at run time `memoryview` is asked."""


# Buffers whose items are addresses: format O, P, X{}, & of the struct syntax, beside names.
_ADDRESSES = re.compile(r"[OPX&]")
_TEXT = re.compile(r"[uw]")
_NAMES = re.compile(r":[^:]*:")
_STRUCTURE_OR_BYTES = re.compile(r"T\{.*|.*[cs]", re.DOTALL)


def payload_bytes(payload: Payload) -> bytes:
    """The payload as bytes; a copy, unless it is `bytes` already. Raises BadPayloadError.

    Who sends much asks `type(payload) is bytes` first, which saves the call.
    """
    return payload if type(payload) is bytes else byte_view(payload).tobytes()


def byte_view(payload: Payload) -> memoryview:
    """Its bytes as they are and as they change, one item each. Raises BadPayloadError."""
    try:
        view = memoryview(payload)
    except (TypeError, ValueError, BufferError):
        raise BadPayloadError(payload, "encode it first") from None
    if not view.c_contiguous:
        raise BadPayloadError(payload, "its bytes are not contiguous; copy it with bytes()")
    items = _NAMES.sub("", view.format)
    if _ADDRESSES.search(items):
        raise BadPayloadError(payload, "its items are addresses; encode it first")
    if _TEXT.search(items):
        raise BadPayloadError(payload, "its buffer is that of text; encode it first")
    one = view.ndim == 0 and not _STRUCTURE_OR_BYTES.fullmatch(items)
    if one or _is_of_numpy(payload):
        raise BadPayloadError(payload, "its buffer is that of a number; encode it first")
    try:
        return view.cast("B")
    except TypeError:  # items that Python's memoryview does not know, or none at all
        return memoryview(view.tobytes())


def _is_of_numpy(payload: object) -> bool:
    """Whether it is one of NumPy's values (some say that they are bytes), and is no `bytes`."""
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None and isinstance(payload, numpy.generic) and not isinstance(payload, bytes)
    )


def has_buffer(data: object) -> bool:
    """Whether this is bytes-like."""
    try:
        memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        return False
    except (ValueError, BufferError):
        return True
    return True

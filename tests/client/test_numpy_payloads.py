"""NumPy's texts and numbers have a buffer of their memory: no payload, whatever their class."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np
import pytest

from jetspark.errors import BadPayloadError
from jetspark.payloads import payload_bytes

REFUSED: dict[str, Any] = {
    "str_": np.str_("abc"),
    "int64": np.int64(5),
    "uint8": np.uint8(5),
    "float64": np.float64(1.5),
    "float32": np.float32(1.5),
    "complex": np.complex128(1j),
    "bool": np.True_,
    "datetime64": np.datetime64("2026-01-01"),
    "array of one number": np.array(5),
    "array of texts": np.array(["abc", "d"]),
    "array of objects": np.array([None]),
    "one text in an array": np.array("abc"),
    "texts in a structure": np.zeros(2, [("name", "U3"), ("n", "i4")]),
    "array.array of text": array.array("u", "abc"),
    "text of ctypes": ctypes.create_unicode_buffer("abc"),
    "number of ctypes": ctypes.c_int(5),
}


class Pair(ctypes.Structure):
    """Fields whose names have the letters of formats."""

    _fields_ = (("you", ctypes.c_uint8), ("who", ctypes.c_uint8))


TAKEN: dict[str, tuple[Any, bytes]] = {
    "bytes_": (np.bytes_(b"abc"), b"abc"),
    "bytes": (np.frombuffer(b"abc", np.uint8), b"abc"),
    "numbers": (np.array([1, 2], "<u2"), b"\1\0\2\0"),
    "structures": (np.zeros(2, [("you", "u1"), ("who", "u1")]), bytes(4)),
    "no bytes": (np.zeros(0, np.uint8), b""),
    "structure of ctypes": (Pair(1, 2), b"\1\2"),
    "text buffer of ctypes": (ctypes.create_string_buffer(b"ab"), b"ab\0"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_texts_and_numbers_are_refused_as_pythons_own(kind: str) -> None:
    with pytest.raises(BadPayloadError, match=r"A payload is bytes, not .*: .*encode it first\."):
        payload_bytes(REFUSED[kind])


@pytest.mark.parametrize("kind", TAKEN)
def test_bytes_and_arrays_are_sent_as_their_bytes(kind: str) -> None:
    payload, data = TAKEN[kind]
    assert payload_bytes(payload) == data

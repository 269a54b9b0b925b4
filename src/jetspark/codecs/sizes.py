"""How large decoded values are, and how much may be decoded at a time."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from jetspark.codecs.decoder import Undecodable

MAX_DECODED_BYTES: Final = 512 * 1024 * 1024
"""Of rows that are decoded together."""


def bytes_of_value(kind: pa.DataType) -> int:
    """The bytes of one value in a column, without what its bytes in the payload become."""
    if pa.types.is_struct(kind):
        return 1 + sum(bytes_of_value(field.type) for field in kind)
    try:
        return 1 + int(kind.bit_width) // 8
    except ValueError:  # texts, lists and maps begin with an offset
        return 5


def bytes_of_byte(kind: pa.DataType) -> int:
    """The bytes that one byte of a payload may become: an element of a list can be one byte, and
    has all columns of its type."""
    if pa.types.is_struct(kind):
        return max((bytes_of_byte(field.type) for field in kind), default=1)
    if pa.types.is_map(kind):
        return max(5 + bytes_of_value(kind.item_type), bytes_of_byte(kind.item_type))
    if pa.types.is_list(kind):
        return max(bytes_of_value(kind.value_type), bytes_of_byte(kind.value_type))
    return 1


def check_decoded(size: int) -> None:
    """Raise Undecodable if payloads become so many bytes that a task might not have them."""
    if size > MAX_DECODED_BYTES:
        raise too_large()


def too_large() -> Undecodable:
    """The error for payloads that become more than `MAX_DECODED_BYTES`."""
    return Undecodable(
        f"The payload becomes more than {MAX_DECODED_BYTES >> 20} MiB: each element of a list has "
        "all columns of its type."
    )

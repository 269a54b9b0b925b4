"""The decode kernel: the hot loops, in C or in plain Python.

The C kernel is used where it was built and can be loaded, else the Python one.
JETSPARK_KERNEL=python selects the Python one, JETSPARK_KERNEL=c the C one (ConfigError if it cannot
be loaded). The rest of jetspark imports these names from this module only. Type checkers see the
Python kernel's; names that only the C kernel has are declared here, and None without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from jetspark.errors import ConfigError
from jetspark.wire._python_kernel import MAX_CONTROL_LINE as MAX_CONTROL_LINE
from jetspark.wire._python_kernel import MAX_MESSAGE as MAX_MESSAGE
from jetspark.wire._python_kernel import OTHER_FRAME as OTHER_FRAME
from jetspark.wire._python_kernel import Columns as Columns
from jetspark.wire._python_kernel import Event as Event
from jetspark.wire._python_kernel import FrameRun as FrameRun
from jetspark.wire._python_kernel import HeaderPairs as HeaderPairs

frame_of: Callable[[Delivered], MessageFrame] = attrgetter("_frame")
"""A message's frame, to create an object of another message class from it."""

Look: TypeAlias = Callable[[bytes | memoryview], bytes]


class JsonKind(IntEnum):
    """The type of a field of `json_columns`; the numbers are those of the C kernel."""

    TEXT = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    DOUBLE = 5
    TRUTH = 6
    DAY = 7
    """A date: days since 1970."""
    TIME = 8
    """A date, a time and an offset: microseconds since 1970."""


if TYPE_CHECKING:
    from jetspark.wire._python_kernel import Delivered as Delivered
    from jetspark.wire._python_kernel import Deliveries as Deliveries
    from jetspark.wire._python_kernel import DeliveryDecoder as DeliveryDecoder
    from jetspark.wire._python_kernel import Memory as Memory
    from jetspark.wire._python_kernel import MessageFrame as MessageFrame
    from jetspark.wire._python_kernel import deliver as deliver
    from jetspark.wire._python_kernel import header_pairs as header_pairs
    from jetspark.wire._python_kernel import reply_fields as reply_fields
    from jetspark.wire._python_kernel import split_frames as split_frames
    from jetspark.wire._python_kernel import stream_position as stream_position
    from jetspark.wire._python_kernel import stream_sequence as stream_sequence

    IMPLEMENTATION = "c"
    """Which kernel is in use: "c" or "python"."""

    JsonColumns: TypeAlias = tuple[bytes, list[tuple[bytes, bytes, bytes]]]
    json_columns: Callable[[Memory, Memory, tuple[bytes, ...], bytes], JsonColumns] | None
    """Payloads that are plain JSON objects, as the columns of their fields.

    Arguments: the payloads; their offsets (32 bits, one more than payloads); the fields' names and
    their kinds (`JsonKind`). Returns a bit for each payload that is left out, because Spark's
    parser has to decide what it means or whether it is right; and for each field its bits of
    validity, its values, and its offsets if it is a text, as Arrow has them.
    """

    class S2Decoder:
        """Unpacks an S2 stream, or a Snappy stream, that comes in pieces."""

        identified: bool
        """Whether the stream's first frame, which names the format, has come."""

        def decode(self, data: bytes, pos: int, into: bytearray) -> tuple[int, int]:
            """Append the content of complete frames from `pos` on, each verified.

            Returns (end, need): the first unused byte, and the minimum size of the frame there (0
            after a MiB of content). Raises BackupError for invalid bytes, after the valid content.
            """

    class EntryDecoder:
        """Decodes a list of messages into columns, with sequences from `start` to before `end`.

        From server 2.15 on an archive is a list of entries: the length of the name (uvarint), the
        time in nanoseconds (varint), sequence, size of the headers, size of the payload (uvarints),
        the name, headers, payload. Messages have a sequence, and the subject as their name.
        """

        last_sequence: int
        """Sequence of the last message, also of one not wanted."""

        def __init__(self, start: int, end: int) -> None: ...

        def decode(
            self, content: bytes | bytearray | memoryview, pos: int, into: Deliveries
        ) -> tuple[int, int]:
            """Append the messages of complete entries from `pos` on.

            Returns (end, need): need is OTHER_FRAME for another kind of entry at `end`, and 0 when
            it needs more bytes. Raises BackupError for anything else.
            """

    class RecordDecoder:
        """Decodes a message block into columns, with sequences from `start` to before `end`.

        Before 2.15 an archive has the server's message blocks, lists of records: length (4 bytes,
        the highest bit for headers), sequence (8), time (8), length of the subject (2), subject,
        size of the headers (4, with headers only), headers, payload, checksum (8). Numbers are
        little-endian.
        """

        last_sequence: int
        """Highest sequence, also of messages not wanted or erased."""

        def __init__(self, key: bytes, start: int, end: int) -> None:
            """`key`: 32 bytes, for the block's checksums."""

        def decode(
            self, content: bytes | bytearray | memoryview, pos: int, into: Deliveries
        ) -> int:
            """Append the messages of complete records from `pos` on; return the end.

            Leaves out erased records and repeated sequences. Raises BackupError for anything else.
            """

    look: Look
    """Received bytes in a form that the kernel reads: a view for the C kernel, a copy for Python's.

    The result is typed as bytes, but supports only len(), slicing and being passed to the kernel.
    """
else:
    _wanted = os.environ.get("JETSPARK_KERNEL", "")
    if _wanted not in ("", "c", "python"):
        raise ConfigError(f'JETSPARK_KERNEL is "{_wanted}"; it may be "c", "python" or absent.')
    try:
        if _wanted == "python":
            raise ImportError
        from jetspark.wire import _kernel as _implementation

        IMPLEMENTATION = "c"
    except ImportError as error:
        if _wanted == "c":
            raise ConfigError(
                "JETSPARK_KERNEL asks for the C kernel, which was not built when jetspark was "
                f"installed, or cannot be loaded: {error}."
            ) from error
        from jetspark.wire import _python_kernel as _implementation

        IMPLEMENTATION = "python"
    for _name in (
        *("Delivered", "Deliveries", "DeliveryDecoder", "MessageFrame", "deliver", "header_pairs"),
        *("reply_fields", "split_frames", "stream_position", "stream_sequence"),
        *("EntryDecoder", "RecordDecoder", "S2Decoder", "json_columns"),  # only the C kernel's
    ):
        globals()[_name] = getattr(_implementation, _name, None)
    look = memoryview if IMPLEMENTATION == "c" else bytes


def require_archives() -> None:
    """Raise ConfigError without the C kernel, which reads streams' archives."""
    if IMPLEMENTATION != "c":
        raise ConfigError(
            "Snapshots and backups need jetspark's C kernel, which was not built, or was switched "
            "off by JETSPARK_KERNEL: install a C compiler and install jetspark again."
        )

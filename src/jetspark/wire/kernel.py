"""The decode kernel: the hot loops, in C or in plain Python.

The C kernel is used where it was built and can be loaded, else the Python one.
JETSPARK_KERNEL=python selects the Python one, JETSPARK_KERNEL=c the C one (ConfigError if it cannot
be loaded). A C kernel that was built from older sources is a ConfigError, too.

The rest of jetspark imports these names from this module only. Type checkers see the Python
kernel's; names that only the C kernel has are declared here, and None without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

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

KernelView: TypeAlias = Callable[[bytes | memoryview], bytes]


class ColumnKind(IntEnum):
    """The type of a column in a plan of `json_columns`; the numbers are those of the C kernel."""

    BOOLEAN = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BINARY = 8
    DATE = 9
    """Days since 1970."""
    TIMESTAMP = 10
    """Microseconds since 1970."""
    TIMESTAMP_NTZ = 11
    """Microseconds since 1970, without a time zone."""
    DECIMAL = 12
    STRUCT = 13
    """A struct; the children are the fields."""
    LIST = 14
    """A list; the child is the column of the items."""
    MAP = 15
    """A map; the child is a STRUCT of keys, which are texts, and values."""
    NOTHING = 16
    """Always null."""


if TYPE_CHECKING:
    from jetspark.wire._python_kernel import Delivered as Delivered
    from jetspark.wire._python_kernel import Deliveries as Deliveries
    from jetspark.wire._python_kernel import DeliveryDecoder as DeliveryDecoder
    from jetspark.wire._python_kernel import Memory as Memory
    from jetspark.wire._python_kernel import MessageFrame as MessageFrame
    from jetspark.wire._python_kernel import deliver as deliver
    from jetspark.wire._python_kernel import header_pairs as header_pairs
    from jetspark.wire._python_kernel import numbered_acks as numbered_acks
    from jetspark.wire._python_kernel import numbered_publish as numbered_publish
    from jetspark.wire._python_kernel import reply_fields as reply_fields
    from jetspark.wire._python_kernel import split_frames as split_frames
    from jetspark.wire._python_kernel import stream_position as stream_position
    from jetspark.wire._python_kernel import stream_sequence as stream_sequence

    IMPLEMENTATION = "c"
    """Which kernel is in use: "c" or "python"."""

    ColumnBuffers: TypeAlias = tuple[int, bytes | None, bytes, bytes]
    """Rows, bits of validity (None: no null), values, offsets: as Arrow has them."""
    json_columns: (
        Callable[
            [Memory, Memory, bytes, tuple[bytes, ...], int],
            tuple[bytes, list[ColumnBuffers]] | None,
        ]
        | None
    )
    """Payloads that are usual JSON objects, as the columns of a schema.

    Arguments: the payloads; their offsets (32 bits, one more than payloads); a plan, the names of
    its columns, and the bytes that the columns may have together. A plan has eight bytes for each
    column, and each before those below it: `ColumnKind`, precision and scale of a DECIMAL, 0, and
    how many columns are directly below (32 bits). The first is a STRUCT, whose rows are the
    payloads. Returns a bit for each payload that is left out, because more has to be looked at
    than the kernel does, or because something is wrong with it; and the columns in the order of the
    plan. Returns None if they become too large.
    """

    avro_columns: (
        Callable[
            [
                Memory,
                Memory,
                bytes,
                tuple[bytes, ...],
                int,
                bytes,
                tuple[bytes, ...],
                tuple[bytes, ...],
            ],
            tuple[list[tuple[int, int, bytes, bytes]], list[ColumnBuffers]] | None,
        ]
        | None
    )
    """Datums of Avro as the columns of a schema.

    The arguments are those of `json_columns`, and a plan of datums, with its names and constants
    (payloads/avro.py). Returns what does not fit (its row, a number of `columns.Problem`, the
    path of the value, and a sentence), and the columns.
    """

    protobuf_columns: (
        Callable[
            [Memory, Memory, bytes, tuple[bytes, ...], int, bytes, tuple[bytes, ...]],
            tuple[list[tuple[int, int, bytes, bytes]], list[ColumnBuffers]] | None,
        ]
        | None
    )
    """Messages of Protobuf as the columns of a schema, as `avro_columns` has datums of Avro, with a
    plan of messages and its names (payloads/protobuf.py)."""
    ColumnTree: TypeAlias = tuple[int, bool, int, int, Any, Any, Any, tuple[Any, ...]]
    avro_datums: Callable[[int, ColumnTree], tuple[Memory, Memory]] | None
    """So many rows as datums of Avro, and where each begins and the last ends (64 bits).

    A tree is (kind, a flag, a number, the place of row 0, bits of validity, a buffer of values, of
    offsets or of branches, one of bytes or of the branches' rows, children), as Arrow has them.
    What kind, flag and number say, and whether anything may be null, is in `_avro_writer.h`. The
    kernel checks that each row is there.
    """
    protobuf_messages: Callable[[int, ColumnTree], tuple[Memory, Memory]] | None
    """So many rows as messages of Protobuf, as `avro_datums` (`_protobuf_writer.h`)."""

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

    kernel_view: KernelView
    """Received bytes in a form that the kernel reads: a view for the C kernel, a copy for Python's.

    The result is typed as bytes, but supports only len(), slicing and being passed to the kernel.
    """
else:
    _wanted = os.environ.get("JETSPARK_KERNEL", "")
    if _wanted not in ("", "c", "python"):
        raise ConfigError(f'JETSPARK_KERNEL is "{_wanted}"; it may be "c", "python" or absent.')
    _names = (
        *("Delivered", "Deliveries", "DeliveryDecoder", "MessageFrame", "deliver", "header_pairs"),
        *("numbered_acks", "numbered_publish"),
        *("reply_fields", "split_frames", "stream_position", "stream_sequence"),
    )
    _of_c_only = (
        *("EntryDecoder", "RecordDecoder", "S2Decoder"),
        *("avro_columns", "avro_datums", "json_columns", "protobuf_columns", "protobuf_messages"),
    )
    try:
        if _wanted == "python":
            raise ImportError
        from jetspark.wire import _kernel as _implementation

        IMPLEMENTATION = "c"
        for _name in _names + _of_c_only:
            globals()[_name] = getattr(_implementation, _name)
    except AttributeError as error:  # it lacks a name, or looks for one that the twin had
        raise ConfigError(
            "jetspark's C kernel was built from other sources than those installed: rebuild it "
            f"with pip install -e . ({error})."
        ) from error
    except ImportError as error:
        if _wanted == "c":
            raise ConfigError(
                "JETSPARK_KERNEL asks for the C kernel, which was not built when jetspark was "
                f"installed, or cannot be loaded: {error}."
            ) from error
        from jetspark.wire import _python_kernel as _implementation

        IMPLEMENTATION = "python"
        globals().update({_name: getattr(_implementation, _name) for _name in _names})
        globals().update(dict.fromkeys(_of_c_only))
    kernel_view = memoryview if IMPLEMENTATION == "c" else bytes


def require_archives() -> None:
    """Raise ConfigError without the C kernel, which reads streams' archives."""
    if IMPLEMENTATION != "c":
        raise ConfigError(
            "Snapshots and backups need jetspark's C kernel, which was not built, or was switched "
            "off by JETSPARK_KERNEL: install a C compiler and install jetspark again."
        )

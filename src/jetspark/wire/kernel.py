"""The decode kernel: the hot loops, in C or in plain Python.

The C kernel is used where it was built and can be loaded, else the Python one.
JETSPARK_KERNEL=python selects the Python one, JETSPARK_KERNEL=c the C one (ConfigError if it cannot
be loaded). The rest of jetspark imports these names from this module only. For type checkers they
are those of the Python kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from jetspark.errors import ConfigError
from jetspark.wire._python_kernel import (
    MAX_CONTROL_LINE,
    MAX_MESSAGE,
    OTHER_FRAME,
    Columns,
    Entry,
    Event,
    FrameRun,
    HeaderPairs,
    JsonKind,
    archive_entry,
)

frame_of: Callable[[Delivered], MessageFrame] = attrgetter("_frame")
"""The frame of a message, for making a message of another class of it."""

Look: TypeAlias = Callable[[bytes | memoryview], bytes]

if TYPE_CHECKING:
    from jetspark.wire._python_kernel import (
        Delivered,
        Deliveries,
        DeliveryDecoder,
        EntryDecoder,
        MessageFrame,
        RecordDecoder,
        S2Decoder,
        deliver,
        header_pairs,
        json_columns,
        reply_fields,
        split_frames,
        stream_position,
        stream_sequence,
    )

    IMPLEMENTATION = "c"
    """Which kernel is in use: "c" or "python"."""

    look: Look
    """Makes of received bytes what the kernel reads: a view for the C kernel, a copy for Python's.

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
    Delivered = _implementation.Delivered
    Deliveries = _implementation.Deliveries
    DeliveryDecoder = _implementation.DeliveryDecoder
    EntryDecoder = _implementation.EntryDecoder
    MessageFrame = _implementation.MessageFrame
    RecordDecoder = _implementation.RecordDecoder
    S2Decoder = _implementation.S2Decoder
    deliver = _implementation.deliver
    header_pairs = _implementation.header_pairs
    json_columns = _implementation.json_columns
    look = memoryview if IMPLEMENTATION == "c" else bytes
    reply_fields = _implementation.reply_fields
    split_frames = _implementation.split_frames
    stream_position = _implementation.stream_position
    stream_sequence = _implementation.stream_sequence

__all__ = [
    "IMPLEMENTATION",
    "MAX_CONTROL_LINE",
    "MAX_MESSAGE",
    "OTHER_FRAME",
    "Columns",
    "Delivered",
    "Deliveries",
    "DeliveryDecoder",
    "Entry",
    "EntryDecoder",
    "Event",
    "FrameRun",
    "HeaderPairs",
    "JsonKind",
    "MessageFrame",
    "RecordDecoder",
    "S2Decoder",
    "archive_entry",
    "deliver",
    "frame_of",
    "header_pairs",
    "json_columns",
    "look",
    "reply_fields",
    "split_frames",
    "stream_position",
    "stream_sequence",
]

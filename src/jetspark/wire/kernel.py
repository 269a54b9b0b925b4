"""The seam: the hot loops behind one import, whoever implements them.

The C kernel is used where it was built and can be loaded, and its plain-Python twin elsewhere;
JETSPARK_KERNEL=python asks for the twin, JETSPARK_KERNEL=c for the C one or a ConfigError. The
rest of jetspark imports these names from this module only. Types are those of the twin.
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
    Event,
    FrameRun,
    HeaderPairs,
)

frame_of: Callable[[Delivered], MessageFrame] = attrgetter("_frame")
"""The frame of a message: for who makes another message of it."""

Look: TypeAlias = Callable[[bytes | memoryview], bytes]

if TYPE_CHECKING:
    from jetspark.wire._python_kernel import (
        Delivered,
        Deliveries,
        DeliveryDecoder,
        MessageFrame,
        deliver,
        header_pairs,
        reply_fields,
        split_frames,
        stream_position,
        stream_sequence,
    )

    IMPLEMENTATION = "c"
    """Which kernel is in use: "c" or "python"."""

    look: Look
    """What the kernel is given to read: the C one takes memory where it is, its twin a copy.

    Called bytes by its type, as it can be sliced, measured and given to the kernel, no more.
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
    MessageFrame = _implementation.MessageFrame
    deliver = _implementation.deliver
    header_pairs = _implementation.header_pairs
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
    "Event",
    "FrameRun",
    "HeaderPairs",
    "MessageFrame",
    "deliver",
    "frame_of",
    "header_pairs",
    "look",
    "reply_fields",
    "split_frames",
    "stream_position",
    "stream_sequence",
]

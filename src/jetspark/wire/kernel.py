"""The seam: the hot loops behind one import, whoever implements them.

Today that is plain Python. A compiled twin takes over by being importable here; the rest of
jetspark imports these names from this module only.
"""

from __future__ import annotations

from jetspark.wire._python_kernel import (
    MAX_CONTROL_LINE,
    MAX_MESSAGE,
    OTHER_FRAME,
    Deliveries,
    DeliveryDecoder,
    split_frames,
)

IMPLEMENTATION = "python"
"""Which kernel is in use."""

__all__ = [
    "IMPLEMENTATION",
    "MAX_CONTROL_LINE",
    "MAX_MESSAGE",
    "OTHER_FRAME",
    "Deliveries",
    "DeliveryDecoder",
    "split_frames",
]

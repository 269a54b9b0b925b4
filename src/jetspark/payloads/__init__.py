"""Payloads: their schemas, their frames and headers, decoders into Arrow, encoders. No I/O.

`Codec` is imported when it is used, since it loads PyArrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetspark.payloads.codec import Codec

__all__ = ["Codec"]


def __getattr__(name: str) -> Any:
    """Import `Codec` when it is first used, since it loads PyArrow."""
    if name == "Codec":
        return import_module("jetspark.payloads.codec").Codec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

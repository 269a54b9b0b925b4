"""Planning without Python's cyclic garbage collector.

For thousands of streams it makes thousands of small objects, which live to its end and have no
cycles. The collector would walk over all of them again and again: with 10,000 streams a quarter of
a trigger's time, with 1,000 a tenth.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

Self = TypeVar("Self")
P = ParamSpec("P")
T = TypeVar("T")


def without_collecting(
    method: Callable[Concatenate[Self, P], T],
) -> Callable[Concatenate[Self, P], T]:
    """Decorator for a method that Spark calls in a trigger."""

    @wraps(method)
    def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.isenabled():
            return method(self, *args, **kwargs)
        gc.disable()
        try:
            return method(self, *args, **kwargs)
        finally:
            gc.enable()

    return call

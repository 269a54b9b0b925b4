"""The docstrings of the asyncio client, without async."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar

TwinT = TypeVar("TwinT", bound=type)

_ASYNC_WORDS: Final = (
    (r"`await` it for", "make it"),
    (r"`await` its", "take its"),
    (r"a function or coroutine function, is", "a plain function, is, in the caller's thread,"),
    (r"\bawait ", ""),
    (r"\basync (with|for)\b", r"\1"),
    (r"\bAsync iterator\b", "Iterator"),
    (r"\basyncio\.Future\b", "Future"),
    (r"\(plain or async\)", "(a plain function, called in a thread of its own)"),
)


def without_async(text: str) -> str:
    """A docstring of the asyncio client in the words of the blocking one."""
    for words, others in _ASYNC_WORDS:
        text = re.sub(words.replace(" ", r"\s+"), others, text)
    return text


def twin_of(cls: type) -> Callable[[TwinT], TwinT]:
    """Give the blocking twin of `cls` the docstrings of the asyncio class.

    They replace missing docstrings, and those with which theirs begin. Others stay.
    """

    def decorate(twin: TwinT) -> TwinT:
        _complete(twin, cls)
        for name in dir(cls):
            own = None if name.startswith("_") else inspect.getattr_static(twin, name, None)
            if isinstance(own, FunctionType | property):
                _complete(own, getattr(cls, name))
            if isinstance(own, FunctionType) and name in vars(twin):
                own.__module__ = twin.__module__
        return twin

    return decorate


def _complete(own: Any, twin: Any) -> None:
    whole, words = without_async(twin.__doc__ or ""), (own.__doc__ or "").split()
    if whole.split()[: len(words)] == words:
        own.__doc__ = whole

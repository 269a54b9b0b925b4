"""Options that are functions of the user, called while a link is opened."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from jetspark.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


def answer_of(option: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What it returns. Raises ConfigError for an async one, and what it raises."""
    answer = function(*args, **kwargs)
    if inspect.iscoroutine(answer):
        answer.close()  # or Python warns that nobody awaited it
        raise ConfigError(f"The callable {option} is async: it has to return its answer at once.")
    return answer

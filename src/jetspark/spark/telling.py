"""Our errors on their way to Spark, which shows the whole traceback of what a Python source raises.

A sentence that says what to do is the last of thirty lines then. So the methods that Spark calls
on the driver let errors of ours go without their traceback and causes, in the words of the options.
Any other exception is a mistake of ours and keeps everything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from jetspark.errors import ConfigError, JetsparkError
from jetspark.spark.connection_options import with_names_of_spark

Self = TypeVar("Self")
P = ParamSpec("P")
T = TypeVar("T")


def told_shortly(
    method: Callable[Concatenate[Self, P], T],
) -> Callable[Concatenate[Self, P], T]:
    """A method whose errors of ours are a sentence and no more."""

    @wraps(method)
    def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except JetsparkError as error:
            said = with_names_of_spark(error) if isinstance(error, ConfigError) else error
        raise said.with_traceback(None) from None

    return call

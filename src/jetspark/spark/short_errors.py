"""Errors for Spark's users: one sentence without a traceback, with the names of Spark's options.

For an exception of a Python data source Spark shows the whole traceback, so that the useful
sentence is the last of thirty lines. The methods that Spark calls on the driver therefore raise a
JetsparkError without traceback and cause. Any other exception is a bug and keeps both.
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


def without_traceback(
    method: Callable[Concatenate[Self, P], T],
) -> Callable[Concatenate[Self, P], T]:
    """Decorator for such a method."""

    @wraps(method)
    def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except JetsparkError as error:
            said = with_names_of_spark(error) if isinstance(error, ConfigError) else error
        raise said.with_traceback(None) from None

    return call

"""Asking the streams' leaders from Spark's driver, which tells at once who was never there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jetspark.bulk import asking
from jetspark.bulk.stream_api import StreamAPI
from jetspark.connection.options import ConnectOptions

T = TypeVar("T")

_answered: set[ConnectOptions] = set()
"""What has answered this process before."""


def ask(connection: ConnectOptions, question: Callable[[StreamAPI], T], patience: float) -> T:
    """Ask something that may be asked twice.

    A link that breaks, because a server restarts for example, is made again for `patience`
    seconds, so that a running query outlives it; what cannot be reached when this process asks
    for the first time is told at once.
    """
    answer = asking.ask(connection, question, patience if connection in _answered else 0.0)
    _answered.add(connection)
    return answer

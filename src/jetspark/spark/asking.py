"""Asking the streams' leaders from Spark's driver, over a link that is kept for the next time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from jetspark.bulk import links
from jetspark.bulk.stream_api import StreamAPI
from jetspark.bulk.trouble import passes
from jetspark.connection.options import ConnectOptions
from jetspark.errors import JetsparkError

logger = logging.getLogger("jetspark.spark")

T = TypeVar("T")

_PAUSE_SECONDS = 0.1

_answered: set[ConnectOptions] = set()
"""What has answered this process before."""


def ask(connection: ConnectOptions, patience: float, question: Callable[[StreamAPI], T]) -> T:
    """Ask something that may be asked twice.

    A link that breaks, because a server restarts for example, is made again for `patience`
    seconds, so that a running query outlives it; what cannot be reached when this process asks
    for the first time is told at once.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            with links.borrowed(connection) as link:
                answer = question(StreamAPI(link))
        except JetsparkError as error:
            waits = connection in _answered and time.monotonic() < deadline
            if not waits or not passes(error):
                raise
            logger.info("Asking again: %s", error)
            time.sleep(_PAUSE_SECONDS)
        else:
            _answered.add(connection)
            return answer

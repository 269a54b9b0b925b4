"""Asking a stream's leader, and again on another link when the first is lost."""

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

logger = logging.getLogger("jetspark.bulk")

T = TypeVar("T")

_PAUSE_SECONDS = 0.1


def ask(
    options: ConnectOptions,
    question: Callable[[StreamAPI], T],
    patience: float,
    *,
    timeout: float = 5.0,
) -> T:
    """Ask on a link of its own, again for `patience` seconds when it is lost or nobody answers.

    What is asked must be harmless to ask twice. `timeout`: seconds for each call of the question.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            with links.borrowed(options) as link:
                return question(StreamAPI(link, timeout))
        except JetsparkError as error:
            if not passes(error) or time.monotonic() + _PAUSE_SECONDS > deadline:
                raise
            logger.info("Asking again: %s", error)
            time.sleep(_PAUSE_SECONDS)

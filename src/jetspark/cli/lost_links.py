"""Logs when the servers of queries go away, and when one is back.

Tasks and drivers retry silently, so a command has a link of its own to each of its servers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jetspark.errors import JetsparkError
from jetspark.links.link_pool import pool

if TYPE_CHECKING:
    from jetspark.connection.options import ConnectOptions

logger = logging.getLogger("jetspark.cli")

_PING_SECONDS = 1.0


@contextmanager
def logging_lost_links(connections: Collection[ConnectOptions]) -> Iterator[None]:
    """During the block, log when no server of a connection answers, and when one is back.

    A thread checks each connection, on a link of its own.
    """
    ended = threading.Event()
    for options in connections:
        threading.Thread(target=_check_link, args=(options, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _check_link(options: ConnectOptions, ended: threading.Event) -> None:
    """Log when the servers of a connection stop answering, and when one answers again.

    Sends a PING every second until `ended` is set, and logs each change once.
    """
    lost_at = None  # when the servers were lost; None while one answers
    while not ended.wait(_PING_SECONDS):
        try:
            with pool.link(options) as link:
                while link.check():  # an idle link may be a lost one
                    if lost_at is not None:
                        took = time.monotonic() - lost_at
                        logger.info("%s answers again, after %.0f s.", link.server, took)
                    lost_at = None
                    if ended.wait(_PING_SECONDS):
                        return
            problem = f"The connection to {link.server} is lost."
        except JetsparkError as error:
            problem = str(error)
        if lost_at is None and not ended.is_set():
            lost_at = time.monotonic()
            logger.warning("%s The queries wait for a server.", problem)

"""The process's pool of idle links, since one Python worker reads many partitions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from jetspark.bulk.link import BlockingLink, connect
from jetspark.connection.options import ConnectOptions

_TRUSTED_SECONDS = 5.0
"""Seconds; a link that was idle for longer is checked with a PING before it is used."""

_idle: dict[ConnectOptions, list[tuple[BlockingLink, float]]] = {}

# A forked child must not use its parent's sockets; this closes only its own copies of them.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def borrowed(options: ConnectOptions) -> Iterator[BlockingLink]:
    """A link for the block. Raises as `connect`.

    It returns to the pool unless the block raises, or is in a generator that is closed early.
    """
    link = _borrow(options)
    try:
        yield link
    except BaseException:  # also GeneratorExit, after a LIMIT: messages may be in flight
        link.close()
        raise
    _give_back(options, link)


def _borrow(options: ConnectOptions) -> BlockingLink:
    """An idle link that still answers, or a new one."""
    kept = _idle.get(options, [])
    while kept:
        link, since = kept.pop()
        if time.monotonic() - since < _TRUSTED_SECONDS or link.check():
            return link
    return connect(options)


def _give_back(options: ConnectOptions, link: BlockingLink) -> None:
    """Keep a link with no messages in flight."""
    if not link.closed:
        _idle.setdefault(options, []).append((link, time.monotonic()))


def close_idle() -> None:
    """Close all idle links of this process."""
    while _idle:
        _, kept = _idle.popitem()
        for link, _since in kept:
            link.close()

"""The pool of this process's idle links: one Python worker reads many partitions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from jetspark.bulk.link import BlockingLink, connect
from jetspark.connection.options import ConnectOptions

_TRUSTED_SECONDS = 5.0
"""A link that was idle for longer is tried with a PING before it is used."""

_idle: dict[ConnectOptions, list[tuple[BlockingLink, float]]] = {}

# A forked child must not use its parent's sockets; this closes only its own copies of them.
os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def borrowed(options: ConnectOptions) -> Iterator[BlockingLink]:
    """A link for the block. Raises as `connect`.

    It returns to the pool unless the block raises, or is a generator that is closed half-way.
    """
    link = _borrow(options)
    try:
        yield link
    except BaseException:  # GeneratorExit too, after a LIMIT: messages may be under way
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
    """Keep a link for which nothing is under way."""
    if not link.closed:
        _idle.setdefault(options, []).append((link, time.monotonic()))


def close_idle() -> None:
    """Close all idle links of this process."""
    while _idle:
        _, kept = _idle.popitem()
        for link, _since in kept:
            link.close()

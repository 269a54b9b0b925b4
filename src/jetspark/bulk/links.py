"""Idle links of this process, kept for the next range: one Python worker reads many partitions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from jetspark.bulk.link import BlockingLink, connect
from jetspark.connection.options import ConnectOptions

_TRUSTED_SECONDS = 5.0
"""A link idle for longer is asked whether it is still there before it is used."""

_idle: dict[ConnectOptions, list[tuple[BlockingLink, float]]] = {}

# A forked child must not share its parent's sockets; forgetting them closes only its own copies.
os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def borrowed(options: ConnectOptions) -> Iterator[BlockingLink]:
    """A link for the block; kept afterwards unless the block raised or was left half-way."""
    link = _borrow(options)
    try:
        yield link
    except BaseException:  # a LIMIT that stops a generator too: anything may be under way
        link.close()
        raise
    _give_back(options, link)


def _borrow(options: ConnectOptions) -> BlockingLink:
    """A link that nobody else uses: an idle one that still answers, or a new one."""
    kept = _idle.get(options, [])
    while kept:
        link, since = kept.pop()
        if time.monotonic() - since < _TRUSTED_SECONDS or link.check():
            return link
    return connect(options)


def _give_back(options: ConnectOptions, link: BlockingLink) -> None:
    """Keep a link that has nothing under way."""
    if not link.closed:
        _idle.setdefault(options, []).append((link, time.monotonic()))


def close_idle() -> None:
    """Close all idle links of this process."""
    while _idle:
        _, kept = _idle.popitem()
        for link, _since in kept:
            link.close()

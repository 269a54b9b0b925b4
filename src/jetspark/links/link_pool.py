"""The idle links of this process, which readers and writers take and return."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from jetspark.connection.options import ConnectOptions
from jetspark.links.link import BlockingLink, connect

_TRUSTED_SECONDS = 5.0
"""A link that was idle for longer is checked with a PING before it is used."""


class IdleLink(NamedTuple):
    """A link that nobody uses, and the `time.monotonic()` since when."""

    link: BlockingLink
    since: float


class LinkPool:
    """The idle links of a process, kept for reuse since one Python worker reads many partitions.

    A forked child must not use its parent's sockets: it begins with an empty pool, and closes only
    its own copies of them.
    """

    def __init__(self) -> None:
        """Begin without links. A child that is forked later drops those of its parent."""
        self.idle: dict[ConnectOptions, list[IdleLink]] = {}
        self.reachable: set[ConnectOptions] = set()
        """Servers that answered this process, or that serve a query it takes part in: one
        that cannot be reached is restarting, and not a wrong address."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.idle.clear)

    @contextmanager
    def link(self, options: ConnectOptions) -> Iterator[BlockingLink]:
        """Lend a link for the block: an idle one that still answers, or a new one.

        It returns to the pool unless the block raises, or its generator is closed early. Raises the
        errors of `connect`.
        """
        link = self._take_idle(options) or connect(options)
        try:
            yield link
        except BaseException:  # also GeneratorExit, after a LIMIT: messages may be in flight
            link.close()
            raise
        if not link.closed:
            self.idle.setdefault(options, []).append(IdleLink(link, time.monotonic()))

    def _take_idle(self, options: ConnectOptions) -> BlockingLink | None:
        """Remove an idle link that still answers from the pool; None if there is none."""
        idle_links = self.idle.get(options, [])
        while True:
            try:
                link, since = idle_links.pop()
            except IndexError:  # not checked before, since another thread may take the last one
                return None
            if time.monotonic() - since < _TRUSTED_SECONDS or link.check():
                return link

    def close(self) -> None:
        """Close all idle links."""
        while self.idle:
            _, idle_links = self.idle.popitem()
            for idle in idle_links:
                idle.link.close()


pool = LinkPool()
"""The pool of this process."""

"""Metrics of clients: `connect(hooks=jetspark.observe())`.

Counts are those that each client has anyway (`Client.stats`), read when Prometheus comes; only
requests and callbacks are timed. Clients of one name are one, also those that are closed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from functools import cache
from threading import Lock
from typing import Any

from prometheus_client import REGISTRY, Histogram
from prometheus_client.core import Metric as Family

from jetspark.client.hooks import HookedClient, Hooks
from jetspark.client.messages import MessageView, PreparedMessage
from jetspark.connection.events import Closed, ConnectionEvent
from jetspark.connection.session import Statistics
from jetspark.metrics.endpoint import Collected, family
from jetspark.metrics.names import (
    BUCKETS,
    CONNECTED,
    OPERATION,
    PENDING,
    PROCESS,
    RECEIVED,
    RECEIVED_BYTES,
    RECONNECTS,
    SENT,
    SENT_BYTES,
    SLOW,
    SYSTEM,
    Metric,
)

_OF_STATISTICS = (RECEIVED, RECEIVED_BYTES, SENT, SENT_BYTES, RECONNECTS, SLOW, PENDING)
"""In the order of the fields of `Statistics`."""
_NOTHING = Statistics(0, 0, 0, 0, 0, 0, 0)


@cache
def every_client() -> Hooks:
    """The hooks of all clients of this process that are observed."""
    return _Clients()


class _Clients(Hooks):
    """The clients of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: set[_OneClient] = set()
        self._closed: dict[str, Statistics] = {}
        self._durations = {one: _histogram(one) for one in (OPERATION, PROCESS)}
        REGISTRY.register(Collected(self._collect))

    def bind(self, client: HookedClient) -> Hooks:
        one = _OneClient(client, self._durations, self._forget)
        with self._lock:
            self._open.add(one)
        return one

    def _forget(self, one: _OneClient) -> None:
        """Add up what a closed client has counted."""
        with self._lock:
            if one in self._open:
                self._open.remove(one)
                self._closed[one.name] = _sum(self._closed.get(one.name), one.client.stats)

    def _collect(self) -> Iterator[Family]:
        with self._lock:
            totals = dict(self._closed)
            linked = dict.fromkeys(totals, 0)
            for one in self._open:
                totals[one.name] = _sum(totals.get(one.name), one.client.stats)
                linked[one.name] = linked.get(one.name, 0) + one.client.is_connected
        for at, metric in enumerate(_OF_STATISTICS):
            yield _family(metric, ((name, astuple(total)[at]) for name, total in totals.items()))
        yield _family(CONNECTED, linked.items())


def _sum(before: Statistics | None, more: Statistics) -> Statistics:
    return Statistics(*map(sum, zip(astuple(before or _NOTHING), astuple(more), strict=True)))


def _family(metric: Metric, values: Iterable[tuple[str, int]]) -> Family:
    found: Family = family(metric)
    for name, value in values:
        found.add_metric((SYSTEM, name), value)  # type: ignore[attr-defined]
    return found


def _histogram(metric: Metric) -> Histogram:
    return Histogram(metric.prometheus, metric.said, metric.labels, buckets=BUCKETS)


class _OneClient(Hooks):
    """The hooks of one client."""

    def __init__(
        self, client: HookedClient, durations: dict[Metric, Histogram], forget: Any
    ) -> None:
        self.client = client
        self.name = client.options.name or ""
        self._durations = durations
        self._forget = forget
        self._done = {
            OPERATION: self._duration(OPERATION, "request", ""),
            PROCESS: self._duration(PROCESS, "process", ""),
        }

    def request(self, message: PreparedMessage) -> Any:
        return self._timed(OPERATION, "request")

    def given(self, messages: Sequence[MessageView]) -> Iterable[MessageView]:
        return ()

    def deliver(self, message: MessageView, *, handled: bool) -> Any:
        return self._timed(PROCESS, "process")

    def event(self, event: ConnectionEvent) -> None:
        if isinstance(event, Closed):
            self._forget(self)

    def _duration(self, metric: Metric, operation: str, error: str) -> Any:
        return self._durations[metric].labels(SYSTEM, self.name, operation, error)

    @contextmanager
    def _timed(self, metric: Metric, operation: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        except BaseException as error:
            taken = time.perf_counter() - begin
            self._duration(metric, operation, type(error).__name__).observe(taken)
            raise
        self._done[metric].observe(time.perf_counter() - begin)

"""Metrics of clients: `connect(hooks=jetspark.observe())`.

Counts are those that each client has anyway (`Client.stats`), read when Prometheus comes; only
requests and callbacks are timed. Clients of one name are one, also those that are closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import astuple
from functools import cache
from threading import Lock

from prometheus_client.core import Metric as Family

import jetspark.metrics.names as metrics
from jetspark.client.hooks import HookedClient, Hooks, Measured
from jetspark.connection.events import Closed, ConnectionEvent
from jetspark.connection.session import Statistics
from jetspark.metrics.endpoint import Durations, collected, family

_OF_STATISTICS = (
    metrics.RECEIVED,
    metrics.RECEIVED_BYTES,
    metrics.SENT,
    metrics.SENT_BYTES,
    metrics.RECONNECTS,
    metrics.SLOW,
    metrics.PENDING,
)
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
        self._durations: dict[tuple[Measured, str, str], Durations] = {}
        self._served = ExitStack()
        self._served.enter_context(collected(self._collect))

    def bind(self, client: HookedClient) -> Hooks:
        one = _OneClient(client, self)
        with self._lock:
            self._open.add(one)
        return one

    def duration(self, what: Measured, name: str, error: str) -> Durations:
        """How long these took."""
        with self._lock:
            return self._durations.setdefault((what, name, error), Durations())

    def forget(self, one: _OneClient) -> None:
        """Add up what a closed client has counted."""
        with self._lock:
            if one in self._open:
                self._open.remove(one)
                self._closed[one.name] = _sum(self._closed.get(one.name), one.client.stats)

    def _collect(self) -> Iterator[Family]:
        with self._lock:
            durations = dict(self._durations)
            totals = dict(self._closed)
            linked = dict.fromkeys(totals, 0)
            for one in self._open:
                totals[one.name] = _sum(totals.get(one.name), one.client.stats)
                linked[one.name] = linked.get(one.name, 0) + one.client.is_connected
        for at, metric in enumerate(_OF_STATISTICS):
            yield _family(metric, ((name, astuple(total)[at]) for name, total in totals.items()))
        yield _family(metrics.CONNECTED, linked.items())
        histograms = {"request": family(metrics.OPERATION), "process": family(metrics.PROCESS)}
        for (what, name, error), taken in durations.items():
            taken.give(histograms[what], (metrics.SYSTEM, name, what, error))
        yield from histograms.values()


def _sum(before: Statistics | None, more: Statistics) -> Statistics:
    return Statistics(*map(sum, zip(astuple(before or _NOTHING), astuple(more), strict=True)))


def _family(metric: metrics.Metric, values: Iterable[tuple[str, int]]) -> Family:
    found: Family = family(metric)
    for name, value in values:
        found.add_metric((metrics.SYSTEM, name), value)  # type: ignore[attr-defined]
    return found


class _OneClient(Hooks):
    """The hooks of one client."""

    def __init__(self, client: HookedClient, every: _Clients) -> None:
        self.client = client
        self.name = client.options.name or ""
        self._every = every
        self._done = {
            "request": every.duration("request", self.name, "").add,
            "process": every.duration("process", self.name, "").add,
        }

    def measured(self, what: Measured, seconds: float, error: BaseException | None) -> None:
        if error is None:
            self._done[what](seconds)
        else:
            self._every.duration(what, self.name, type(error).__name__).add(seconds)

    def event(self, event: ConnectionEvent) -> None:
        if isinstance(event, Closed):
            self._every.forget(self)

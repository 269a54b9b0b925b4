"""Metrics of clients: `connect(hooks=jetspark.observe())`.

Counts are those that each client has anyway (`Client.stats`), read when Prometheus comes; only
requests and callbacks are timed. Clients of one name are one, also those that are closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import astuple
from functools import cache

from prometheus_client.core import Metric as Family

import jetspark.metrics.names as metrics
from jetspark.client.hooks import HookedClient, Hooks, Measured
from jetspark.connection.events import Closed, ConnectionEvent
from jetspark.connection.locks import new_lock
from jetspark.connection.session import Statistics
from jetspark.metrics.endpoint import Durations, collected, family

_STATISTICS_METRICS = (
    metrics.RECEIVED,
    metrics.RECEIVED_BYTES,
    metrics.SENT,
    metrics.SENT_BYTES,
    metrics.RECONNECTS,
    metrics.SLOW,
    metrics.PENDING,
)
"""Metrics in the order of the fields of `Statistics`."""
_NO_STATISTICS = Statistics(0, 0, 0, 0, 0, 0, 0)


@cache
def every_client() -> Hooks:
    """The hooks of all clients of this process that are observed."""
    return _Clients()


class _Clients(Hooks):
    """The clients of this process."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._open: set[_ClientHooks] = set()
        self._closed: dict[str, Statistics] = {}
        self._durations: dict[tuple[Measured, str, str], Durations] = {}
        self._served = ExitStack()
        self._served.enter_context(collected(self._collect))

    def bind(self, client: HookedClient) -> Hooks:
        hooks = _ClientHooks(client, self)
        with self._lock:
            self._open.add(hooks)
        return hooks

    def durations(self, operation: Measured, name: str, error: str) -> Durations:
        """The durations of an operation of clients of one name, with one error or none ("")."""
        with self._lock:
            return self._durations.setdefault((operation, name, error), Durations())

    def forget(self, hooks: _ClientHooks) -> None:
        """Add up what a closed client has counted."""
        with self._lock:
            if hooks in self._open:
                self._open.remove(hooks)
                self._closed[hooks.name] = _sum(self._closed.get(hooks.name), hooks.client.stats)

    def _collect(self) -> Iterator[Family]:
        with self._lock:
            durations = dict(self._durations)
            totals = dict(self._closed)
            linked = dict.fromkeys(totals, 0)
            for hooks in self._open:
                totals[hooks.name] = _sum(totals.get(hooks.name), hooks.client.stats)
                linked[hooks.name] = linked.get(hooks.name, 0) + hooks.client.is_connected
        for at, metric in enumerate(_STATISTICS_METRICS):
            yield _family(metric, ((name, astuple(total)[at]) for name, total in totals.items()))
        yield _family(metrics.CONNECTED, linked.items())
        histograms = {"request": family(metrics.OPERATION), "process": family(metrics.PROCESS)}
        for (operation, name, error), duration in durations.items():
            duration.give(histograms[operation], (metrics.SYSTEM, name, operation, error))
        yield from histograms.values()


def _sum(before: Statistics | None, more: Statistics) -> Statistics:
    return Statistics(*map(sum, zip(astuple(before or _NO_STATISTICS), astuple(more), strict=True)))


def _family(metric: metrics.Metric, values: Iterable[tuple[str, int]]) -> Family:
    result: Family = family(metric)
    for name, value in values:
        result.add_metric((metrics.SYSTEM, name), value)  # type: ignore[attr-defined]
    return result


class _ClientHooks(Hooks):
    """The hooks of one client."""

    def __init__(self, client: HookedClient, clients: _Clients) -> None:
        self.client = client
        self.name = client.options.name or ""
        self._clients = clients
        self._successful = {
            "request": clients.durations("request", self.name, "").add,
            "process": clients.durations("process", self.name, "").add,
        }

    def measured(self, what: Measured, seconds: float, error: BaseException | None) -> None:
        if error is None:
            self._successful[what](seconds)
        else:
            self._clients.durations(what, self.name, type(error).__name__).add(seconds)

    def event(self, event: ConnectionEvent) -> None:
        if isinstance(event, Closed):
            self._clients.forget(self)

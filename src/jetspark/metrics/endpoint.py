"""One port for Prometheus (`/metrics`), for probes (`/healthz`, `/readyz`) and for people (`/`).

The metrics are those of prometheus-client's registry, so a program's own are among them. A probe's
answer is JSON with the reasons: code 200 if there are none, else 503. The page for people is that
of `live_page`.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from jetspark.connection.locks import new_lock
from jetspark.errors import ConfigError

try:
    from prometheus_client import REGISTRY, make_wsgi_app
except ModuleNotFoundError:
    raise ConfigError("Metrics need prometheus_client: pip install 'jetspark[metrics]'.") from None
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import ThreadingWSGIServer

from jetspark.metrics.live_page import LivePage, Queries, page_headers, page_html
from jetspark.metrics.names import BUCKETS, Metric, MetricType

logger = logging.getLogger("jetspark.metrics")

Reasons = Callable[[], list[str]]
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:/\[\]]*):(\d{1,5})")
_FAMILIES: dict[MetricType, Callable[..., Any]] = {
    MetricType.COUNTER: CounterMetricFamily,
    MetricType.GAUGE: GaugeMetricFamily,
    MetricType.HISTOGRAM: HistogramMetricFamily,
}


def family(metric: Metric) -> Any:
    """prometheus-client's object for the values of a metric at one time."""
    return _FAMILIES[metric.kind](metric.prometheus, metric.description, labels=metric.labels)


class Durations:
    """A histogram of durations, much cheaper than prometheus-client's."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._counts = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        at = bisect_left(BUCKETS, seconds)
        with self._lock:
            self._counts[at] += 1
            self._seconds += seconds

    def give(self, histogram: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add the buckets to what Prometheus gets."""
        with self._lock:
            counts, seconds = accumulate(self._counts[:]), self._seconds
        bounds = [*map(str, BUCKETS), "+Inf"]
        histogram.add_metric(labels, list(zip(bounds, counts, strict=True)), seconds)


@contextmanager
def collected(collect: Callable[[], Iterable[Family]]) -> Iterator[None]:
    """Register a collector for the block: Prometheus calls `collect` when it scrapes."""
    collector: Any = partial(collect)
    collector.collect = collect
    collector.describe = tuple  # nothing: the names are known, and others may have the same
    REGISTRY.register(collector)
    try:
        yield
    finally:
        REGISTRY.unregister(collector)


@dataclass(frozen=True)
class Health:
    """Reasons why a process is not ready or not alive; empty lists if it is."""

    ready: Reasons = list
    """Why it does not do its work now."""
    alive: Reasons = list
    """Why it should be killed and started again."""


MAX_CONNECTIONS: Final = 32
"""That are served at a time; each takes a thread and a descriptor of the process."""
REQUEST_TIMEOUT: Final = 5.0
"""Seconds in which a client has to send its request and take the answer."""


class _HTTPServer(ThreadingWSGIServer):
    """Serves few connections at a time, for a short time each. A further one ends the oldest, so
    that clients that say nothing keep neither Prometheus nor a probe out."""

    def __init__(self, *args: Any) -> None:
        self._lock = new_lock()
        self._accepted: dict[Any, float] = {}
        """When each connection was accepted, in this order."""
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        with self._lock:
            oldest = next(iter(self._accepted), None)
            count = len(self._accepted)
            if count < 2 * MAX_CONNECTIONS:
                self._accepted[request] = time.monotonic()
        if oldest is not None and count >= MAX_CONNECTIONS:
            _hang_up(oldest)
        if count >= 2 * MAX_CONNECTIONS:  # none of them ends
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._accepted.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Twice a second: end connections that take too long."""
        deadline = time.monotonic() - REQUEST_TIMEOUT
        with self._lock:
            late = [connection for connection, since in self._accepted.items() if since < deadline]
        for connection in late:
            _hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of this program."""
        logger.debug("A connection to the metrics port failed", exc_info=True)


class _IPv6HTTPServer(_HTTPServer):
    address_family = socket.AF_INET6


def _hang_up(request: socket.socket) -> None:
    """Let whatever reads or writes this connection find its end."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Quiet(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


@contextmanager
def serving(
    address: str, health: Health = Health(), *, command: str = "", queries: Queries = list
) -> Iterator[int]:
    """Serve metrics, probes and the page for people during the block; yields the port.

    `address`: HOST:PORT, or :PORT for all addresses of this machine; the system chooses port 0.
    `command`: the command line, without secrets, and `queries`: the queries' figures, for the page.

    Raises ConfigError for an invalid address, or one that cannot be used.
    """
    page = LivePage(command, queries)
    server = _make_server(address, _Site(health, page))
    thread = threading.Thread(target=server.serve_forever, name="jetspark-metrics", daemon=True)
    thread.start()
    try:
        with page.gathering_warnings():
            yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class _Site:
    """Answers requests by their path."""

    def __init__(self, health: Health, page: LivePage) -> None:
        self._health = health
        self._page = page
        self._metrics: Callable[..., Iterable[bytes]] = make_wsgi_app()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """A WSGI application."""
        health = self._health
        match environ["PATH_INFO"]:
            case "/metrics":
                return self._metrics(environ, start_response)
            case "/healthz":
                return _probe(health.alive(), start_response)
            case "/readyz":
                return _probe(health.ready(), start_response)
            case "/":
                start_response("200 OK", [*page_headers()])
                return [page_html()]
            case "/live.json":
                start_response("200 OK", [*_JSON])
                return [self._page.document(health.ready(), health.alive())]
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"There are /, /metrics, /healthz and /readyz.\n"]


_JSON: Final = (("Content-Type", "application/json"), ("X-Content-Type-Options", "nosniff"))
"""A server adds headers to the list that it gets, so each answer has a list of its own."""


def _probe(reasons: list[str], start_response: Any) -> Iterable[bytes]:
    """The answer to a probe: whether there is no reason against."""
    start_response("503 Service Unavailable" if reasons else "200 OK", [*_JSON])
    return [json.dumps({"ok": not reasons, "reasons": reasons}).encode() + b"\n"]


def _make_server(address: str, site: _Site) -> WSGIServer:
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[2]) > 65535:
        raise ConfigError(
            f"The address for metrics is HOST:PORT, such as 127.0.0.1:9464, or :9464 for all "
            f"addresses of this machine, not {address!r}."
        )
    host = match[1].strip("[]")
    kind = _IPv6HTTPServer if ":" in host else _HTTPServer
    try:
        return make_server(host, int(match[2]), site, kind, _Quiet)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"Metrics cannot be served on {address}: {reason}.") from None

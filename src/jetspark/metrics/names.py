"""The names of all metrics, in one table; docs/guide-operating.md shows it.

They are OpenTelemetry's where its conventions for messaging have one, and else of the same form.
Prometheus's names follow from them, as OpenTelemetry derives them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

SYSTEM: Final = "nats"
_UNITS: Final = {"s": "seconds", "By": "bytes"}
BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Upper bounds of the histograms, in seconds."""


class MetricType(StrEnum):
    """The kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric."""

    name: str
    kind: MetricType
    unit: str
    """The unit in UCUM, as OpenTelemetry has it."""
    description: str
    attributes: tuple[str, ...]

    @property
    def prometheus(self) -> str:
        """Prometheus's name, but for the `_total` of a counter."""
        unit = _UNITS.get(self.unit, "")
        name = self.name.replace(".", "_")
        return name if not unit or name.endswith(unit) else f"{name}_{unit}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Prometheus's names of the attributes."""
        return tuple(attribute.replace(".", "_") for attribute in self.attributes)


_CLIENT = ("messaging.system", "messaging.client.id")
_QUERY = ("query",)
_STREAM = ("query", "stream")
_OPERATION = (*_CLIENT, "messaging.operation.name", "error.type")
_COUNTER, _GAUGE, _HISTOGRAM = MetricType

# -- clients: `jetspark.observe` -----------------------------------------------------------------

SENT = Metric(
    "messaging.client.sent.messages", _COUNTER, "{message}", "Messages that were sent.", _CLIENT
)
RECEIVED = Metric(
    "messaging.client.consumed.messages", _COUNTER, "{message}", "Messages received.", _CLIENT
)
OPERATION = Metric(
    *("messaging.client.operation.duration", _HISTOGRAM, "s"),
    "Time from a request to its reply, or from a JetStream publish to its ack.",
    _OPERATION,
)
PROCESS = Metric(
    *("messaging.process.duration", _HISTOGRAM, "s"),
    "Time that a callback takes for one message, or a service's handler for one request.",
    _OPERATION,
)
SENT_BYTES = Metric(
    "jetspark.client.sent.bytes", _COUNTER, "By", "Bytes of protocol that were sent.", _CLIENT
)
RECEIVED_BYTES = Metric(
    "jetspark.client.consumed.bytes", _COUNTER, "By", "Bytes of payloads received.", _CLIENT
)
CONNECTED = Metric("jetspark.client.connections", _GAUGE, "", "Clients with a link.", _CLIENT)
RECONNECTS = Metric("jetspark.client.reconnects", _COUNTER, "", "Links made again.", _CLIENT)
SLOW = Metric(
    *("jetspark.client.slow.consumers", _COUNTER, ""),
    "Episodes in which a subscription dropped messages at a pending limit.",
    _CLIENT,
)
PENDING = Metric(
    *("jetspark.client.pending.messages", _GAUGE, "{message}"),
    "Messages received that the program has not taken yet.",
    _CLIENT,
)

# -- queries: `spark.queries.metrics` --------------------------------------------------------------

LAG = Metric(
    *("jetspark.stream.lag.messages", _GAUGE, "{message}"),
    "Sequences between what the query has finished and the stream's end now.",
    _STREAM,
)
LAG_TIME = Metric(
    *("jetspark.stream.lag", _GAUGE, "s"),
    "Age of the oldest message that the query has not finished; 0 without one.",
    _STREAM,
)
POSITION = Metric(
    *("jetspark.stream.position", _GAUGE, ""),
    "Last sequence that the query has finished, by its checkpoint.",
    _STREAM,
)
REACHABLE = Metric(
    "jetspark.query.server.reachable", _GAUGE, "", "1 if the query's servers answer.", _QUERY
)
ACTIVE = Metric("jetspark.query.active", _GAUGE, "", "1 while the query runs.", _QUERY)
ROWS = Metric(
    *("jetspark.query.rows", _COUNTER, "{row}"),
    "Rows of finished batches; into tables since the checkpoint's first batch.",
    _QUERY,
)
QUARANTINED = Metric(
    "jetspark.query.quarantined.rows", _COUNTER, "{row}", "Quarantined records, counted so.", _QUERY
)
FILES = Metric("jetspark.query.files", _COUNTER, "{file}", "Files written, counted so.", _QUERY)
FILE_BYTES = Metric("jetspark.query.file.bytes", _COUNTER, "By", "Bytes in these files.", _QUERY)
COMMITS = Metric(
    *("jetspark.query.commits", _COUNTER, "{commit}"),
    "Commits of batches to tables, counted so.",
    _QUERY,
)
RETRIES = Metric(
    *("jetspark.query.retries", _COUNTER, ""),
    "Attempts to read that tasks made again, counted so; not of rows through Spark.",
    _QUERY,
)
BATCH = Metric(
    *("jetspark.query.batch.duration", _HISTOGRAM, "s"),
    "A batch with rows, from its planning to its commit.",
    _QUERY,
)
RESTARTS = Metric(
    *("jetspark.query.restarts", _COUNTER, ""),
    "Times that the command has started the query again.",
    _QUERY,
)
LOST = Metric(
    *("jetspark.stream.lost.messages", _COUNTER, "{message}"),
    "Messages, at most, that were gone before they were read (failOnDataLoss=false).",
    ("stream",),
)
TASKS = Metric("jetspark.spark.tasks", _COUNTER, "{task}", "Tasks that have ended.", ())
FAILED_TASKS = Metric(
    *("jetspark.spark.failed.tasks", _COUNTER, "{task}"),
    "Tasks that failed; Spark tries each again.",
    (),
)

# -- `jetspark dead-letters run` -----------------------------------------------------------------

MOVED = Metric(
    *("jetspark.dead.letters.moved", _COUNTER, "{message}"),
    "Messages that this worker has moved to the dead letters.",
    ("name",),
)

ALL: Final = tuple(metric for metric in list(globals().values()) if isinstance(metric, Metric))

"""Message path tracing (ADR-41): the servers that a message passes, and what each did with it."""

from jetspark.tracing.calls import TraceCalls
from jetspark.tracing.tree import (
    MessageTrace,
    MissingServer,
    TracedServer,
    TraceEgress,
    TraceEvent,
    TraceExport,
    TraceImport,
    TraceIngress,
    TraceMapping,
    TraceStream,
)

__all__ = [
    "MessageTrace",
    "MissingServer",
    "TraceCalls",
    "TraceEgress",
    "TraceEvent",
    "TraceExport",
    "TraceImport",
    "TraceIngress",
    "TraceMapping",
    "TraceStream",
    "TracedServer",
]

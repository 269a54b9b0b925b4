"""Message path tracing (ADR-41): the servers that a message passes, and what each did with it."""

from jetspark.tracing.calls import TraceCalls as TraceCalls
from jetspark.tracing.tree import MessageTrace as MessageTrace
from jetspark.tracing.tree import MissingServer as MissingServer
from jetspark.tracing.tree import TracedServer as TracedServer
from jetspark.tracing.tree import TraceEgress as TraceEgress
from jetspark.tracing.tree import TraceEvent as TraceEvent
from jetspark.tracing.tree import TraceExport as TraceExport
from jetspark.tracing.tree import TraceImport as TraceImport
from jetspark.tracing.tree import TraceIngress as TraceIngress
from jetspark.tracing.tree import TraceMapping as TraceMapping
from jetspark.tracing.tree import TraceStream as TraceStream

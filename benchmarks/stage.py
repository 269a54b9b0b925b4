"""The stage: a real nats-server in a temporary folder, with filled streams."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import raw
from benchmarks.measure import STREAM, WARM_STREAM
from benchmarks.turns import say


@contextmanager
def stage(messages: int, warm_messages: int, size: int) -> Iterator[str]:
    """The URL of a server with both streams of a `Job`; gone with all its data afterwards."""
    # Imported late: suites import this module also under a Python that has no jetspark.
    from jetspark.server import NatsServer

    with NatsServer(name="benchmarks") as server:
        raw.fill(server.url, WARM_STREAM, warm_messages, size)
        before = time.perf_counter()
        raw.fill(server.url, STREAM, messages, size)
        seconds = time.perf_counter() - before
        say(f"  filled {messages:,} messages of {size:,} bytes in {seconds:.1f} s")
        yield server.url

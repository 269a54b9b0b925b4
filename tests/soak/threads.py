"""Threads that share a publisher: `python -m tests.soak.threads publisher --seconds 60`.

The blocking client, a window that is never full, and threads that are switched every microsecond:
whatever two threads do to the same thing meets in the middle. `publisher` or `ingest` (nats-server
2.14). Every message is acknowledged, and nothing is logged, reported or raised.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jetspark.blocking import connect
from jetspark.server import NatsServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jetspark.blocking.jetstream import JetStream

HOW = ("publisher", "ingest")
WINDOW = 200_000


@dataclass(frozen=True)
class Figures:
    """What happened."""

    sent: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.sent:,} messages sent and acknowledged in {self.seconds:.0f} s"


@contextmanager
def switching(interval: float = 1e-6) -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _in_threads(threads: int, seconds: float, send: Callable[[], object]) -> None:
    end = time.monotonic() + seconds

    def work(_: int) -> None:
        while time.monotonic() < end:
            for _ in range(100):
                send()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def run(
    js: JetStream, stream: str, subject: str, how: str, *, seconds: float, threads: int = 4
) -> Figures:
    """Raises AssertionError when a message has no ack."""
    begin = time.monotonic()
    with switching():
        if how == "publisher":
            # A short timeout: the clock is looked at all the time.
            with js.publisher(WINDOW, timeout=20) as publisher:
                _in_threads(threads, seconds, lambda: publisher.send(subject, b"x"))
                publisher.flush()
                fates = publisher.sent, publisher.acked, publisher.failed
        else:
            with js.fast_ingest() as ingest:
                _in_threads(threads, seconds, lambda: ingest.add(subject, b"x"))
                ingest.commit()
                fates = ingest.sent, ingest.acked, ingest.failed
    sent, acked, failed = fates
    assert failed == []
    assert sent == acked > 0
    assert js.stream_info(stream).state.messages == sent
    return Figures(sent, time.monotonic() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=HOW)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=4)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    with NatsServer(name="threads") as server, connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(
            name="S", subjects=["s"], storage="memory", allow_batched=options.how == "ingest"
        )
        print(run(js, "S", "s", options.how, seconds=options.seconds, threads=options.threads))


if __name__ == "__main__":
    main()

"""Servers killed under a publisher: `python -m tests.soak.publishing identified --kills 100`.

One server with a stream on disk is killed (kill -9) or stopped, and started again on its port and
store, while a client publishes as fast as its window lets it: `identified`, with a message id each;
`plain`, without; `ingest-fail` and `ingest-ok`, in fast-ingest batches, a new one when one is over.
After each restart messages have to be acknowledged again within `RECOVERED_WITHIN`. At the end:
every message is either acknowledged or reported; what was acknowledged is stored, and once; what
was reported as certainly not stored is not there. With message ids nothing is reported.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import jetspark
from jetspark import JetsparkError
from jetspark.errors import BatchError, NotStoredError
from jetspark.server import NatsServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.full_client import JetStream
    from jetspark.jetstream import FastIngest, Publisher, PublishFailure

RECOVERED_WITHIN = 30.0  # seconds
HOW = ("identified", "plain", "ingest-fail", "ingest-ok")
_PAUSE_EVERY, _PAUSE = 100, 0.002  # bounds the stream, and with it the time of a restart


@dataclass
class Figures:
    """What happened."""

    kills: int = 0
    stops: int = 0
    seconds: float = 0.0
    sent: int = 0
    acked: int = 0
    reported: int = 0
    reported_and_stored: int = 0
    batches: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    longest_recovery: float = 0.0
    """Seconds from the server's end until messages were acknowledged again."""

    def __str__(self) -> str:
        told = ", ".join(f"{name} {count:,}" for name, count in self.errors.items())
        return (
            f"{self.kills} kills and {self.stops} stops in {self.seconds:.0f} s, "
            f"{self.batches} batches: {self.sent:,} messages sent, {self.acked:,} acknowledged and "
            f"stored once, {self.reported:,} reported ({told or 'none'}), of which "
            f"{self.reported_and_stored:,} are stored; "
            f"longest recovery {self.longest_recovery:.2f} s"
        )


class Run:
    """Publishes the numbers 0, 1, 2 … until `stopping`."""

    def __init__(self, js: JetStream) -> None:
        self.figures = Figures()
        self.reported: dict[int, JetsparkError] = {}
        self.stopping = False
        self._js = js
        self._acked: Callable[[], int] = lambda: 0

    async def publish(self, *, identified: bool) -> None:
        async with self._js.publisher(500, raise_failures=False) as publisher:
            await self._fill(publisher, identified=identified)
        self._account(publisher, 0)

    async def ingest(self, gaps: Literal["fail", "ok"]) -> None:
        while not self.stopping:
            self.figures.batches += 1
            first = self.figures.sent
            try:
                async with self._js.fast_ingest(gaps=gaps, ack_every=100) as batch:
                    try:
                        await self._fill(batch)
                    except JetsparkError:
                        pass  # it is over: `failed` says what became of the messages
                    await batch.commit()
                    _ = batch.failed  # looked at below
            finally:
                self._account(batch, first)

    async def _fill(self, sink: Publisher | FastIngest, *, identified: bool = False) -> None:
        before = self.figures.acked
        self._acked = lambda: before + sink.acked
        first = self.figures.sent
        while not self.stopping:
            number = first + sink.sent
            if isinstance(sink, jetspark.jetstream.FastIngest):
                await sink.add("s", b"%d" % number)
            else:
                await sink.send("s", b"%d" % number, msg_id=str(number) if identified else None)
            if number % _PAUSE_EVERY == 0:
                await asyncio.sleep(_PAUSE)

    def _account(self, sink: Publisher | FastIngest, first: int) -> None:
        failed: list[PublishFailure] = sink.failed
        assert sink.pending == 0
        assert sink.sent == sink.acked + len(failed), "a message has no fate"
        self.figures.sent += sink.sent
        self.figures.acked += sink.acked
        self._acked = lambda: self.figures.acked
        for failure in failed:
            assert first + failure.index not in self.reported, "a message has two fates"
            self.reported[first + failure.index] = failure.error
            self.figures.errors[type(failure.error).__name__] += 1

    async def acknowledged_more(self) -> None:
        """Return when messages are acknowledged at this time."""
        wanted = self._acked() + 200
        while self._acked() < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # nobody tells of an ack

    async def check(self) -> None:
        """Compare with what the stream holds."""
        consumer = await self._js.create_consumer("S", ack_policy="none", mem_storage=True)
        stored: Counter[int] = Counter()
        left = (await self._js.stream_info("S")).state.messages
        while left:
            batch = await consumer.fetch(min(left, 10_000), timeout=RECOVERED_WITHIN)
            assert batch, f"{left} messages are not delivered"
            left -= len(batch)
            stored.update(int(message.data) for message in batch)
        figures = self.figures
        sent = set(range(figures.sent))
        lost = sent - self.reported.keys() - stored.keys()
        assert not lost, f"acknowledged and not stored: {sorted(lost)[:10]}"
        twice = [number for number, times in stored.items() if times > 1]
        assert not twice, f"stored twice: {twice[:10]}"
        assert stored.keys() <= sent
        for number, error in self.reported.items():
            if isinstance(error, NotStoredError | BatchError):
                assert number not in stored, f"{number} is stored: {error}"
        figures.reported = len(self.reported)
        figures.reported_and_stored = len(self.reported.keys() & stored.keys())


async def kills(server: NatsServer, how: str, count: int, seed: int) -> Figures:
    """So many kills and stops. Raises AssertionError, or TimeoutError when something hangs."""
    rng = random.Random(seed)
    start = time.perf_counter()
    async with jetspark.connect(
        server.url, reconnect_wait=0.05, reconnect_jitter=0.02, max_reconnect_attempts=-1
    ) as nc:
        js = nc.jetstream(timeout=10)
        batched = True if how.startswith("ingest") else None
        await js.create_stream(name="S", subjects=["s"], allow_batched=batched)
        run = Run(js)
        figures = run.figures
        if how.startswith("ingest"):
            work = run.ingest("fail" if how == "ingest-fail" else "ok")
        else:
            work = run.publish(identified=how == "identified")
        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(work)
            await asyncio.wait_for(run.acknowledged_more(), RECOVERED_WITHIN)
            for _ in range(count):
                await asyncio.sleep(rng.random() * 0.1)
                kill = rng.random() < 0.5
                ended = time.perf_counter()
                await asyncio.to_thread(server.kill if kill else server.stop)
                await asyncio.sleep(rng.random() * 0.1)
                await asyncio.to_thread(server.start)
                await asyncio.wait_for(run.acknowledged_more(), RECOVERED_WITHIN)
                figures.longest_recovery = max(
                    figures.longest_recovery, time.perf_counter() - ended
                )
                figures.kills += kill
                figures.stops += not kill
            run.stopping = True
            await asyncio.wait_for(publishing, RECOVERED_WITHIN)
        await run.check()
    if how == "identified":
        assert not run.reported, f"reported in spite of ids: {list(run.reported.items())[:3]}"
    figures.seconds = time.perf_counter() - start
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=HOW)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    with NatsServer(name="publishing") as server:
        print(asyncio.run(kills(server, options.how, options.kills, options.seed)))


if __name__ == "__main__":
    main()

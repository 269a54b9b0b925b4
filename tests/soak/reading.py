"""Servers killed while somebody reads: `python -m tests.soak.reading consume --kills 100`.

One server with a stream on disk is killed (kill -9) or stopped, and started again on its port and
store, while a client publishes (each message again until it is acknowledged, with a message id) and
another one reads by `fetch` or `consume` and acknowledges. After each restart the reader has to see
new messages within `RECOVERED_WITHIN`. At the end every message that the stream holds has been
seen, the stream holds every message that was acknowledged to the publisher, and the consumer has
nothing left to deliver and nothing unacknowledged. The count of tasks does not grow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta

import jetspark
from jetspark import Client, JetsparkError
from jetspark.full_client import JetStream
from jetspark.jetstream import JsMsg, PullConsumer
from jetspark.server import NatsServer

RECOVERED_WITHIN = 30.0  # seconds
_ACK_WAIT = 1.0  # seconds: what a kill has swallowed comes again soon
_AT_ONCE = 20  # messages published at once


@dataclass
class Figures:
    """What happened."""

    kills: int = 0
    stops: int = 0
    seconds: float = 0.0
    stored: int = 0
    deliveries: int = 0
    redelivered: int = 0
    empty_handed: int = 0
    """Reads that raised, with the kinds in `errors`."""
    errors: dict[str, int] = field(default_factory=dict)
    longest_recovery: float = 0.0
    """Seconds from the server's end until new messages were read again."""

    def note(self, error: JetsparkError) -> None:
        self.empty_handed += 1
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1

    def __str__(self) -> str:
        return (
            f"{self.kills} kills and {self.stops} stops in {self.seconds:.0f} s: "
            f"{self.stored:,} messages stored, all read and acknowledged, in {self.deliveries:,} "
            f"deliveries ({self.redelivered:,} redeliveries); errors told to the reader: "
            f"{self.errors or 'none'}; longest recovery {self.longest_recovery:.2f} s"
        )


class Run:
    """Publisher and reader, until `stop`."""

    def __init__(self, publisher: JetStream, consumer: PullConsumer) -> None:
        self.figures = Figures()
        self.consumer = consumer
        self.acknowledged: set[int] = set()
        self.seen: set[int] = set()
        self.more = asyncio.Event()
        self.stopping = False
        self._publisher = publisher

    async def publish(self) -> None:
        numbers = iter(range(sys.maxsize))
        while not self.stopping:
            await asyncio.gather(*(self._store(next(numbers)) for _ in range(_AT_ONCE)))
            await asyncio.sleep(0.002)

    async def _store(self, number: int) -> None:
        while True:
            try:
                ack = await self._publisher.publish("s", b"%d" % number, msg_id=str(number))
            except JetsparkError:
                await asyncio.sleep(0.05)
            else:
                self.acknowledged.add(ack.seq)
                return

    async def take(self, message: JsMsg) -> None:
        self.figures.deliveries += 1
        self.figures.redelivered += message.metadata.deliveries > 1
        self.seen.add(message.seq)
        self.more.set()
        await message.ack()

    async def fetch(self) -> None:
        while True:
            try:
                batch = await self.consumer.fetch(50, timeout=2, heartbeat=0.5)
            except JetsparkError as error:
                self.figures.note(error)
                continue
            if batch.error is not None:
                self.figures.note(batch.error)
            for message in batch:
                await self.take(message)

    async def consume(self) -> None:
        async with self.consumer.consume(max_messages=100, heartbeat=0.5, expires=2) as messages:
            async for message in messages:
                await self.take(message)
        raise AssertionError("it was not to end")

    async def sees_more(self) -> None:
        """Return when the reader has seen new messages of this moment."""
        wanted = len(self.seen) + _AT_ONCE
        while len(self.seen) < wanted:
            self.more.clear()
            await self.more.wait()

    async def all_read(self, stream: JetStream) -> None:
        """Return when the consumer says so too."""
        while True:
            with contextlib.suppress(JetsparkError):
                info = await self.consumer.info()
                if not info.num_pending and not info.num_ack_pending:
                    break
            await asyncio.sleep(0.1)
        state = (await stream.stream_info("S")).state
        held = set(range(state.first_seq, state.last_seq + 1))
        assert len(held) == state.messages
        assert self.acknowledged <= held, "the stream lost what it had acknowledged"
        assert self.seen == held, f"never read: {sorted(held - self.seen)[:10]}"
        self.figures.stored = len(held)


def connected(server: NatsServer) -> AbstractAsyncContextManager[Client]:
    return jetspark.connect(
        server.url, reconnect_wait=0.05, reconnect_jitter=0.02, max_reconnect_attempts=-1
    )


@contextlib.asynccontextmanager
async def reading(server: NatsServer, how: str) -> AsyncIterator[tuple[Run, JetStream]]:
    """The clients; what one of their tasks raises is raised here."""
    async with connected(server) as one, connected(server) as other:
        js = JetStream(one, timeout=0.5)
        await js.create_stream(name="S", subjects=["s"], storage="file")
        consumer = await JetStream(other, timeout=2).create_consumer(
            "S",
            durable_name="c",
            ack_wait=timedelta(seconds=_ACK_WAIT),
            max_ack_pending=2000,
        )
        run = Run(js, consumer)
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(run.publish())
            reads = tasks.create_task(run.fetch() if how == "fetch" else run.consume())
            yield run, js
            run.stopping = True
            await asyncio.wait_for(publishing, RECOVERED_WITHIN)
            await asyncio.wait_for(run.all_read(js), RECOVERED_WITHIN)
            reads.cancel()


async def kills(server: NatsServer, how: str, count: int, seed: int = 0) -> Figures:
    """So many ends of the server. Raises AssertionError, or TimeoutError when something hangs."""
    rng = random.Random(seed)
    before = asyncio.all_tasks()
    start = time.perf_counter()
    async with reading(server, how) as (run, _):
        figures = run.figures
        await asyncio.wait_for(run.sees_more(), RECOVERED_WITHIN)
        tasks = len(asyncio.all_tasks()) + 3 * _AT_ONCE  # those that publish come and go
        for number in range(1, count + 1):
            await asyncio.sleep(rng.random() * 0.1)
            graceful = rng.random() < 0.3
            ended = time.perf_counter()
            await asyncio.to_thread(server.stop if graceful else server.kill)
            figures.stops += graceful
            figures.kills += not graceful
            await asyncio.sleep(rng.random() * 0.2)
            await asyncio.to_thread(server.start)
            await asyncio.wait_for(run.sees_more(), RECOVERED_WITHIN)
            figures.longest_recovery = max(figures.longest_recovery, time.perf_counter() - ended)
            assert len(asyncio.all_tasks()) <= tasks, asyncio.all_tasks()
            if number % 20 == 0:
                print(f"{number} ends", file=sys.stderr)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    figures.seconds = time.perf_counter() - start
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=["fetch", "consume"])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    print(f"seed {options.seed}", file=sys.stderr)
    with NatsServer() as server:
        print(asyncio.run(kills(server, options.how, options.kills, options.seed)))


if __name__ == "__main__":
    main()

"""Ordered reading under faults: `python -m tests.soak.ordered --kills 100 [--servers 3]`.

While one client publishes and another one reads the stream through an ordered consumer, servers
are killed (kill -9) and started again; in between the consumer is deleted by somebody, its server
is frozen, the reader's link is cut. The oracle: the sequences read are 1, 2, 3 … without a gap or
a repetition, they are all that the stream holds at the end, and each payload is the one that the
stream holds. After each fault the reader has to come up to what was acknowledged, within
`RECOVERED_WITHIN`. With three servers the stream has three replicas.

A server that is killed may forget what it has acknowledged, unless it syncs every write.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.support.ports import free_port

import jetspark
from jetspark.full_client import JetStream
from jetspark.jetstream import OrderedMessages
from jetspark.server import NatsServer

RECOVERED_WITHIN = 60.0  # seconds
_STREAM = "SOAK"
_FROZEN = 1.3  # seconds; twice the heartbeat, and a bit
_HEARTBEAT = 0.5


@dataclass
class Figures:
    """What happened."""

    kills: int = 0
    others: int = 0
    seconds: float = 0.0
    published: int = 0
    read: int = 0
    consumers: set[str] = field(default_factory=set)
    longest_recovery: float = 0.0
    """Seconds from a fault until the reader had everything that was acknowledged."""

    def __str__(self) -> str:
        return (
            f"{self.kills} kills and {self.others} other faults in {self.seconds:.0f} s: "
            f"{self.published:,} messages published, {self.read:,} read, each once and in order, "
            f"over at least {len(self.consumers)} consumers; "
            f"longest recovery {self.longest_recovery:.2f} s"
        )


@contextlib.contextmanager
def servers(count: int) -> Iterator[list[NatsServer]]:
    """One server, or a cluster; what is acknowledged is on the disk."""
    routes = [f"nats://127.0.0.1:{free_port()}" for _ in range(count)]
    with contextlib.ExitStack() as stack:
        config = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "soak.conf"
        config.write_text("jetstream { sync_interval: always }\n", "utf-8")
        started = []
        for number, route in enumerate(routes):
            cluster = [
                *("--cluster_name", "soak", "--cluster", route),
                *("--routes", ",".join(routes)),
            ]
            server = NatsServer(
                name=f"ordered-{number}",
                config=config,
                jetstream=True,
                port=0,
                host="127.0.0.1",
                extra=cluster if count > 1 else [],
            )
            started.append(stack.enter_context(server))
        yield started


class Load:
    """Who publishes and who reads, until the block is left."""

    def __init__(self, publisher: JetStream, reader: JetStream) -> None:
        self.figures = Figures()
        self.publisher, self.reader = publisher, reader
        self.seen: list[bytes] = []
        self.messages: OrderedMessages = reader.ordered(
            _STREAM, max_messages=200, heartbeat=_HEARTBEAT
        )
        self._stopping = False

    async def _publish(self) -> None:
        while not self._stopping:
            await self._publish_one(self.figures.published + 1)
            self.figures.published += 1

    async def _publish_one(self, number: int) -> None:
        while True:
            try:
                # Sent again under the same id it is stored once.
                await self.publisher.publish(
                    f"{_STREAM}.{number % 5}", b"%d" % number, msg_id=f"{number}"
                )
                return
            except jetspark.JetsparkError:
                await asyncio.sleep(0.02)

    async def _read(self) -> None:
        async for message in self.messages:
            expected = len(self.seen) + 1
            assert message.seq == expected, f"{message.seq} came, and not {expected}"
            self.seen.append(message.data)
            self.figures.consumers.add(message.metadata.consumer)

    async def caught_up(self) -> None:
        """Returns when everything acknowledged before was read, and something new as well."""
        wanted = self.figures.published + 1
        while len(self.seen) < wanted:
            for task in (self._publishing, self._reading):
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)

    async def check(self) -> None:
        """The oracle, when nobody publishes any more."""
        self._stopping = True
        await asyncio.wait_for(self._publishing, RECOVERED_WITHIN)
        held = [message.data async for message in self.publisher.get_msgs(_STREAM, up_to_seq=2**62)]
        async with asyncio.timeout(RECOVERED_WITHIN):
            while len(self.seen) < len(held):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert self.seen == held
        assert set(self.seen) == {b"%d" % n for n in range(1, self.figures.published + 1)}
        self.figures.read = len(self.seen)

    async def __aenter__(self) -> Self:
        self._publishing = asyncio.create_task(self._publish())
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (self._publishing, self._reading):
            task.cancel()
        await asyncio.wait({self._publishing, self._reading})
        self.messages.stop()


async def campaign(nodes: list[NatsServer], kills: int, seed: int = 0) -> Figures:
    """So many kills. Raises AssertionError, or TimeoutError when something hangs."""
    rng = random.Random(seed)
    start = time.perf_counter()
    async with contextlib.AsyncExitStack() as stack:
        contexts = []
        for _ in range(2):
            client = await stack.enter_async_context(
                jetspark.connect(
                    [node.url for node in nodes],
                    reconnect_wait=0.05,
                    reconnect_jitter=0.02,
                    max_reconnect_attempts=-1,
                )
            )
            contexts.append(client.jetstream(timeout=1))
        publisher, reader = contexts
        await _make_stream(publisher, len(nodes))
        load = await stack.enter_async_context(Load(publisher, reader))
        figures = load.figures
        await asyncio.wait_for(load.caught_up(), RECOVERED_WITHIN)
        while figures.kills < kills:
            await asyncio.sleep(rng.random() * 0.2)
            begun = time.perf_counter()
            if rng.random() < 0.6:
                await _kill(await _victim(load, nodes, rng), rng)
                figures.kills += 1
            else:
                await _spoil(rng.choice(["delete", "freeze", "cut"]), load, nodes, rng)
                figures.others += 1
            await asyncio.wait_for(load.caught_up(), RECOVERED_WITHIN)
            figures.longest_recovery = max(figures.longest_recovery, time.perf_counter() - begun)
            if figures.kills and (figures.kills + figures.others) % 20 == 0:
                print(f"{figures.kills} kills, {figures.published:,} messages", file=sys.stderr)
        await load.check()
    figures.seconds = time.perf_counter() - start
    return figures


async def _make_stream(publisher: JetStream, replicas: int) -> None:
    async with asyncio.timeout(RECOVERED_WITHIN):
        while True:  # a cluster that has just started has no leader yet
            try:
                await publisher.create_stream(
                    name=_STREAM,
                    subjects=[f"{_STREAM}.>"],
                    num_replicas=replicas,
                    allow_direct=True,
                )
                return
            except jetspark.JetsparkError:
                await asyncio.sleep(0.1)


async def _victim(load: Load, nodes: list[NatsServer], rng: random.Random) -> NatsServer:
    """Mostly the server of the consumer, which is what an ordered reader depends on."""
    leader = None
    with contextlib.suppress(jetspark.JetsparkError):
        cluster = (await load.messages.info()).cluster
        leader = None if cluster is None else cluster.leader
    if leader is None or rng.random() < 0.3:
        return rng.choice(nodes)
    return nodes[int(leader.rpartition("-")[2])]


async def _kill(node: NatsServer, rng: random.Random) -> None:
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(rng.random() * 0.2)
    await asyncio.to_thread(node.start)


async def _spoil(how: str, load: Load, nodes: list[NatsServer], rng: random.Random) -> None:
    if how == "delete":
        with contextlib.suppress(jetspark.JetsparkError):
            await load.publisher.delete_consumer(_STREAM, load.messages.name or "none")
    elif how == "cut":
        await load.reader.client.force_reconnect()
    else:
        node = rng.choice(nodes)
        node.pause()
        try:
            await asyncio.sleep(_FROZEN)
        finally:
            node.resume()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    with servers(options.servers) as nodes:
        print(asyncio.run(campaign(nodes, options.kills, options.seed)))


if __name__ == "__main__":
    main()

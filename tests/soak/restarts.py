"""Restarts under load: `python -m tests.soak.restarts 200`.

Three servers in a cluster; one after the other is killed (kill -9) or stopped and started again,
mostly one that a client is connected to, while clients publish, subscribe (plain, in a queue group,
with a callback) and ask. After each restart every subscription has to get a message, and a request
its answer, within `RECOVERED_WITHIN`. Checked all the way: no message arrives twice; messages
that were published on one link arrive in order; the count of tasks does not grow. At the end the
tables of requests and subscriptions are empty and no task is left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import resource
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from tests.support.ports import free_port

import jetspark
from jetspark import Client, Message, Subscription
from jetspark.server import NatsServer

RECOVERED_WITHIN = 30.0  # seconds
_ANSWER_WITHIN = 1.0  # seconds
_ASKING = 4  # tasks


@dataclass
class Figures:
    """What happened."""

    restarts: int = 0
    seconds: float = 0.0
    published: int = 0
    received: int = 0
    answered: int = 0
    unanswered: int = 0
    no_responders: int = 0
    reconnects: int = 0
    longest_recovery: float = 0.0
    """Seconds from the server's end until everything worked again."""
    peak_megabytes: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.restarts} restarts in {self.seconds:.0f} s, {self.reconnects} reconnects; "
            f"{self.published:,} published, {self.received:,} received by the plain subscription; "
            f"requests: {self.answered:,} answered, {self.unanswered} timed out, "
            f"{self.no_responders} without responders; "
            f"longest recovery {self.longest_recovery:.2f} s; peak {self.peak_megabytes:.0f} MB"
        )


@contextlib.contextmanager
def cluster(size: int = 3) -> Iterator[list[NatsServer]]:
    """Servers without JetStream, which core NATS does not need and which start slower with it."""
    routes = [f"nats://127.0.0.1:{free_port()}" for _ in range(size)]
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                NatsServer(
                    name=f"soak-{number}",
                    jetstream=False,
                    extra=[
                        *("--cluster_name", "soak", "--cluster", route),
                        *("--routes", ",".join(routes)),
                    ],
                )
            )
            for number, route in enumerate(routes)
        ]


class Load:
    """The clients and what they do, until `stop`."""

    def __init__(self, publisher: Client, receiver: Client, asker: Client) -> None:
        self.figures = Figures()
        self.clients = (publisher, receiver, asker)
        self.publisher, self.receiver, self.asker = self.clients
        self.plain = receiver.subscribe("load")
        self.group = receiver.subscribe("load", queue="group")
        self.seen_by_callback: set[int] = set()
        self.seen: set[int] = set()
        self.probe = 0
        self._last_of_link: dict[int, int] = {}
        self._stopping = False

        async def answer(message: Message) -> None:
            await message.respond(message.data)

        receiver.subscribe("svc", callback=answer)
        receiver.subscribe("probe", callback=self._on_probe)
        self._reading = [
            asyncio.create_task(self._read_plain()),
            asyncio.create_task(self._read_group(self.group)),
        ]
        self._tasks = [
            asyncio.create_task(self._publish()),
            *(asyncio.create_task(self._ask()) for _ in range(_ASKING)),
        ]

    def _on_probe(self, message: Message) -> None:
        self.probe = max(self.probe, int(message.data))

    async def _publish(self) -> None:
        client, figures = self.publisher, self.figures
        while not self._stopping:
            for _ in range(10):
                # What is published without a link belongs to the next one.
                link = client.stats.reconnects + (not client.is_connected)
                client.publish_nowait("load", b"%d %d" % (link, figures.published))
                figures.published += 1
            await asyncio.sleep(0.001)

    async def _read_plain(self) -> None:
        async for message in self.plain:
            link, number = map(int, message.data.split())
            assert number not in self.seen, f"{number} came twice"
            self.seen.add(number)
            last = self._last_of_link.get(link, -1)
            assert number > last, f"{number} came after {last} on link {link}"
            self._last_of_link[link] = number
            self.figures.received += 1

    async def _read_group(self, sub: Subscription) -> None:
        async for message in sub:
            self.seen_by_callback.add(int(message.data.split()[1]))

    async def _ask(self) -> None:
        figures = self.figures
        while not self._stopping:
            try:
                reply = await self.asker.request("svc", b"?", timeout=_ANSWER_WITHIN)
                assert reply.data == b"?"
                figures.answered += 1
            except jetspark.RequestTimeoutError:
                figures.unanswered += 1
            except jetspark.NoRespondersError:
                figures.no_responders += 1
            await asyncio.sleep(0.002)

    def check(self) -> None:
        """Raises what one of the tasks has raised."""
        for task in (*self._tasks, *self._reading):
            if task.done():
                task.result()

    async def recovered(self) -> None:
        """Returns when every subscription gets messages, and a request its answer, again."""
        wanted = self.probe + 1
        plain, group, answered = len(self.seen), len(self.seen_by_callback), self.figures.answered
        while (
            self.probe < wanted
            or len(self.seen) == plain
            or len(self.seen_by_callback) == group
            or self.figures.answered == answered
            or not all(client.is_connected for client in self.clients)
        ):
            self.check()
            self.publisher.publish_nowait("probe", b"%d" % wanted)
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End the load, and hold what has to be empty against it."""
        self._stopping = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), RECOVERED_WITHIN)
        assert [len(client.requests) for client in self.clients] == [0, 0, 0]
        for client in self.clients:
            await client.drain(RECOVERED_WITHIN)
        await asyncio.gather(*self._reading)
        assert [len(client._link.routes) for client in self.clients] == [0, 0, 0]
        assert not any(client._subscriptions for client in self.clients)
        self.figures.reconnects = sum(client.stats.reconnects for client in self.clients)
        self.figures.peak_megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.asynccontextmanager
async def load(servers: list[NatsServer]) -> AsyncIterator[Load]:
    """The clients, connected to servers of their own where there are enough."""
    urls = [server.url for server in servers]
    clients = [
        await jetspark.connect(
            urls[number:] + urls[:number],
            randomize=False,
            reconnect_wait=0.05,
            reconnect_jitter=0.02,
            max_reconnect_attempts=-1,
        )
        for number in range(len(urls))
    ]
    try:
        yield Load(*clients)
    finally:
        for client in clients:
            await client.close()


async def restarts(servers: list[NatsServer], count: int, seed: int = 0) -> Figures:
    """So many restarts. Raises AssertionError, or TimeoutError when something hangs."""
    rng = random.Random(seed)
    before = asyncio.all_tasks()
    start = time.perf_counter()
    async with load(servers) as running:
        figures = running.figures
        await asyncio.wait_for(running.recovered(), RECOVERED_WITHIN)
        tasks = len(asyncio.all_tasks())
        while figures.restarts < count:
            await asyncio.sleep(rng.random() * 0.1)
            used = {client.current_server for client in running.clients}
            candidates = [server for server in servers if server.url in used]
            server = rng.choice(candidates if candidates and rng.random() < 0.8 else servers)
            ended = time.perf_counter()
            await asyncio.to_thread(rng.choice([server.kill, server.stop]))
            await asyncio.sleep(rng.random() * 0.1)
            await asyncio.to_thread(server.start)
            await asyncio.wait_for(running.recovered(), RECOVERED_WITHIN)
            figures.longest_recovery = max(figures.longest_recovery, time.perf_counter() - ended)
            figures.restarts += 1
            assert len(asyncio.all_tasks()) <= tasks, asyncio.all_tasks()
            if figures.restarts % 20 == 0:
                print(f"{figures.restarts} restarts", file=sys.stderr)
        await running.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    figures.seconds = time.perf_counter() - start
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("restarts", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    with cluster() as servers:
        print(asyncio.run(restarts(servers, options.restarts, options.seed)))


if __name__ == "__main__":
    main()

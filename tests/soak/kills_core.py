"""Core NATS: publishing, subscriptions (plain, in a queue group, with a callback), requests.

No message arrives twice; what was published on one link arrives in order. At the end the tables of
requests and subscriptions are empty.
"""

from __future__ import annotations

import asyncio

from tests.soak.kills_load import Load

import jetspark
from jetspark import Message
from jetspark.server import NatsServer

_ANSWER_WITHIN = 1.0  # seconds
_ASKING = 4  # tasks


class CoreLoad(Load):
    """One client publishes, one receives, one asks."""

    JETSTREAM = False
    CLIENTS = 3

    async def begin(self) -> None:
        self.publisher, self.receiver, self.asker = self.clients
        self.answered = self.probe = 0
        self.seen: set[int] = set()
        self.seen_by_group: set[int] = set()
        self.plain = self.receiver.subscribe("load")
        self.group = self.receiver.subscribe("load", queue="group")

        async def answer(message: Message) -> None:
            await message.respond(message.data)

        self.receiver.subscribe("svc", callback=answer)
        self.receiver.subscribe("probe", callback=self._on_probe)
        self.work(self._publish())
        for _ in range(_ASKING):
            self.work(self._ask())
        self.read(self._read_plain())
        self.read(self._read_group())

    async def leader(self) -> NatsServer | None:
        used = {client.current_server for client in self.clients}
        candidates = [server for server in self.servers if server.url in used]
        return self.rng.choice(candidates) if candidates else None

    def _on_probe(self, message: Message) -> None:
        self.probe = max(self.probe, int(message.data))

    async def _publish(self) -> None:
        client, figures = self.publisher, self.figures
        while not self.stopping:
            for _ in range(10):
                # What is published without a link belongs to the next one.
                link = client.stats.reconnects + (not client.is_connected)
                client.publish_nowait("load", b"%d %d" % (link, figures.sent))
                figures.sent += 1
            await asyncio.sleep(0.001)

    async def _read_plain(self) -> None:
        last_of_link: dict[int, int] = {}
        async for message in self.plain:
            link, number = map(int, message.data.split())
            assert number not in self.seen, f"{number} came twice"
            assert number > last_of_link.get(link, -1), f"{number} came late on link {link}"
            self.seen.add(number)
            last_of_link[link] = number

    async def _read_group(self) -> None:
        async for message in self.group:
            self.seen_by_group.add(int(message.data.split()[1]))

    async def _ask(self) -> None:
        while not self.stopping:
            try:
                reply = await self.asker.request("svc", b"?", timeout=_ANSWER_WITHIN)
                assert reply.data == b"?"
                self.answered += 1
            except (jetspark.RequestTimeoutError, jetspark.NoRespondersError) as error:
                self.figures.errors[type(error).__name__] += 1
            await asyncio.sleep(0.002)

    async def progress(self) -> None:
        wanted = self.probe + 1
        before = len(self.seen), len(self.seen_by_group), self.answered

        def works() -> bool:
            self.publisher.publish_nowait("probe", b"%d" % wanted)
            now = len(self.seen), len(self.seen_by_group), self.answered
            return (
                self.probe >= wanted
                and all(new > old for new, old in zip(now, before, strict=True))
                and all(client.is_connected for client in self.clients)
            )

        await self.until(works)

    async def check(self) -> None:
        assert [len(client.requests) for client in self.clients] == [0, 0, 0]
        for client in self.clients:
            await client.drain(30)
        await asyncio.gather(*self._reading)
        assert [len(client._link.routes) for client in self.clients] == [0, 0, 0]
        assert not any(client._subscriptions for client in self.clients)
        self.figures.received = len(self.seen)
        self.figures.reconnects = sum(client.stats.reconnects for client in self.clients)

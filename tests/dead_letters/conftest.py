"""A stream whose consumer gives messages up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.conftest import Unique
from tests.jetstream.eventually import eventually

from jetspark.dead_letters import DeadLetter, DeadLetters
from jetspark.full_client import JetStream
from jetspark.jetstream.message import JsMsg


class Orders:
    """A stream ("orders"), its consumer "worker" that delivers once, and its dead letters."""

    def __init__(self, js: JetStream, name: str, dead: DeadLetters) -> None:
        self.js = js
        self.name = name
        self.dead = dead

    def subject(self, rest: str) -> str:
        return f"{self.name}.{rest}"

    @asynccontextmanager
    async def giving_up(self) -> AsyncIterator[None]:
        """A handler that terminates what begins with "bad", and fails with everything else."""
        consumer = await self.js.stream(self.name).consumer("worker")

        async def fail(msg: JsMsg) -> None:
            if msg.data.startswith(b"bad"):
                await msg.term(msg.data.decode())
            else:
                await msg.nak()

        async with consumer.consume(callback=fail):
            yield

    async def give_up(self, *rests: str, data: bytes = b"x") -> None:
        """Publish to these subjects, and return when the consumer has given all of them up."""
        before = await self.dead.waiting()
        for rest in rests:
            await self.js.publish(self.subject(rest), data, headers={"Trace": rest})
        async with self.giving_up():
            await self.waiting(before + len(rests))

    async def bury(self, *rests: str) -> list[DeadLetter]:
        """The letters, with those of messages to these subjects."""
        await self.give_up(*rests)
        assert await self.dead.move() == len(rests)
        return await self.dead.letters().all()

    async def waiting(self, count: int) -> None:
        async def so_many() -> bool:
            return await self.dead.waiting() >= count

        await eventually(so_many)

    async def none_waits(self) -> bool:
        return await self.dead.waiting() == 0

    async def delete_pulled_consumer(self) -> None:
        """Delete the workers' consumer once a worker pulls from it."""

        async def pulls() -> bool:
            info = (await self.js.stream(self.dead.advisories).consumer("worker")).cached_info
            return bool(info.num_waiting)

        await eventually(pulls)
        await self.js.stream(self.dead.advisories).delete_consumer("worker")


@pytest.fixture
async def make_orders(js: JetStream, unique: Unique) -> AsyncIterator[Callable[..., object]]:
    made: list[Orders] = []

    async def make(retention: str | None = None) -> Orders:
        name = unique("ORDERS")
        await js.create_stream(
            name=name, subjects=[f"{name}.>"], storage="memory", retention=retention
        )
        await js.stream(name).create_consumer(durable_name="worker", max_deliver=1)
        dead = await js.create_or_update_dead_letters(f"{name}_DEAD", name, storage="memory")
        made.append(Orders(js, name, dead))
        return made[-1]

    yield make
    for orders in made:
        await js.delete_dead_letters(orders.dead.name)
        await js.delete_stream(orders.name)


@pytest.fixture
async def orders(make_orders: Callable[..., object]) -> Orders:
    made = await make_orders()  # type: ignore[misc]
    assert isinstance(made, Orders)
    return made

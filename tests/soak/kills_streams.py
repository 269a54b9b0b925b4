"""JetStream: many messages published, and messages read with acks or in order.

What is published is the numbers 0, 1, 2 …: `identified`, with a message id each; `plain`, without;
`ingest-fail` and `ingest-ok`, in fast-ingest batches, a new one when one is over. Every message is
either acknowledged or reported; what was acknowledged is stored, and nothing twice; what was
reported as certainly not stored is not there. With message ids nothing is reported.

Reading (`fetch`, `consume`, `ordered`) goes on beside somebody who publishes each number again,
under its id, until it is acknowledged. With acks every message that the stream holds was seen, and
the consumer has nothing left. Ordered reading sees the sequences 1, 2, 3 … and what the stream has
under each.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar

from tests.soak.kills_load import Load

from jetspark import JetsparkError
from jetspark.documents.streams import ClusterInfo
from jetspark.errors import BatchError, NotStoredError
from jetspark.jetstream import FastIngest, JsMsg, Publisher, PublishFailure
from jetspark.server import NatsServer

_PAUSE_EVERY, _PAUSE = 100, 0.002  # bounds the stream, and with it the time of a restart
_AT_ONCE = 20  # messages published at once
_HEARTBEAT = 0.5  # seconds
_ACK_WAIT = 1.0  # seconds: what a kill has swallowed comes again soon


class StreamLoad(Load):
    async def make_stream(self) -> None:
        self.js = self.clients[0].jetstream(timeout=10)
        await self.js.create_stream(
            name="S",
            subjects=["s"],
            num_replicas=len(self.servers),
            allow_batched=True if self.how.startswith("ingest") else None,
            allow_direct=True,
        )

    async def leader(self) -> NatsServer | None:
        with suppress(JetsparkError):
            info = await self.clients[0].jetstream(timeout=1).stream("S").info()
            return self.named(info.cluster)
        return None

    def named(self, cluster: ClusterInfo | None) -> NatsServer | None:
        """The server that leads, as the server has told."""
        leader = cluster and cluster.leader
        return next((server for server in self.servers if server._name == leader), None)

    async def stepdown(self) -> None:
        await self.js.stream("S").step_down_leader()


# -- publishing ----------------------------------------------------------------------------------


class Publishing(StreamLoad):
    """Through one publisher."""

    CLIENTS = 1

    async def begin(self) -> None:
        await self.make_stream()
        self.reported: dict[int, JetsparkError] = {}
        self._sink: Publisher | FastIngest | None = None
        self.work(self.publish())

    async def publish(self) -> None:
        identified = self.how == "identified"
        async with self.js.publisher(500, raise_failures=False) as publisher:
            self._sink = publisher
            while not self.stopping:
                number = publisher.sent
                msg_id = str(number) if identified else None
                await publisher.publish("s", b"%d" % number, msg_id=msg_id)
                if number % _PAUSE_EVERY == 0:
                    await asyncio.sleep(_PAUSE)
        self.account(publisher, 0)

    def account(self, sink: Publisher | FastIngest, first: int) -> None:
        figures, failed = self.figures, sink.failed
        self._sink = None
        assert sink.pending == 0
        assert sink.sent == sink.acked + len(failed), "a message has no fate"
        figures.sent += sink.sent
        figures.acknowledged += sink.acked
        failure: PublishFailure
        for failure in failed:
            assert first + failure.index not in self.reported, "a message has two fates"
            self.reported[first + failure.index] = failure.error
            figures.errors[type(failure.error).__name__] += 1

    def _acked(self) -> int:
        return self.figures.acknowledged + (self._sink.acked if self._sink is not None else 0)

    async def progress(self) -> None:
        wanted = self._acked() + 200
        await self.until(lambda: self._acked() >= wanted)

    async def check(self) -> None:
        consumer = await self.js.stream("S").create_consumer(ack_policy="none", mem_storage=True)
        stored: Counter[int] = Counter()
        left = (await self.js.stream("S").info()).state.messages
        while left:
            batch = await consumer.fetch(min(left, 10_000), timeout=30)
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
        if self.how == "identified":
            assert not self.reported, f"in spite of ids: {list(self.reported.items())[:3]}"
        figures.stored, figures.reported = len(stored), len(self.reported)
        figures.reported_and_stored = len(self.reported.keys() & stored.keys())


class Ingesting(Publishing):
    """In one fast-ingest batch after the other."""

    async def publish(self) -> None:
        while not self.stopping:
            self.figures.batches += 1
            first = self.figures.sent
            gaps = self.how == "ingest-ok"
            try:
                async with self.js.fast_ingest(
                    gaps="ok" if gaps else "fail", ack_every=100
                ) as batch:
                    self._sink = batch
                    with suppress(JetsparkError):  # it is over: `failed` says what became of all
                        while not self.stopping:
                            number = first + batch.sent
                            await batch.publish("s", b"%d" % number)
                            if number % _PAUSE_EVERY == 0:
                                await asyncio.sleep(_PAUSE)
                    await batch.commit()
                    _ = batch.failed  # looked at below
            finally:
                self.account(batch, first)


# -- reading -------------------------------------------------------------------------------------


class Reading(StreamLoad):
    """By `fetch` or `consume`, with acks."""

    COMING_AND_GOING = 3 * _AT_ONCE
    FAULTS: ClassVar[tuple[str, ...]] = ("kill", "kill", "stop")

    async def begin(self) -> None:
        await self.make_stream()
        self.publisher = self.clients[0].jetstream(timeout=0.5)
        self.acknowledged: set[int] = set()
        self.seen: set[int] = set()
        self.work(self._publish())
        await self.begin_to_read()

    async def begin_to_read(self) -> None:
        stream = self.clients[1].jetstream(timeout=2).stream("S")
        self.consumer = await stream.create_consumer(
            durable_name="c", ack_wait=timedelta(seconds=_ACK_WAIT), max_ack_pending=2000
        )
        self.read(self._fetch() if self.how == "fetch" else self._consume())

    async def _publish(self) -> None:
        numbers = itertools.count()
        while not self.stopping:
            await asyncio.gather(*(self._store(next(numbers)) for _ in range(_AT_ONCE)))
            self.figures.sent += _AT_ONCE
            await asyncio.sleep(0.002)

    async def _store(self, number: int) -> None:
        while True:
            try:
                ack = await self.publisher.publish("s", b"%d" % number, msg_id=str(number))
            except JetsparkError:
                await asyncio.sleep(0.05)
            else:
                self.acknowledged.add(ack.seq)
                return

    async def _take(self, message: JsMsg) -> None:
        self.figures.received += 1
        self.figures.redelivered += message.metadata.deliveries > 1
        self.seen.add(message.seq)
        await message.ack()

    async def _fetch(self) -> None:
        while True:
            try:
                batch = await self.consumer.fetch(50, timeout=2, heartbeat=_HEARTBEAT)
            except JetsparkError as error:
                self.figures.errors[type(error).__name__] += 1
                continue
            if batch.error is not None:
                self.figures.errors[type(batch.error).__name__] += 1
            for message in batch:
                await self._take(message)

    async def _consume(self) -> None:
        async with self.consumer.consume(
            max_messages=100, heartbeat=_HEARTBEAT, expires=2
        ) as messages:
            async for message in messages:
                await self._take(message)
        raise AssertionError("it was not to end")

    async def progress(self) -> None:
        wanted = len(self.seen) + _AT_ONCE
        await self.until(lambda: len(self.seen) >= wanted)

    async def check(self) -> None:
        while True:
            with suppress(JetsparkError):
                info = await self.consumer.info()
                if not info.num_pending and not info.num_ack_pending:
                    break
            await asyncio.sleep(0.1)
        state = (await self.js.stream("S").info()).state
        held = set(range(state.first_seq, state.last_seq + 1))
        assert len(held) == state.messages
        assert self.acknowledged <= held, "the stream lost what it had acknowledged"
        assert self.seen == held, f"never read: {sorted(held - self.seen)[:10]}"
        self.figures.stored = len(held)


class OrderedReading(Reading):
    """Through an ordered consumer.

    A server that is killed may forget what it has acknowledged, unless it syncs every write.
    """

    CONFIG = "jetstream { sync_interval: always }\n"
    FAULTS = ("kill", "kill", "kill", "pause", "delete", "cut")

    async def begin_to_read(self) -> None:
        reader = self.clients[1].jetstream(timeout=1)
        self.messages = reader.stream("S").ordered(max_messages=200, heartbeat=_HEARTBEAT)
        self.payloads: list[bytes] = []
        self.read(self._read())

    async def _read(self) -> None:
        async for message in self.messages:
            expected = len(self.seen) + 1
            assert message.seq == expected, f"{message.seq} came, and not {expected}"
            self.seen.add(message.seq)
            self.payloads.append(message.data)
            self.figures.consumers.add(message.metadata.consumer)

    async def leader(self) -> NatsServer | None:
        """That of the consumer, which is what an ordered reader depends on."""
        with suppress(JetsparkError):
            return self.named((await self.messages.info()).cluster)
        return None

    async def delete(self) -> None:
        await self.publisher.stream("S").delete_consumer(self.messages.name or "none")

    async def cut(self) -> None:
        """The reader's link."""
        await self.clients[1].force_reconnect()

    async def check(self) -> None:
        held = [message.data async for message in self.js.stream("S").get_many(up_to_seq=2**62)]
        await self.until(lambda: len(self.seen) >= len(held))
        assert self.payloads == held
        assert set(held) == {b"%d" % number for number in range(self.figures.sent)}
        self.figures.received = len(held)

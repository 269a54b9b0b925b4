"""The campaign "documents" in small."""

from __future__ import annotations

import json
import random

from tests.fuzz.documents import READERS, mutated, run

from jetspark.full_client import connect
from jetspark.server import NatsServer


def test_whatever_others_write_is_read_or_a_typed_error() -> None:
    figures = run(4_000, seed=1)
    assert figures.wrong == []
    assert figures.read.keys() == READERS.keys() - {"refusal"}  # which is an error


async def test_every_good_neighbour_of_a_bad_document_is_delivered(nats_server: NatsServer) -> None:
    rng = random.Random(1)
    count = 40
    async with connect(nats_server.url, error_callback=lambda error: None) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        dead = await js.create_or_update_dead_letters("D", "S")
        store = await js.create_object_store("O")
        subject = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.c"
        expected = []
        async with js.events(kinds="terminated") as events:
            await nc.flush()
            for number in range(count):
                bad = mutated(READERS["advisory"][0], rng)
                await js.publish(subject, bad)
                await js.publish(f"$O.O.M.{number}", mutated(READERS["object"][0], rng))
                good = READERS["advisory"][0] | {"id": f"good{number}", "consumer_seq": 1}
                good["type"] = "io.nats.jetstream.advisory.v1.terminated"
                await js.publish(subject, json.dumps(good).encode())
                await store.put(f"good{number}", b"x")
                expected.append(f"good{number}")
            seen = []
            async for event in events:
                seen += [event.id] if str(event.id).startswith("good") else []
                if len(seen) == count:
                    break
        assert seen == expected
        names = [one.name async for one in store.objects()]
        assert [name for name in names if name.startswith("good")] == expected
        await dead.move()
        # What waits is about messages that are not there yet, says who wrote it.
        assert await dead.waiting() < count // 10
        assert len(await dead.letters(stream="S").all()) >= count

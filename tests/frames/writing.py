"""Scripts that write: what is said to be stored is stored, and what has an id is stored once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from tests.frames.scene import PATIENCE, Scene, retried, settled, within

from jetspark.errors import JetsparkError
from jetspark.jetstream.fast_ingest import GapPolicy
from jetspark.stream_writes.exactly_once import ExactlyOnceWriter
from jetspark.stream_writes.ledger import Ledger
from jetspark.stream_writes.publish import StreamPublisher

_MANY = [b"%d" % number for number in range(20)]


async def publish(scene: Scene) -> None:
    """An ack names the message that it is of."""
    await scene.stream()
    js = scene.js
    scene.begin()
    for payload in (b"1", b"2", b"3"):
        try:
            ack = await js.publish(scene.subject, payload)
        except JetsparkError:
            continue
        stored = await scene.near.stream(scene.name).get(ack.seq, direct=False)
        assert stored.data == payload


async def publish_with_id(scene: Scene) -> None:
    """Tried again until there is an ack, each is stored once."""
    await scene.stream()
    js = scene.js
    scene.begin()
    payloads = [b"1", b"2", b"3"]
    async with within(15, "publishing with ids"):
        for payload in payloads:
            await retried(
                lambda it=payload: js.publish(  # type: ignore[misc]
                    scene.subject, it, msg_id=it.decode()
                )
            )
    assert await scene.stored() == payloads


async def publisher(scene: Scene, *, with_ids: bool = False) -> None:
    await scene.stream()
    scene.begin()
    sender = scene.js.publisher(window=5, raise_failures=False)
    async with within(15, "a publisher's block"), sender:
        for payload in _MANY:
            msg_id = payload.decode() if with_ids else None
            await sender.publish(scene.subject, payload, msg_id=msg_id)
    failed = {failure.index for failure in sender.failed}
    assert sender.acked + len(failed) == len(_MANY)
    stored = Counter(await scene.stored())
    assert {number for number, payload in enumerate(_MANY) if not stored[payload]} <= failed
    assert set(stored) <= set(_MANY)
    assert max(stored.values(), default=1) == 1


async def publisher_with_ids(scene: Scene) -> None:
    await publisher(scene, with_ids=True)


async def atomic_batch(scene: Scene) -> None:
    await scene.stream(allow_atomic=True)
    scene.begin()
    payloads = [b"1", b"2", b"3"]
    ack = None
    async with within(10, "an atomic batch"):
        with suppress(JetsparkError):
            async with scene.js.atomic_batch() as batch:
                for payload in payloads:
                    await batch.publish(scene.subject, payload)
            ack = batch.ack
    # The server stores one after the other: who looks just then sees a part of them.
    async with within(5, "storing all or nothing"):
        stored = await settled(scene.stored, lambda stored: stored in ([], payloads))
    assert ack is None or (stored, ack.count) == (payloads, 3)


async def fast_ingest(scene: Scene, gaps: GapPolicy = "fail", refused: int | None = None) -> None:
    """`refused`: the number of a message that the server does not take."""
    await scene.stream(allow_batched=True)
    scene.begin()
    async with within(15, "fast ingest"):
        with suppress(JetsparkError):
            async with scene.js.fast_ingest(gaps=gaps, ack_every=4) as batch:
                for number, payload in enumerate(_MANY):
                    expected = 77 if number == refused else None
                    await batch.publish(scene.subject, payload, expect_last_subject_seq=expected)
        failed = {failure.index for failure in batch.failed}
    stored = Counter(await scene.stored())
    assert max(stored.values(), default=1) == 1
    taken = set(range(batch.sent)) - failed
    assert {_MANY[index] for index in taken} <= set(stored), "said to be stored, and is not"
    assert refused is not None or batch.acked == len(taken)


async def fast_ingest_with_gaps(scene: Scene) -> None:
    await fast_ingest(scene, "ok")


async def fast_ingest_refused(scene: Scene) -> None:
    """It ends the batch, whether its word comes or not."""
    await fast_ingest(scene, refused=10)


async def bulk_publish(scene: Scene) -> None:
    await scene.stream()
    options = scene.bulk_options()
    scene.begin()

    def write() -> None:
        subject = scene.subject.encode()
        with StreamPublisher(options, scene.name, timeout=4 * PATIENCE) as sender:
            sender.send((subject, None, payload) for payload in _MANY)

    async with within(15, "writing at least once"):
        await asyncio.to_thread(write)
    assert set(await scene.stored()) == set(_MANY)


async def exactly_once(scene: Scene) -> None:
    """Two batches, each tried again after an error."""
    await scene.near.create_stream(
        {
            "name": scene.name,
            "subjects": [f"{scene.name}.>", f"_spark.{scene.name}.mark.>"],
            "storage": "memory",
            "allow_atomic": True,
            "allow_rollup_hdrs": True,
        }
    )
    options = scene.bulk_options()
    timeout = 4 * PATIENCE
    # The ledger is made beside the proxy.
    await asyncio.to_thread(Ledger(options, scene.name, "q", timeout=timeout).make_stream, 1)
    subject = f"{scene.name}.rows".encode()
    expected = []

    def commit(batch: int) -> None:
        ledger = Ledger(options, scene.name, "q", timeout=timeout)
        rows = [(subject, None, b"%d-%d" % (batch, number)) for number in range(8)]
        pieces = [ledger.stage(rows[part::2]) for part in range(2)]
        writer = ExactlyOnceWriter(options, scene.name, "q", timeout=timeout)
        writer.commit(batch, pieces, lanes=2)

    scene.begin()
    async with within(30, "writing exactly once"):
        for number in range(2):
            expected += [b"%d-%d" % (number, row) for row in range(8)]
            await retried(lambda it=number: asyncio.to_thread(commit, it), 3)  # type: ignore[misc]
    assert Counter(await scene.stored(subject.decode())) == Counter(expected)


SCRIPTS = [
    *(publish, publish_with_id, publisher, publisher_with_ids, atomic_batch),
    *(fast_ingest, fast_ingest_with_gaps, fast_ingest_refused, bulk_publish, exactly_once),
]

"""Batches without async: the same code, the caller's thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.conftest import NeedsServer, Unique

from jetspark.blocking import Client
from jetspark.errors import NotEnabledOnStreamError, PublishFailedError, WrongLastSequenceError


@pytest.fixture
def stream(nc: Client, unique: Unique, needs_server: NeedsServer) -> str:
    """A stream in memory that takes batches."""
    needs_server("2.12")
    name = unique("S")
    nc.jetstream().create_stream(
        name=name, subjects=[f"{name}.>"], storage="memory", allow_atomic=True
    )
    return name


def test_threads_add_to_one_atomic_batch(nc: Client, stream: str) -> None:
    js = nc.jetstream()
    with js.atomic_batch() as batch, ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda n: batch.publish(f"{stream}.{n}", b"x"), range(200)))
    assert sorted(numbers) == list(range(1, 201))
    assert batch.ack is not None
    assert (batch.ack.count, js.stream(stream).info().state.messages) == (200, 200)


def test_an_exception_gives_an_atomic_batch_up(nc: Client, stream: str) -> None:
    js = nc.jetstream()
    with pytest.raises(KeyError), js.atomic_batch() as batch:
        for _ in range(3):
            batch.publish(f"{stream}.a")
        raise KeyError
    with pytest.raises(WrongLastSequenceError), js.atomic_batch() as batch:
        batch.publish(f"{stream}.a", expect_last_seq=7)
        batch.commit()
    js.stream(stream).update(allow_atomic=False)
    with pytest.raises(NotEnabledOnStreamError), js.atomic_batch() as batch:
        batch.publish(f"{stream}.a")
        batch.publish(f"{stream}.a")
    assert js.stream(stream).info().state.messages == 0


def test_threads_add_to_one_fast_ingest(nc: Client, stream: str, needs_server: NeedsServer) -> None:
    needs_server("2.14")
    js = nc.jetstream()
    js.stream(stream).update(allow_batched=True)
    most = 0

    def add(number: int) -> int:
        nonlocal most
        index = ingest.publish(f"{stream}.a", b"x")
        most = max(most, ingest.pending)
        return index

    with js.fast_ingest(ack_every=10) as ingest, ThreadPoolExecutor(4) as pool:
        indexes = list(pool.map(add, range(3000)))
    assert sorted(indexes) == list(range(3000))
    assert (ingest.acked, ingest.failed, most <= 20) == (3000, [], True)
    assert js.stream(stream).info().state.messages == 3000


def test_fast_ingest_tells_what_failed(nc: Client, stream: str, needs_server: NeedsServer) -> None:
    needs_server("2.14")
    js = nc.jetstream()
    with js.fast_ingest() as ingest:
        ingest.publish(f"{stream}.a")
        with pytest.raises(NotEnabledOnStreamError):
            ingest.publish(f"{stream}.a")
        assert len(ingest.failed) == 1
    js.stream(stream).update(allow_batched=True)
    with pytest.raises(PublishFailedError), js.fast_ingest(gaps="ok") as ingest:
        for number in range(1000):
            ingest.publish(f"{stream}.a", expect_last_seq=77 if number == 500 else None)
        ack = ingest.commit()
    assert (ack, ingest.acked) == (ingest.ack, 999)

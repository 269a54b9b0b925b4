"""A Ctrl-C comes out as what it is, at once, whatever has to be cleaned up."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.blocking.interrupted import interrupt_next_wait

from jetspark.blocking import connect
from jetspark.blocking.iterators import Listing
from jetspark.blocking.loop_thread import current
from jetspark.client.listing import Listing as AsyncListing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.conftest import MakeServer

    from jetspark.blocking.kv import Bucket
    from jetspark.blocking.objects import ObjectStore


def test_a_listing_that_still_cleans_up_does_not_hide_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = current()
    caller: Any = SimpleNamespace(thread=thread)
    begun, go_on, ended = threading.Event(), asyncio.Event(), threading.Event()

    async def read() -> AsyncIterator[int]:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
            yield 1
        finally:
            await go_on.wait()
            ended.set()

    interrupt_next_wait(monkeypatch, begun)
    with pytest.raises(KeyboardInterrupt):
        list(Listing(caller, AsyncListing(read)))
    thread.call(go_on.set)
    assert ended.wait(30)


def in_lock(bucket: Bucket, _: ObjectStore, stop: Callable[[], None]) -> None:
    with bucket.lock("lock"):
        stop()


def in_election(bucket: Bucket, _: ObjectStore, stop: Callable[[], None]) -> None:
    with bucket.election("election") as election:
        while not next(election).leading:
            pass
        stop()


def in_put(_: Bucket, store: ObjectStore, stop: Callable[[], None]) -> None:
    def data() -> Iterator[bytes]:
        yield bytes(1_000_000)
        stop()

    store.put("object", data())


@pytest.mark.parametrize("work", [in_lock, in_election, in_put])
def test_a_server_that_does_not_answer_does_not_keep_an_interrupt(
    make_server: MakeServer, work: Callable[..., None]
) -> None:
    server = make_server()
    since = 0.0

    def stop() -> None:
        nonlocal since
        server.pause()
        since = time.monotonic()
        raise KeyboardInterrupt

    with connect(server.url) as nc:
        js = nc.jetstream(timeout=30)
        bucket, store = js.create_bucket("b"), js.create_object_store("o")
        try:
            with pytest.raises(KeyboardInterrupt) as raised:
                work(bucket, store, stop)
            assert time.monotonic() - since < 10
            assert raised.value.__context__ is None
        finally:
            server.resume()
        # What was left is cleaned up behind it.
        with bucket.lock("lock"), bucket.election("election") as election:
            while not election.next(20).leading:
                pass

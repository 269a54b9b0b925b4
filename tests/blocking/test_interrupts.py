"""A Ctrl-C comes out as what it is, at once, whatever has to be cleaned up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.blocking.eventually import eventually
from tests.blocking.interrupted import interrupt_next_wait, interrupt_wait
from tests.conftest import MakeServer, Unique

from jetspark.blocking import connect
from jetspark.blocking.iterators import Listing
from jetspark.blocking.kv import Bucket
from jetspark.blocking.loop_thread import _Call, _Entering, _Leaving, current
from jetspark.blocking.objects import ObjectStore
from jetspark.client.listing import Listing as AsyncListing
from jetspark.connection.events import Closed
from jetspark.errors import NoRespondersError, RequestTimeoutError
from jetspark.server import NatsServer


def test_listing_that_cleans_up_hides_no_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
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


def leads(election: Any) -> None:
    while not election.next(20).leading:
        pass


def in_election(bucket: Bucket, _: ObjectStore, stop: Callable[[], None]) -> None:
    with bucket.election("election") as election:
        leads(election)
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
            leads(election)


class Scene:
    """A client whose blocks are interrupted; another one that sees what is left of them."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.nc, self.other = connect(url), connect(url)
        self.js = self.other.jetstream()
        self.theirs = self.js.create_bucket(name, storage="memory")
        self.bucket = self.nc.jetstream().bucket(name)
        self.events: list[object] = []

    def close(self) -> None:
        self.js.delete_bucket(self.name)
        self.nc.close()
        self.other.close()

    def nobody_holds(self) -> bool:
        return self.theirs.lock(self.name).owner() is None

    def nobody_answers(self, subject: str) -> bool:
        try:
            self.other.request(subject, timeout=1)
        except NoRespondersError:
            return True
        except RequestTimeoutError:
            pass  # it arrived just before the end
        return False

    def nobody_reads(self) -> bool:
        return not self.js.stream(self.theirs.stream).consumer_names().all()


Opens = Callable[[Scene], Any]
IsGone = Callable[[Scene], bool]
BLOCKS: dict[str, tuple[Opens, IsGone]] = {
    "lock": (lambda scene: scene.bucket.lock(scene.name, lease=60), Scene.nobody_holds),
    "election": (lambda scene: scene.bucket.election(scene.name, lease=60), Scene.nobody_holds),
    "subscription": (
        lambda scene: scene.nc.subscribe(scene.name, callback=lambda message: message.respond()),
        lambda scene: scene.nobody_answers(scene.name),
    ),
    "service": (
        lambda scene: scene.nc.add_service(scene.name, "1.0.0"),
        lambda scene: scene.nobody_answers(f"$SRV.PING.{scene.name}"),
    ),
    "connection": (
        lambda scene: connect(scene.url, event_callback=scene.events.append),
        lambda scene: [*map(type, scene.events)][-1:] in ([], [Closed]),
    ),
    "live": (lambda scene: scene.bucket.live(), Scene.nobody_reads),
    "watch": (lambda scene: scene.bucket.watch(), Scene.nobody_reads),
    "callback": (lambda scene: scene.bucket.watch(callback=lambda _: None), Scene.nobody_reads),
    "ordered": (
        lambda scene: scene.nc.jetstream().stream(scene.bucket.stream).ordered(),
        Scene.nobody_reads,
    ),
}


@pytest.fixture
def scene(shared_server: NatsServer, unique: Unique) -> Iterator[Scene]:
    made = Scene(shared_server.url, unique("I"))
    yield made
    made.close()


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(("kind", "turn"), [(_Entering, 1), (_Entering, 2), (_Leaving, 1)])
@pytest.mark.parametrize("block", BLOCKS)
def test_an_interrupt_of_entering_or_leaving_a_block_leaves_nothing_behind(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    block: str,
    kind: type[_Call],
    turn: int,
    ended: bool,
) -> None:
    """Neither what had been opened when nobody took it, nor what was opened or closed just then."""
    opens, is_gone = BLOCKS[block]
    interrupted = False
    interrupt_wait(monkeypatch, kind, turn, ended=ended)
    try:
        with opens(scene) as opened:
            if block == "election":
                leads(opened)
    except KeyboardInterrupt:
        interrupted = True
    monkeypatch.undo()
    assert interrupted or (kind is _Entering and block in ("lock", "subscription", "service"))
    eventually(lambda: is_gone(scene))
    assert scene.nc.is_connected

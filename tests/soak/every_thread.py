"""Every thread at once.

One blocking client, eight threads that are switched every microsecond, and every call, in an order
that the seed gives. Each call has to give the right result, and in time; nothing is logged or
reported; at the end the client's tables are empty, and no thread of a callback is left. All share
a publisher with a window that is never full, and a fast-ingest batch, whose messages are all
acknowledged. `--only NAME` tries one call alone.
"""

from __future__ import annotations

import faulthandler
import itertools
import logging
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support import campaign
from tests.support.switching import switching

from jetspark import errors
from jetspark.blocking import Client, connect
from jetspark.blocking.services import Request
from jetspark.server import NatsServer

THREADS = 8
LONGEST = 90.0
"""Seconds in which some call must end: longer is a hang."""
MESSAGES = 200
WINDOW = 200_000
"""Of the publisher that all threads share: it is never full."""
CONFIG = f"jetstream {{ max_buffered_msgs: {2 * WINDOW} }}"
"""A stream refuses what comes beyond its buffer, 10,000 messages by default, and the publisher
reports that and sends it again."""


@dataclass
class Figures(campaign.Figures):
    calls: Counter[str] = field(default_factory=Counter)


class Scene:
    """The client that all threads share, another one that answers it, and things to call."""

    def __init__(self, nc: Client, other: Client) -> None:
        self._numbers = itertools.count()
        self.nc, self.js, self.other = nc, nc.jetstream(), other
        other.subscribe("echo", callback=lambda message: message.respond(message.data))
        other.subscribe("many", callback=_three_answers)
        other.flush()
        for stream in ("S", "P"):
            self.js.create_stream(
                name=stream,
                subjects=[f"{stream.lower()}.>"],
                storage="memory",
                allow_direct=True,
                allow_atomic=True,
                allow_batched=True,
            )
        for number in range(MESSAGES):
            self.js.publish("s.fill", b"%d" % number)
        self.bucket = self.js.create_bucket("B", storage="memory", history=5)
        self.bucket.put("shared", b"0")
        self.store = self.js.create_object_store("O", storage="memory")
        self.consumer = self.js.stream("S").create_consumer(
            durable_name="WORK", filter_subject="s.fill", ack_wait=timedelta(seconds=0.2)
        )
        nc.request("echo")  # the inbox of requests stays

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """All threads share two sinks; in the end all is acknowledged and stored."""
        with (
            self.js.publisher(WINDOW, timeout=20) as self.publisher,
            self.js.fast_ingest() as self.ingest,
        ):
            yield
            if self.ingest.sent:
                self.ingest.commit()
        for sink in (self.publisher, self.ingest):
            assert (sink.acked, sink.failed) == (sink.sent, []), sink
        stored = self.js.stream("P").info().state.messages
        assert stored == self.publisher.sent + self.ingest.sent

    def name(self) -> str:
        return f"N{next(self._numbers)}"


def _three_answers(message: Any) -> None:
    for number in range(3):
        message.respond(b"%d" % number)


def first(items: Any, count: int) -> list[Any]:
    """So many; the loop is left then."""
    return list(itertools.islice(items, count))


# -- the calls: each raises when something is wrong ----------------------------------------------


def request(scene: Scene, name: str) -> None:
    assert scene.nc.request("echo", name.encode(), timeout=60).data == name.encode()


def request_many(scene: Scene, name: str) -> None:
    replies = scene.nc.request_many("many", max_msgs=3, timeout=60)
    assert [reply.data for reply in replies] == [b"0", b"1", b"2"]


def request_to_nobody(scene: Scene, name: str) -> None:
    with suppress(errors.NoRespondersError):
        scene.nc.request(name)
        raise AssertionError("somebody answered")


def subscribe(scene: Scene, name: str) -> None:
    sent = [b"%d" % number for number in range(50)]
    with scene.nc.subscribe(name) as sub:
        for data in sent:
            scene.nc.publish(name, data, headers={"n": name})
        found = [sub.next(60) for _ in sent]
    assert [message.data for message in found] == sent
    assert {message.headers["n"] for message in found if message.headers} == {name}


def iterate_limited(scene: Scene, name: str) -> None:
    sub = scene.nc.subscribe(name, max_msgs=20)
    for _ in range(30):
        scene.nc.publish(name)
    assert len(list(sub)) == 20


def callback_and_drain(scene: Scene, name: str) -> None:
    seen: list[bytes] = []
    sub = scene.nc.subscribe(name, callback=lambda message: seen.append(message.data))
    sent = [b"%d" % number for number in range(20)]
    for data in sent:
        scene.nc.publish(name, data)
    sub.drain(60)
    assert seen == sent


def two_readers(scene: Scene, name: str) -> None:
    sub = scene.nc.subscribe(name, max_msgs=100)
    found: list[list[bytes]] = [[], []]

    def read(into: list[bytes]) -> None:
        into.extend(message.data for message in sub)

    readers = [threading.Thread(target=read, args=(into,)) for into in found]
    for reader in readers:
        reader.start()
    for number in range(100):
        scene.nc.publish(name, b"%d" % number)
    for reader in readers:
        reader.join(60)
    assert sorted(map(int, found[0] + found[1])) == list(range(100))


def flush(scene: Scene, name: str) -> None:
    scene.nc.flush(60)
    assert scene.nc.rtt() > 0
    assert scene.nc.stats.reconnects == 0
    assert scene.nc.is_connected


def js_publish(scene: Scene, name: str) -> None:
    ack = scene.js.publish(f"s.{name}", name.encode(), msg_id=name, timeout=60)
    assert scene.js.stream("S").get(ack.seq).data == name.encode()
    assert scene.js.publish(f"s.{name}", b"", msg_id=name, timeout=60).duplicate


def publisher(scene: Scene, name: str) -> None:
    with scene.js.publisher(window=20, timeout=60) as pub:
        for _ in range(60):
            pub.publish(f"s.{name}")
        last = pub.publish_async(f"s.{name}").result(60)
    assert last.seq
    assert (pub.acked, pub.failed) == (61, [])


def shared_publisher(scene: Scene, name: str) -> None:
    for _ in range(100):
        scene.publisher.publish("p.x", b"x")


def shared_ingest(scene: Scene, name: str) -> None:
    for _ in range(100):
        scene.ingest.publish("p.x", b"x")


def atomic_batch(scene: Scene, name: str) -> None:
    with scene.js.atomic_batch(timeout=60) as batch:
        for _ in range(5):
            batch.publish(f"s.{name}")
        assert batch.commit().count == 5


def fetch(scene: Scene, name: str) -> None:
    for message in scene.consumer.fetch(5, timeout=2):
        message.ack() if name.endswith("0") else message.nak()


def consume(scene: Scene, name: str) -> None:
    consumer = scene.js.stream("S").create_consumer(
        filter_subject="s.fill", ack_policy="none", inactive_threshold=timedelta(seconds=60)
    )
    with consumer.consume(max_messages=50) as messages:
        assert [int(message.data) for message in first(messages, MESSAGES)] == [*range(MESSAGES)]
    consumer.delete()


def ordered(scene: Scene, name: str) -> None:
    with scene.js.stream("S").ordered(subjects="s.fill") as messages:
        assert [int(message.data) for message in first(messages, MESSAGES)] == [*range(MESSAGES)]


def stored(scene: Scene, name: str) -> None:
    found = list(scene.js.stream("S").get_many(subject="s.fill", max_msgs=20))
    assert [int(message.data) for message in found] == list(range(20))
    assert scene.js.stream("S").get(1, direct=False).seq == 1


def streams(scene: Scene, name: str) -> None:
    scene.js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    assert name in scene.js.stream_names().all()
    scene.js.delete_stream(name)
    with suppress(errors.StreamNotFoundError):
        scene.js.stream(name).info()
        raise AssertionError("the stream is still there")


def keys(scene: Scene, name: str) -> None:
    bucket = scene.bucket
    revision = bucket.create(name, b"1")
    revision = bucket.update(name, b"2", revision)
    entry = bucket.get(name)
    assert (entry.value, entry.revision) == (b"2", revision)
    assert [entry.value for entry in bucket.history(name)] == [b"1", b"2"]
    bucket.purge(name)


def count_together(scene: Scene, name: str) -> None:
    """Compare and set, until it is ours."""
    while True:
        entry = scene.bucket.get("shared", leader=True)
        try:
            scene.bucket.update("shared", b"%d" % (int(entry.value) + 1), entry.revision)
        except errors.WrongLastSequenceError:
            continue
        return


def watch(scene: Scene, name: str) -> None:
    scene.bucket.put(name, b"w")
    with scene.bucket.watch(name) as watcher:
        entry, end = first(watcher, 2)
        assert (entry.key, entry.value, end) == (name, b"w", None)
        scene.bucket.put(name, b"x")
        change = next(iter(watcher))
        assert change is not None
        assert change.value == b"x"
    scene.bucket.purge(name)


def live(scene: Scene, name: str) -> None:
    with scene.bucket.live("shared") as bucket:
        assert int(bucket["shared"]) >= 0


def objects(scene: Scene, name: str) -> None:
    content = name.encode() * 5_000
    scene.store.put(name, content, chunk_size=4_000)
    assert scene.store.get_bytes(name) == content
    scene.store.delete(name)


def service(scene: Scene, name: str) -> None:
    def double(request: Request) -> None:
        request.respond_json(request.json(int) * 2)

    with scene.nc.add_service(name, "1.0.0") as service:
        service.add_endpoint("double", double, subject=name, concurrency=2)
        services = scene.nc.services()
        for number in range(20):
            assert services.request_json(name, number, timeout=60) == number * 2
        assert service.stats().endpoints[0].num_requests == 20


CALLS: tuple[Callable[[Scene, str], None], ...] = (
    *(request, request_many, request_to_nobody, subscribe, iterate_limited, callback_and_drain),
    *(two_readers, flush, js_publish, publisher, shared_publisher, shared_ingest, atomic_batch),
    *(fetch, consume, ordered, stored, streams, keys, count_together, watch, live, objects),
    service,
)


# -- the campaign --------------------------------------------------------------------------------


class _Log(logging.Handler):
    def __init__(self, wrong: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.wrong = wrong

    def emit(self, record: logging.LogRecord) -> None:
        self.wrong.append(f"logged: {record.getMessage()}")

    def reported(self, error: errors.JetsparkError) -> None:
        self.wrong.append(f"reported: {error!r}")


def run(runs: int = 10_000, seed: int = 1, only: str = "") -> Figures:
    """A run is a call, of those whose name has `only`."""
    figures = Figures()
    log = _Log(figures.wrong)
    loggers = [logging.getLogger(name) for name in ("jetspark", "asyncio")]
    for logger in loggers:
        logger.addHandler(log)
    threads = set(threading.enumerate())
    try:
        with (
            _server() as server,
            connect(server.url) as other,
            connect(server.url, error_callback=log.reported) as nc,
        ):
            scene = Scene(nc, other)
            before = _tables(nc)
            calls = campaign.those_named(only, CALLS, lambda call: call.__name__)
            with scene.sharing():
                counted = _in_threads(scene, calls, runs, seed, figures)
            if not counted:
                figures.wrong.append(f"a call went on for {LONGEST:g} s")
                return figures
            shared = int(scene.bucket.get("shared").value)
            if shared != figures.calls["count_together"]:
                figures.wrong.append(
                    f"{figures.calls['count_together']} threads counted to {shared}"
                )
            if left := _left(lambda: _tables(nc), before):
                figures.wrong.append(f"left behind: {left}")
    finally:
        for logger in loggers:
            logger.removeHandler(log)
    if gone := _left(lambda: _threads_but(threads), {"threads": []}):
        figures.wrong.append(f"left behind: {gone}")
    return figures


@contextmanager
def _server() -> Iterator[NatsServer]:
    with tempfile.TemporaryDirectory() as folder:
        (config := Path(folder, "nats.conf")).write_text(CONFIG)
        with NatsServer(0, host="127.0.0.1", jetstream=True, config=config) as server:
            yield server


def _in_threads(scene: Scene, calls: list[Any], runs: int, seed: int, figures: Figures) -> bool:
    """Whether all came to their end."""
    lock = threading.Lock()
    numbers = iter(range(runs))

    def work(thread: int) -> None:
        order = random.Random(f"{seed}/{thread}")
        for _ in numbers:
            call = order.choice(calls)
            wrong = None
            try:
                call(scene, scene.name())
            except BaseException as error:
                wrong = f"{call.__name__}: {error!r}"
            with lock:
                figures.calls[call.__name__] += 1
                figures.count_run()
                if wrong is not None:
                    figures.wrong.append(wrong)

    with switching(), ThreadPoolExecutor(THREADS, thread_name_prefix="caller") as pool:
        working = [pool.submit(work, thread) for thread in range(THREADS)]
        done = -1
        while wait(working, LONGEST).not_done:
            if done == figures.runs:
                faulthandler.dump_traceback(all_threads=True)
                scene.nc.close()  # what hangs in it ends now
                return False
            done = figures.runs
    return True


def _threads_but(known: set[threading.Thread]) -> dict[str, Any]:
    new = sorted(thread.name for thread in set(threading.enumerate()) - known)
    return {"threads": [name for name in new if name != "jetspark-loop"]}  # of the process


def _tables(nc: Client) -> dict[str, Any]:
    inner = nc._inner
    return {
        "requests": len(inner.requests),
        "subscriptions at the server": sorted(route.subject for route in inner._link.routes),
        "subscriptions": len(inner._subscriptions),
        "calls in the loop": len(nc._thread.calls),
        "bytes not handed over": nc._buffer._size + inner.publishing.link.outbox.size,
    }


def _left(look: Callable[[], dict[str, Any]], before: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while (now := look()) != before:
        if time.monotonic() > deadline:
            return {name: (before[name], now[name]) for name in now if now[name] != before[name]}
        time.sleep(0.01)
    return {}

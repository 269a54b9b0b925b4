"""Requests and single publishes of the blocking client, which make no task in the loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.blocking.conftest import NoteCalls, in_threads, open_requests
from tests.conftest import Unique

from jetspark import errors
from jetspark.blocking import Client, jetstream
from jetspark.blocking.loop_thread import LoopThread, current


def test_a_request_and_a_publish_make_no_task(nc: Client, unique: Unique) -> None:
    js = nc.jetstream()
    name = unique("S")
    js.create_stream(name=name, subjects=[name], storage="memory")
    loop = current().loop
    made: list[object] = []

    def note(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    current().call(loop.set_task_factory, note)
    try:
        assert nc.request("$JS.API.INFO", timeout=5).data
        assert js.publish(name, b"x").seq == 1
        assert made == []
        assert js.stream(name).info().state.messages == 1
        assert len(made) == 1
    finally:
        current().call(loop.set_task_factory, None)
        js.delete_stream(name)


def test_a_request_waits_while_the_network_takes_no_more(nc: Client, unique: Unique) -> None:
    nc.subscribe(subject := unique("svc"), callback=lambda message: message.respond(message.data))
    nc.flush()
    outbox = nc._inner.publishing.link.outbox
    current().call(outbox.pause)
    answers: list[bytes] = []
    asking = threading.Thread(
        target=lambda: answers.append(nc.request(subject, b"x", timeout=10).data)
    )
    asking.start()
    while not outbox._room:
        current().call(lambda: None)
    assert open_requests(nc) == 0
    current().call(outbox.resume)
    asking.join(30)
    assert answers == [b"x"]


def test_a_publish_finds_a_stream_that_comes_while_it_is_tried_again(
    nc: Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    js = nc.jetstream()
    name = unique("late")
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        if pauses:
            js.create_stream(name=name, subjects=[name], storage="memory")
        pauses.append(seconds)

    monkeypatch.setattr(jetstream, "time", SimpleNamespace(sleep=sleep))
    assert js.publish(name, b"1").seq == 1
    assert pauses == [0.25, 0.25]
    js.delete_stream(name)


def test_a_publish_without_responders_is_tried_three_times(nc: Client, unique: Unique) -> None:
    before = nc.stats.out_msgs
    with pytest.raises(errors.NoStreamResponseError):
        nc.jetstream().publish(unique("nobody"))
    assert nc.stats.out_msgs - before == 3
    with pytest.raises(errors.ConfigError):
        nc.jetstream().publish("a", timeout=0)
    unknown = pytest.raises(errors.RequestTimeoutError, match="it is not known")
    with unknown, nc.subscribe(unique("mute")) as mute:
        nc.jetstream().publish(mute.subject, timeout=0.05)
    assert open_requests(nc) == 0


@pytest.mark.parametrize("installed", [True, False])
def test_loop_is_uvloops_if_installed(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    made: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        made.append(asyncio.new_event_loop())
        return made[0]

    uvloop = SimpleNamespace(new_event_loop=new_event_loop) if installed else None
    monkeypatch.setitem(sys.modules, "uvloop", uvloop)
    thread = LoopThread()
    assert thread.call(asyncio.get_running_loop) is thread.loop
    assert made == ([thread.loop] if installed else [])
    thread.stop()


# -- requests that the calling thread sends itself -------------------------------------------------


def test_a_lone_request_is_sent_without_the_loop(
    nc: Client, unique: Unique, note_calls: NoteCalls
) -> None:
    nc.subscribe(subject := unique("svc"), callback=lambda message: message.respond(message.data))
    nc.request(subject, b"subscribes the inbox", timeout=5)
    posted = note_calls("post")
    assert nc.request(subject, b"x", timeout=5).data == b"x"
    assert posted == []


def test_a_request_does_not_overtake_its_thread_s_publishes(nc: Client, unique: Unique) -> None:
    seen: list[bytes] = []

    def note(message: Any) -> None:
        seen.append(message.data)
        if message.reply:
            message.respond(b"")

    nc.subscribe(subject := unique("order"), callback=note)
    nc.flush()
    for number in range(300):
        for part in range(number % 4):
            nc.publish(subject, b"%d.%d" % (number, part))
        nc.request(subject, b"%d." % number, timeout=10)
    wanted = []
    for number in range(300):
        wanted += [b"%d.%d" % (number, part) for part in range(number % 4)] + [b"%d." % number]
    assert seen == wanted


def test_requests_of_many_threads_get_their_own_replies(nc: Client, unique: Unique) -> None:
    nc.subscribe(subject := unique("svc"), callback=lambda message: message.respond(message.data))
    nc.flush()
    wrong: list[object] = []

    def ask(who: int) -> None:
        for number in range(200):
            data = b"%d.%d" % (who, number)
            if (reply := nc.request(subject, data, timeout=20).data) != data:
                wrong.append((data, reply))
            if number % 7 == 0:
                nc.publish(subject, b"x" * 1000)

    in_threads(8, ask)
    assert wrong == []
    assert open_requests(nc) == 0


def test_a_request_that_is_not_answered_leaves_nothing(nc: Client, unique: Unique) -> None:
    nc.subscribe(subject := unique("silent"))
    nc.flush()
    nc.request("$JS.API.INFO", timeout=5)
    with pytest.raises(errors.RequestTimeoutError, match=r"within 0\.05 s"):
        nc.request(subject, timeout=0.05)
    current().call(lambda: None)
    assert open_requests(nc) == 0


def test_what_a_socket_takes_in_part_is_sent_whole_and_in_order(
    nc: Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its buffer is nearly full."""
    nc.subscribe(subject := unique("svc"), callback=lambda message: message.respond(message.data))
    nc.request(subject, b"", timeout=5)
    session = nc._inner.publishing.link.present
    assert session is not None
    transport: Any = session._transport
    sock = transport._socket
    sent: list[int] = []

    class Narrow:
        def send(self, data: bytes) -> int:
            sent.append(sock.send(data[:5]))
            return sent[-1]

    monkeypatch.setattr(transport, "_socket", Narrow())
    for number in range(50):
        assert nc.request(subject, b"%d" % number, timeout=5).data == b"%d" % number
        if number % 3 == 0:
            nc.publish(unique("nobody"), b"x")
    assert len(sent) > 10

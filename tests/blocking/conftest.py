"""A blocking connection to the shared server, and what it asks of the loop's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.blocking.eventually import eventually
from tests.conftest import Unique

from jetspark.blocking import Client, JetStream, connect
from jetspark.blocking.loop_thread import LoopThread
from jetspark.server import NatsServer


@pytest.fixture
def nc(shared_server: NatsServer) -> Iterator[Client]:
    with connect(shared_server.url) as client:
        yield client


@pytest.fixture
def js(nc: Client) -> JetStream:
    return nc.jetstream()


@pytest.fixture
def stream(js: JetStream, unique: Unique) -> Iterator[str]:
    """A stream in memory that listens to "<its name>.>"."""
    name = unique("S")
    js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    yield name
    js.delete_stream(name)


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Do the work once in each of so many threads, and raise what one of them raises."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def open_requests(nc: Client) -> int:
    """Entries that are left in the request table."""
    return len(nc._inner.requests)


def stalled(nc: Client) -> bool:
    """Whether neither the network nor the buffer before it takes more of what is published."""
    return nc._buffer.crowded and nc._inner.publishing.link.outbox._paused


def callback_ends(name: str) -> None:
    """Returns when the thread that runs the callback of this source has ended."""
    eventually(lambda: all(thread.name != f"jetspark {name}" for thread in threading.enumerate()))


NoteCalls = Callable[[str], list[object]]


@pytest.fixture
def note_calls(monkeypatch: pytest.MonkeyPatch) -> NoteCalls:
    """`note_calls("post")`: the calls of that method of the loop's thread from now on, by us."""

    def note(method: str) -> list[object]:
        calls: list[object] = []
        caller, call = threading.current_thread(), getattr(LoopThread, method)

        def noted(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is caller:
                calls.append(args)
            return call(*args, **kwargs)

        monkeypatch.setattr(LoopThread, method, noted)
        return calls

    return note

"""A blocking connection to the shared server, and what it asks of the loop's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
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

"""The examples in the docstrings of the client run, asyncio ones and blocking ones.

Each runs in a namespace of its own, with what a reader has by then: `nc`, `js`, and the streams
ORDERS (orders.>) and HITS (counters), the bucket "settings" and the object store "files". One that
never ends (it iterates, or waits for the end of a service) is stopped when it has printed what it
promises.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.pages.page import prints_what_it_promises
from tests.pages.prompt import Prompt

import jetspark
import jetspark.blocking
from jetspark.connection.pool import PoolServer
from jetspark.jetstream import JetStreamContext
from jetspark.registry.service import serve_registry
from jetspark.server import NatsServer

MODULES = (
    *("", ".jetstream", ".kv", ".objects", ".services", ".groups", ".dead_letters", ".identity"),
    *(".registry", ".system"),
)
CORE = {
    *("jetspark.connect", "jetspark.Client.publish", "jetspark.jetstream.PullConsumer.fetch"),
    *("jetspark.blocking.connect", "jetspark.blocking.kv.Bucket.put"),
}
_EXAMPLE = re.compile(r"^Example:\n    ```python\n(.*?)^    ```\Z", re.MULTILINE | re.DOTALL)
_GOES_ON = re.compile(r"\bfor \w+ in|wait_stopped|\.wait\(")
_WITHIN = 30.0  # seconds
_SEEMS_ENDLESS = 0.25  # seconds
_CONFIG = """
accounts {
  APP: { jetstream: enabled, users: [ { user: app, password: app } ] }
  SYS: { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
no_auth_user: app
"""


@dataclass(frozen=True)
class Example:
    name: str
    code: str

    @property
    def is_blocking(self) -> bool:
        return self.name.startswith("jetspark.blocking")

    @property
    def user(self) -> str:
        return "sys" if ".system" in self.name or ".System" in self.name else "app"


def documented() -> Iterator[tuple[str, Any]]:
    """Public classes and functions of the client, and what the classes have, by their names."""
    for package in ("jetspark", "jetspark.blocking"):
        for module_name in MODULES:
            name = f"{package}{module_name}"
            module = import_module(name)
            for key in getattr(module, "__all__", None) or vars(module):
                value = getattr(module, key)
                if key[0] == "_" or not getattr(value, "__module__", "").startswith("jetspark."):
                    continue
                yield f"{name}.{key}", value
                if inspect.isclass(value):
                    for member in dir(value):
                        if not member.startswith("_"):
                            yield f"{name}.{key}.{member}", getattr(value, member)


def examples() -> list[Example]:
    """Each once: what a class inherits is run with its first heir."""
    found: dict[tuple[str, bool], Example] = {}
    for name, value in documented():
        text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
        if not name.startswith("jetspark.errors") and (match := _EXAMPLE.search(text)):
            example = Example(name, textwrap.dedent(match[1]))
            found.setdefault((example.code, example.is_blocking), example)
        else:
            assert "Example:\n" not in text, f"{name}: the form of the example"
    return list(found.values())


EXAMPLES = examples()


def does_something(cls: type) -> bool:
    """Not a plain record, an error, or the part of a larger class."""
    plain = (BaseException, msgspec.Struct, Enum, tuple, dict)
    is_part = cls.__name__.endswith(("Calls", "Status")) or cls in (JetStreamContext, PoolServer)
    is_plain = issubclass(cls, plain) or is_dataclass(cls) or getattr(cls, "_is_protocol", False)
    return cls.__module__.startswith("jetspark.") and not is_part and not is_plain


def test_every_class_that_does_something_has_an_example() -> None:
    without = {
        name
        for name, value in documented()
        if inspect.isclass(value)
        and does_something(value)
        and not _EXAMPLE.search(inspect.cleandoc(value.__doc__ or ""))
    }
    assert without == set()
    assert len(EXAMPLES) > 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    config = tmp_path_factory.mktemp("examples") / "server.conf"
    config.write_text(_CONFIG)
    with NatsServer(config=config, port=0, jetstream=True) as server, ExitStack() as exit_stack:
        exit_stack.callback(_serve_registry(server.url))
        yield server


def _serve_registry(url: str) -> Callable[[], None]:
    """A registry in a thread of its own; returns what ends it."""
    ready, ended = threading.Event(), threading.Event()

    async def serve() -> None:
        async with (
            jetspark.connect(url) as nc,
            await serve_registry(nc, nc.jetstream(), bucket="schemas"),
        ):
            ready.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(_WITHIN)

    def end() -> None:
        ended.set()
        thread.join(_WITHIN)

    return end


@pytest.fixture
def url(server: NatsServer) -> Iterator[str]:
    """The server's URL, after the streams of the examples were made."""
    with jetspark.blocking.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(
            name="ORDERS",
            subjects="orders.>",
            storage="memory",
            allow_atomic=True,
            allow_batched=True,
            allow_direct=True,
            allow_msg_schedules=True,
            allow_msg_ttl=True,
        )
        for subject, text in (("eu", b"1 apple"), ("us", b"2 pears"), ("eu", b"3 plums")):
            js.publish(f"orders.{subject}", text)
        js.create_stream(name="HITS", subjects="hits.>", storage="memory", allow_msg_counter=True)
        js.create_bucket("settings", storage="memory").put("colour", b"red")
        js.create_object_store("files", storage="memory").put("greeting.txt", b"hello")
        yield server.url
        for name in js.stream_names().all():
            if name != "KV_schemas":
                js.delete_stream(name)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(one, id=one.name, marks=() if one.name in CORE else pytest.mark.full)
        for one in EXAMPLES
    ],
)
def test_it_runs(
    example: Example, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # the prompt replaces it
    monkeypatch.setattr(sys, "displayhook", lambda value: None)
    prompt = Prompt()
    prompt.begin()
    prompt.names["jetspark"] = jetspark
    monkeypatch.setenv("NATS_URL", url)
    answer = (_run_blocking if example.is_blocking else _run_asyncio)(example, prompt, url)
    assert answer["failed"] is None, f"{example.code}{answer['printed']}{answer['failed']}"
    assert prints_what_it_promises(example.code, answer["printed"] or ""), answer["printed"]


def _run_asyncio(example: Example, prompt: Prompt, url: str) -> dict[str, str | None]:
    async def run() -> dict[str, str | None]:
        async with jetspark.connect(url, user=example.user, password=example.user) as nc:
            prompt.names |= {"nc": nc, "js": nc.jetstream()}
            task = asyncio.create_task(prompt.type_async(_at(example.code, url)))
            deadline = time.monotonic() + _WITHIN
            endless_after = time.monotonic() + _SEEMS_ENDLESS
            while not task.done() and time.monotonic() < deadline:
                await asyncio.wait([task], timeout=0.02)
                if time.monotonic() > endless_after and _may_stop(example, prompt):
                    printed = prompt.printed.getvalue()
                    task.cancel()
                    await task
                    return {"printed": printed, "failed": None}
            task.cancel()
            return await task

    return asyncio.run(run())


def _run_blocking(example: Example, prompt: Prompt, url: str) -> dict[str, str | None]:
    answers: list[dict[str, str | None]] = []
    nc = jetspark.blocking.connect(url, user=example.user, password=example.user)
    with nc:
        prompt.names |= {"nc": nc, "js": nc.jetstream()}
        code = _at(example.code, url)
        thread = threading.Thread(target=lambda: answers.append(prompt.type(code)), daemon=True)
        thread.start()
        deadline = time.monotonic() + _WITHIN
        endless_after = time.monotonic() + _SEEMS_ENDLESS
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.02)
            if time.monotonic() > endless_after and _may_stop(example, prompt):
                printed = prompt.printed.getvalue()
                nc.close()
                thread.join(_WITHIN)
                assert not thread.is_alive()
                return {"printed": printed, "failed": None}
    thread.join(_WITHIN)
    assert answers, f"no end within {_WITHIN:g} s: {prompt.printed.getvalue()}"
    return answers[0]


def _at(code: str, url: str) -> str:
    return code.replace("nats://127.0.0.1:4222", url)


def _may_stop(example: Example, prompt: Prompt) -> bool:
    """It goes on for ever, and has printed what it promises."""
    printed = prompt.printed.getvalue()
    return bool(_GOES_ON.search(example.code)) and prints_what_it_promises(example.code, printed)

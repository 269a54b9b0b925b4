"""The guides on events and permissions: their code runs, and prints what they say."""

from __future__ import annotations

import ast
import asyncio
import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jetspark.cli import app
from jetspark.errors import RequestTimeoutError
from jetspark.face import connect
from jetspark.jetstream.event_kinds import EventKind

if TYPE_CHECKING:
    from tests.conftest import MakeServer

DOCS = Path(__file__).parents[2] / "docs"
EVENTS = (DOCS / "guide-events.md").read_text("utf-8")
SECURITY = (DOCS / "guide-security.md").read_text("utf-8")
PERMISSIONS = SECURITY.split("## Permissions for JetStream")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_every_kind_is_in_the_guide() -> None:
    table = EVENTS.split("## What there is")[1].split("\n## ")[0]
    assert set(re.findall(r"`([a-z]+(?:_[a-z]+)+|nak|terminated)`", table)) - {
        "sample_freq"
    } >= set(EventKind)


@pytest.mark.parametrize("number", [0, 1])
async def test_watching(make_server: MakeServer, number: int, capsys: Any) -> None:
    block = blocks(EVENTS, "python")[number]
    code = compile(block, "guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with connect(make_server().url) as nc, asyncio.timeout(30):
        js = nc.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.*"], storage="memory")
        await js.create_stream(name="DEAD", subjects=["dead.*"], storage="memory")
        await js.publish("orders.eu", b"42")
        worker = await js.create_consumer(
            "ORDERS", durable_name="worker", max_deliver=1, ack_wait=timedelta(milliseconds=50)
        )
        guide = asyncio.ensure_future(eval(code, {"js": js}))
        await nc.flush()  # the guide's first step has subscribed by then
        dead = nc.subscribe("dead.orders")
        seen = js.events(kinds=["max_deliver"])
        await worker.fetch(1, timeout=5)
        while seen.pending == 0:  # the server tells when it looks for something to deliver
            with suppress(RequestTimeoutError):
                await worker.fetch(1, timeout=0.1)
        if number == 1:
            assert (await dead.next(30)).data == b"42"
        guide.cancel()
        await asyncio.wait({guide})
    assert capsys.readouterr().out == ("ORDERS worker 1\n" if number == 0 else "")


def test_the_command_prints_what_the_guide_shows(capsys: Any) -> None:
    command, _, shown = blocks(PERMISSIONS, "console")[0].partition("\n")
    assert app.run(command.removeprefix("$ jetspark ").split()) == app.DONE
    assert capsys.readouterr().out == shown


def test_roles_from_python(capsys: Any) -> None:
    exec(blocks(PERMISSIONS, "python")[0], {})
    printed = capsys.readouterr().out
    assert '"$JS.hub.API.CONSUMER.CREATE.ORDERS.worker"' in printed
    assert '"invoices.>"' in printed
    assert '"_INBOX_worker.>"' in printed


def test_the_guide_names_every_role(capsys: Any) -> None:
    assert app.run(["acl"]) == app.DONE
    roles = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    table = PERMISSIONS.split("| role |")[1].split("\n\n")[0]
    assert {
        word
        for line in table.splitlines()[2:]
        for word in re.findall(r"`([a-z-]+)`", line.split("|")[1])
    } == roles

"""The code of docs/guide-speed.md runs, and prints what the guide says."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Connect

from jetspark.server import NatsServer

TEXT = (Path(__file__).parents[2] / "docs" / "guide-speed.md").read_text("utf-8")
PIECES = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(PIECES)))
async def test_the_guide_does_what_it_says(
    number: int, nats_server: NatsServer, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream()
    await js.create_stream(name="ORDERS", subjects=["orders.*"], storage="memory")
    names: dict[str, Any] = {"asyncio": asyncio}
    code = PIECES[number]
    exec(f"async def piece(nc, js):\n{textwrap.indent(code, '    ')}", names)
    capsys.readouterr()
    await asyncio.wait_for(names["piece"](nc, js), 60)
    said = capsys.readouterr().out.splitlines()
    wanted = re.findall(r"print\(.*\)(?:  # (.*))?$", code, re.MULTILINE)
    assert len(said) == len(wanted) > 0
    for line, promise in zip(said, wanted, strict=True):
        assert line == promise or not promise
    if number == 0:
        assert re.fullmatch(r"[\d,]+ messages/s, this process \d+% busy", said[0])
        assert (await js.stream_info("ORDERS")).state.messages == 20_000


def test_the_first_piece_is_the_program_that_measures() -> None:
    assert "process_time" in PIECES[0]
    assert len(PIECES) == 3

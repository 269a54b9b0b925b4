"""The code of docs/guide-client.md runs, and prints what the guide says."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Connect
from tests.conftest import MakeServer

import jetspark

TEXT = (Path(__file__).parents[2] / "docs" / "guide-client.md").read_text("utf-8")
BLOCKS = re.findall(r"^## ([^\n]+)$|^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
PIECES: list[tuple[str, str]] = []
for heading, code in BLOCKS:
    if heading:
        section = heading
    else:
        PIECES.append((f"{section} {len(PIECES)}", code))


@pytest.mark.parametrize(("name", "code"), PIECES, ids=[name for name, _ in PIECES])
async def test_the_guide_does_what_it_says(
    name: str,
    code: str,
    make_server: MakeServer,
    connect: Connect,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = make_server()
    names: dict[str, Any] = {"asyncio": asyncio, "jetspark": jetspark}
    body = code.replace("nats://127.0.0.1:4222", server.url)
    exec(f"async def piece(nc):\n{textwrap.indent(body, '    ')}", names)
    capsys.readouterr()
    await asyncio.wait_for(names["piece"](await connect(server.url)), 30)
    wanted = re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.split() == " ".join(wanted).split()


def test_every_print_says_what_it_prints() -> None:
    codes = "".join(code for _, code in PIECES)
    assert len(PIECES) >= 9
    assert codes.count("print(") == len(re.findall(r"print\(.*\)  # ", codes))

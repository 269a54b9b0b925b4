"""The code of docs/guide-objects.md runs, and prints what the guide says."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jetspark import connect

if TYPE_CHECKING:
    from tests.conftest import MakeServer

TEXT = (Path(__file__).parents[2] / "docs" / "guide-objects.md").read_text("utf-8")
PIECES = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", TEXT, re.M | re.S)


@pytest.mark.parametrize(("name", "code"), PIECES, ids=[name for name, _ in PIECES])
async def test_the_guide_does_what_it_says(
    name: str,
    code: str,
    make_server: MakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(f"async def piece(js):\n{textwrap.indent(code, '    ')}", names)
    async with connect(make_server().url) as nc:
        await asyncio.wait_for(names["piece"](nc.jetstream()), 30)
    wanted = re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == wanted
    assert len(wanted) == code.count("print(") > 0

"""The code of docs/guide-kv.md runs, and prints what the guide says."""

from __future__ import annotations

import asyncio
import re
import textwrap
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jetspark import connect
from jetspark.errors import WrongLastSequenceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeServer

TEXT = (Path(__file__).parents[2] / "docs" / "guide-kv.md").read_text("utf-8")
PIECES = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", TEXT, re.M | re.S)


@pytest.mark.parametrize(("name", "code"), PIECES, ids=[name for name, _ in PIECES])
async def test_the_guide_does_what_it_says(
    name: str,
    code: str,
    make_server: MakeServer,
    needs_server: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "limit_marker_ttl" in code:
        needs_server("2.11")
    if "Origin" in code:
        needs_server("2.10")
    names: dict[str, Any] = {
        "timedelta": timedelta,
        "WrongLastSequenceError": WrongLastSequenceError,
    }
    exec(f"async def piece(js):\n{textwrap.indent(code, '    ')}", names)
    async with connect(make_server().url) as nc:
        await asyncio.wait_for(names["piece"](nc.jetstream()), 30)
    printed = capsys.readouterr().out.splitlines()
    wanted = re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert [line for line in printed if line in wanted] == wanted
    others = [line for line in printed if line not in wanted]
    if name == "Watching":
        assert others == ["apples b'1.20'", "apples b'1.30'"]
    elif name == "Keys, history, filters":
        assert others == ["eu.apples", "eu.pears"]
    else:
        assert others == []


def test_every_section_with_code_is_run() -> None:
    assert len(PIECES) == TEXT.count("```python")

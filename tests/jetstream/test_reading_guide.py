"""The code of the sections about reading of docs/guide-jetstream.md runs, and does what it says."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspark.face import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeServer

GUIDE = (Path(__file__).parents[2] / "docs" / "guide-jetstream.md").read_text("utf-8")
HEADINGS = ("Ordered reading", "Reading without a consumer", "Push consumers")
BLOCKS = [
    block
    for heading in HEADINGS
    for block in re.findall(
        r"```python\n(.*?)```", GUIDE.split(f"## {heading}")[1].split("\n## ")[0], re.DOTALL
    )
]


async def run(block: str, names: dict[str, Any]) -> None:
    code = compile(block, "guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if result is not None:
        await result


async def test_the_guide_does_what_it_says(
    make_server: MakeServer, needs_server: Callable[[str], None], capsys: Any
) -> None:
    needs_server("2.11")
    async with connect(make_server().url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.*"])
        for subject in ("eu", "us", "eu"):
            await js.publish(f"orders.{subject}", b"42")
        names: dict[str, Any] = {"js": js, "nc": nc, "timedelta": timedelta}
        printed = []
        for block in BLOCKS:
            await run(block, names)
            printed.append(capsys.readouterr().out.splitlines())
    ordered, again, single, many, pushed = printed
    assert ordered == ["1 b'42'", "3 b'42'"]
    assert names["first"].seq == 2
    assert re.fullmatch(r"\w+ 0 None", again[0])
    assert (single, pushed) == ([], [])
    assert many == ["1 b'42'", "3 b'42'", "orders.us 2", "orders.eu 3"]
    assert names["msg"].is_acked

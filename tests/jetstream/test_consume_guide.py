"""The code of the section "Consuming" of docs/guide-jetstream.md runs, and does what it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.jetstream.eventually import eventually

from jetspark.face import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeServer

GUIDE = (Path(__file__).parents[2] / "docs" / "guide-jetstream.md").read_text("utf-8")
SECTION = GUIDE.split("## Consuming")[1].split("\n## ")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)


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
        names: dict[str, Any] = {"js": js}
        for block in BLOCKS:
            for _ in range(2):
                await js.publish("orders.eu", b"42")
            await run(block, names)

        async def all_acknowledged() -> bool:
            return (await names["worker"].info()).num_ack_pending == 0  # type: ignore[no-any-return]

        await eventually(all_acknowledged)
    assert capsys.readouterr().out == "1 b'42'\n2 b'42'\n"
    assert not names["messages"].active
    assert names["batch"] == []
    assert names["msg"].data == b"42"

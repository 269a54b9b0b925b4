"""The code of the section "Publishing" of docs/guide-jetstream.md runs, and does what it says."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspark.face import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeServer

GUIDE = (Path(__file__).parents[2] / "docs" / "guide-jetstream.md").read_text("utf-8")
SECTION = GUIDE.split("## Publishing")[1].split("\n## ")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)


async def run(block: str, names: dict[str, Any]) -> None:
    code = compile(block, "guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, names)


async def test_the_guide_does_what_it_says(
    make_server: MakeServer, needs_server: Callable[[str], None], capsys: Any
) -> None:
    needs_server("2.14")
    async with connect(make_server().url) as nc:
        js = nc.jetstream()
        for name, subjects, options in (
            ("ORDERS", ["orders.*", "stock.*"], {"allow_atomic": True, "allow_batched": True}),
            ("HITS", ["hits.*"], {"allow_msg_counter": True}),
            (
                "PLANS",
                ["plans.*", "reminders", "reports", "sampled", "sensor"],
                {"allow_msg_schedules": True},
            ),
        ):
            await js.create_stream(name=name, subjects=subjects, **options)
        names = {"js": js, "orders": [b"1", b"2"], "UTC": UTC}
        names |= {"datetime": datetime, "timedelta": timedelta}
        publish, window, ingest, atomic, counter, schedules = BLOCKS
        for block in (publish, window, ingest):
            await run(block, names)
        for subject in ("orders.eu", "stock.apples"):
            await js.publish(subject)
        for block in (atomic, counter, schedules):
            await run(block, names)
        plans = (await js.stream_info("PLANS")).state
    assert capsys.readouterr().out.split("\n") == ["ORDERS 1 False", "2 5", "9 2", "-2 -3 {}", ""]
    assert plans.messages == 2

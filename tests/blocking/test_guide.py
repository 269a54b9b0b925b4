"""The code of docs/guide-blocking.md runs, and prints what the guide says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jetspark.blocking import connect
from jetspark.server import NatsServer

TEXT = (Path(__file__).parents[2] / "docs" / "guide-blocking.md").read_text("utf-8")
PIECES = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(PIECES)))
def test_the_guide_does_what_it_says(
    number: int, nats_server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    code = PIECES[number]
    with connect(nats_server.url) as nc:
        capsys.readouterr()
        exec(code.replace("nats://127.0.0.1:4222", nats_server.url), {"nc": nc})
    wanted = re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert len(wanted) == code.count("print(") > 0
    assert capsys.readouterr().out == "".join(f"{line}\n" for line in wanted)

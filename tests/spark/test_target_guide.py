"""The streams that docs/guide-spark-writing.md makes are what the guarantees need."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.conftest import MakeServer
from tests.support.streams import Admin

from jetspark.spark.stream_sink.options import parse_sink_options
from jetspark.spark.stream_sink.target import inspect_target, prepare

PAGE = Path(__file__).parents[2] / "docs" / "guide-spark-writing.md"
SECTION = PAGE.read_text("utf-8").partition("## The stream to write to")[2].partition("\n## ")[0]
PREPARED = {"guarantee": "exactly-once", "prepareStream": "true", "transactionId": "t"}


def test_what_the_page_makes_lacks_nothing(
    make_server: MakeServer, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.12")
    server = make_server()
    exactly = {"servers": server.url, "stream": "TOTALS", "guarantee": "exactly-once"}
    simple, whole = re.findall(r"^```python\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    [document] = re.findall(r"^```json\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    configs = []
    with Admin(server.url) as admin:
        # The way over prepareStream.
        code = simple.replace("nats://127.0.0.1:4222", server.url)
        exec(code)
        prepare(parse_sink_options(exactly | PREPARED))
        configs.append(admin.api.config("TOTALS"))
        # In Python, over the simple one.
        admin.call("STREAM.DELETE.TOTALS")
        names: dict[str, object] = {}
        exec(code + whole.replace("nats://127.0.0.1:4222", server.url), names)
        inspect_target(parse_sink_options(exactly | {"transactionId": "t"}))
        configs.append(admin.api.config("TOTALS"))
        # From the file.
        admin.call("STREAM.DELETE.TOTALS")
        admin.call("STREAM.CREATE.TOTALS", json.loads(document))
        inspect_target(parse_sink_options(exactly | {"transactionId": "t"}))
        configs.append(admin.api.config("TOTALS"))
    assert configs[0] == configs[1] == configs[2]

"""Lists of a server that counts wrong."""

from __future__ import annotations

from typing import Any, cast

from jetspark.jetstream.api import Paged
from jetspark.wire import js_api


class Repeating:
    """Answers each request for a page with the same one."""

    def __init__(self) -> None:
        self.asked = 0

    async def call(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.asked += 1
        assert self.asked < 10
        return {"streams": ["A", "B"], "total": 10**30}


async def test_the_same_page_again_ends_a_list() -> None:
    server = Repeating()
    names = Paged(cast("Any", server), js_api.STREAM_NAMES, "streams", str, {})
    assert [name async for name in names] == ["A", "B"]
    assert server.asked == 2

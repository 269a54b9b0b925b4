"""Keys, history, and the removal of old delete markers."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.kv.conftest import ALL, HISTORY, shown

from jetspark.errors import BadNameError, BadTimeoutError, ConnectionClosedError
from jetspark.full_client import connect
from jetspark.jetstream import watching
from jetspark.kv import watch as watch_module

if TYPE_CHECKING:
    from jetspark.kv import Bucket
    from jetspark.server import NatsServer


async def test_keys_are_those_with_a_value(filled: Bucket) -> None:
    assert await filled.keys().all() == ["b", "a.1"]
    assert [key async for key in filled.keys("a.*")] == ["a.1"]
    assert await filled.keys("nobody.>").all() == []
    with pytest.raises(BadNameError):
        filled.keys("a b")


async def test_history_of_a_key_and_of_many(filled: Bucket) -> None:
    assert shown(await filled.history("a.1").all()) == [("a.1", b"1", 1), ("a.1", b"4", 4)]
    assert shown(await filled.history("a.*").all()) == [*HISTORY[:2], *ALL[1:]]
    entries = await filled.history().all()
    assert [entry.delta for entry in entries] == [4, 3, 2, 1, 0]
    assert await filled.history("nobody").all() == []


async def test_purge_deletes_removes_old_markers(filled: Bucket) -> None:
    await filled.put("c", b"")
    await filled.purge("c")
    assert await filled.purge_deletes() == 0
    assert await filled.purge_deletes(older_than=math.inf) == 0
    with pytest.raises(BadTimeoutError):
        await filled.purge_deletes(older_than=math.nan)
    # Young markers stay, what was before them goes.
    assert shown(await filled.history("a.2").all()) == [("a.2", "DEL")]
    assert await filled.purge_deletes("c", older_than=timedelta(0)) == 1
    assert await filled.purge_deletes(older_than=timedelta(0)) == 1
    assert shown(await filled.history().all()) == [("a.1", b"1", 1), *ALL[:2]]


@pytest.mark.parametrize("end", ["close", "drain"])
@pytest.mark.parametrize("call", ["keys", "history", "watch"])
async def test_a_listing_that_the_client_ends_early_raises(
    shared_server: NatsServer, filled: Bucket, monkeypatch: pytest.MonkeyPatch, call: str, end: str
) -> None:
    monkeypatch.setattr(watching, "LOT", 0)
    monkeypatch.setattr(watch_module, "PULL_AHEAD", 1)
    async with connect(shared_server.url) as nc:
        bucket = await nc.jetstream().bucket(filled.name)
        entries = aiter(getattr(bucket, call)())
        assert await anext(entries)
        await getattr(nc, end)()
        with pytest.raises(ConnectionClosedError, match="before all entries came"):
            async for entry in entries:
                assert entry is not None

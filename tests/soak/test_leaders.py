"""The short version; `python -m tests.soak.leaders all` is the long one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.soak.leaders import run
from tests.support.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, name="L") as three:
        yield three


@pytest.mark.server
@pytest.mark.parametrize(("fault", "identified"), [("stepdown", False), ("killed", True)])
async def test_a_new_leader_loses_nothing_that_could_be_kept(
    cluster: Cluster, fault: str, *, identified: bool
) -> None:
    running = run(cluster, fault, messages=20_000, identified=identified, away=1.0)
    figures = await asyncio.wait_for(running, 100)
    assert figures.sent == 20_000
    assert figures.acked > 10_000

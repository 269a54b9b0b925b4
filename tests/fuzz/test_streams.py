"""The short version; `python -m tests.fuzz.streams` is the long one."""

from __future__ import annotations

import asyncio

from tests.fuzz.streams import fuzz_client, fuzz_parser


def test_mutated_streams_are_events_or_a_typed_error() -> None:
    ends = fuzz_parser(10_000, seed=1)
    assert ends["refused"] > 1000
    assert ends["accepted"] > 1000


async def test_a_client_fed_with_mutated_streams_connects_or_raises_and_always_ends() -> None:
    ends = await asyncio.wait_for(fuzz_client(300, seed=2), 60)
    assert ends.total() == 300
    assert ends["connected"] > 30
    assert len(ends) > 3

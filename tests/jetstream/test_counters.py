"""Counters (ADR-49)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.conftest import MakeStream, NeedsServer
from tests.jetstream.conftest import Ordinary, ServerIs
from tests.jetstream.eventually import eventually

from jetspark import errors
from jetspark.full_client import Client, JetStream
from jetspark.jetstream import Counter


@pytest.fixture(autouse=True)
def _counters(needs_server: NeedsServer) -> None:
    needs_server("2.12")


@pytest.fixture
async def counting(make_stream: MakeStream) -> str:
    """A stream of counters."""
    return await make_stream(allow_msg_counter=True, allow_direct=True)


async def test_a_counter_goes_up_and_down(js: JetStream, counting: str) -> None:
    hits = f"{counting}.hits"
    with pytest.raises(errors.MessageNotFoundError):
        await js.stream(counting).get_counter(hits)
    assert [await js.increment(hits, by) for by in (1, 10, -4, 0)] == [1, 11, 7, 7]
    assert await js.increment(hits) == 8
    assert await js.stream(counting).get_counter(hits) == Counter(hits, 8, 1, {}, 5)
    for _ in range(2):  # the same id is counted once
        assert await js.increment(hits, 5, headers={"K": "1"}, msg_id="m") == 13
    assert await js.increment(hits, 0) == 13
    huge = 7 * 10**400
    assert await js.increment(f"{counting}.a", huge) == huge
    assert await js.increment(f"{counting}.a", -(2**64)) == huge - 2**64
    assert (await js.stream(counting).get_counter(f"{counting}.a")).value == huge - 2**64


async def test_many_at_once_and_their_totals(js: JetStream, counting: str) -> None:
    totals = await asyncio.gather(*(js.increment(f"{counting}.{n % 3}") for n in range(30)))
    assert sorted(totals) == [n // 3 for n in range(3, 33)]
    counters = await js.stream(counting).get_counters(f"{counting}.*").all()
    assert {one.subject: one.value for one in counters} == {f"{counting}.{n}": 10 for n in range(3)}


async def test_sources_contribute(js: JetStream, counting: str, make_stream: MakeStream) -> None:
    transform = {"src": f"{counting}.*", "dest": f"{counting}_TOTAL.all"}
    total = await make_stream(
        subjects=None,
        allow_msg_counter=True,
        allow_direct=True,
        sources=[{"name": counting, "subject_transforms": [transform]}],
    )
    await js.increment(f"{counting}.eu", 3)
    await js.increment(f"{counting}.us", 4)

    async def is_there() -> bool:
        with suppress(errors.MessageNotFoundError):
            return (await js.stream(total).get_counter(transform["dest"])).value == 7
        return False

    await eventually(is_there)
    counter = await js.stream(total).get_counter(transform["dest"])
    assert counter.sources == {counting: {f"{counting}.eu": 3, f"{counting}.us": 4}}


async def test_counter_on_a_stream_without_counters_is_refused(js: JetStream, stream: str) -> None:
    with pytest.raises(errors.NotEnabledOnStreamError) as refused:
        await js.increment(f"{stream}.a")
    assert refused.value.option == "allow_msg_counter"
    for data, headers in ((b"x", None), (b"{}", {"Nats-Msg-Id": "1"}), (b'{"val":"x"}', None)):
        await js.publish(f"{stream}.a", data, headers=headers)
        with pytest.raises(errors.JetStreamError, match="is not a counter"):
            await js.stream(stream).get_counter(f"{stream}.a")


async def test_an_ordinary_increment_raises(js: JetStream, ordinary: Ordinary) -> None:
    with pytest.raises(errors.JetStreamError, match="'S' does not count"):
        await js.increment(ordinary.subject)


async def test_mistakes_are_found_before_anything_is_sent(
    js: JetStream, nc: Client, server_is: ServerIs
) -> None:
    before = nc.stats.out_msgs
    for wrong in (True, 1.0, 1.5, "1", 10**4500):
        with pytest.raises(errors.ConfigError, match=r"^by "):
            await js.increment("a", wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError):
        await js.stream("S").get_counter("a.*")
    server_is("2.11.11")
    with pytest.raises(errors.UnsupportedByServerError):
        await js.increment("a")
    assert nc.stats.out_msgs == before

"""Counters (ADR-49)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.jetstream.eventually import eventually

from jetspark.errors import (
    ConfigError,
    JetStreamError,
    MessageNotFoundError,
    NotEnabledOnStreamError,
    UnsupportedByServerError,
)
from jetspark.full_client import JetStream
from jetspark.jetstream import Counter
from jetspark.wire.documents import ServerInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from jetspark.client.messages import Message
    from jetspark.full_client import Client


@pytest.fixture(autouse=True)
def _counters(needs_server: Callable[[str], None]) -> None:
    needs_server("2.12")


@pytest.fixture
async def counting(js: JetStream, unique: Callable[[str], str]) -> AsyncIterator[str]:
    """A stream of counters."""
    name = unique("COUNT")
    await js.create_stream(
        name=name,
        subjects=[f"{name}.>"],
        storage="memory",
        allow_msg_counter=True,
        allow_direct=True,
    )
    yield name
    await js.delete_stream(name)


async def test_a_counter_goes_up_and_down(js: JetStream, counting: str) -> None:
    hits = f"{counting}.hits"
    assert [await js.increment(hits, by) for by in (1, 10, -4, 0)] == [1, 11, 7, 7]
    assert await js.increment(hits) == 8
    assert await js.get_counter(counting, hits) == Counter(hits, 8, 1, {}, 5)


async def test_numbers_of_any_size(js: JetStream, counting: str) -> None:
    huge = 7 * 10**400
    assert await js.increment(f"{counting}.a", huge) == huge
    assert await js.increment(f"{counting}.a", -(2**64)) == huge - 2**64
    assert (await js.get_counter(counting, f"{counting}.a")).value == huge - 2**64


async def test_the_same_id_is_counted_once(js: JetStream, counting: str) -> None:
    for _ in range(2):
        assert await js.increment(f"{counting}.a", 5, headers={"K": "1"}, msg_id="m") == 5
    assert await js.increment(f"{counting}.a", 0) == 5


async def test_a_counter_without_increments_is_missing(js: JetStream, counting: str) -> None:
    with pytest.raises(MessageNotFoundError):
        await js.get_counter(counting, f"{counting}.a")


async def test_many_at_once_and_their_totals(js: JetStream, counting: str) -> None:
    totals = await asyncio.gather(*(js.increment(f"{counting}.{n % 3}") for n in range(30)))
    assert sorted(totals) == [n // 3 for n in range(3, 33)]
    counters = await js.get_counters(counting, f"{counting}.*")
    assert {one.subject: one.value for one in counters} == {f"{counting}.{n}": 10 for n in range(3)}


async def test_what_other_streams_contribute(
    js: JetStream, counting: str, unique: Callable[[str], str]
) -> None:
    total = unique("TOTAL")
    await js.create_stream(
        name=total,
        storage="memory",
        allow_msg_counter=True,
        allow_direct=True,
        sources=[
            {
                "name": counting,
                "subject_transforms": [{"src": f"{counting}.*", "dest": f"{total}.all"}],
            }
        ],
    )
    await js.increment(f"{counting}.eu", 3)
    await js.increment(f"{counting}.us", 4)

    async def is_there() -> bool:
        try:
            return (await js.get_counter(total, f"{total}.all")).value == 7
        except MessageNotFoundError:
            return False

    await eventually(is_there)
    counter = await js.get_counter(total, f"{total}.all")
    assert counter.sources == {counting: {f"{counting}.eu": 3, f"{counting}.us": 4}}
    await js.delete_stream(total)


async def test_counter_on_a_stream_without_counters_is_refused(js: JetStream, stream: str) -> None:
    with pytest.raises(NotEnabledOnStreamError) as refused:
        await js.increment(f"{stream}.a")
    assert refused.value.option == "allow_msg_counter"
    for data, headers in ((b"x", None), (b"{}", {"Nats-Msg-Id": "1"}), (b'{"val":"x"}', None)):
        await js.publish(f"{stream}.a", data, headers=headers)
        with pytest.raises(JetStreamError, match="is not a counter"):
            await js.get_counter(stream, f"{stream}.a")


async def test_increment_stored_as_an_ordinary_message_raises(
    js: JetStream, nc: Client, unique: Callable[[str], str]
) -> None:
    subject = unique("ordinary")

    async def store(msg: Message) -> None:
        await msg.respond(b'{"stream":"S","seq":5}')

    nc.subscribe(subject, callback=store)
    with pytest.raises(JetStreamError, match="'S' does not count"):
        await js.increment(subject)


async def test_mistakes_are_found_before_anything_is_sent(
    js: JetStream, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = nc.stats.out_msgs
    for wrong in (1.5, "1"):
        with pytest.raises(ConfigError):
            await js.increment("a", wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        await js.get_counter("S", "a.*")
    old = ServerInfo(server_id="x", version="2.11.11", headers=True, max_payload=1_000_000)
    monkeypatch.setattr(nc._link, "info", old)
    with pytest.raises(UnsupportedByServerError):
        await js.increment("a")
    assert nc.stats.out_msgs == before

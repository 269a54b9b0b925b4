"""Counters (ADR-49)."""

from __future__ import annotations

import json
from typing import Any

from tests.conformance.trial import (
    Table,
    Trial,
    count,
    has_messages,
    headers_of,
    last_on,
    refusal,
    stored,
    until,
)

from jetspark.errors import (
    ConfigError,
    MessageIncrDisabledError,
    MessageIncrInvalidError,
    MessageIncrMissingError,
    MessageNotFoundError,
    MirrorWithCountersError,
    StreamInvalidConfigError,
)
from jetspark.jetstream.stream import Stream

T = Table(49)
COUNTS: dict[str, Any] = {"allow_msg_counter": True}
INCREMENT = "Nats-Incr"
SOURCES = "Nats-Counter-Sources"


async def _value(s: Stream, subject: str) -> int | None:
    try:
        return (await s.get_counter(subject)).value
    except MessageNotFoundError:
        return None


async def _reaches(s: Stream, subject: str, value: int) -> None:
    async def reached() -> bool:
        return await _value(s, subject) == value

    await until(reached)


async def _refuses_increments(t: Trial, headers: Any, *, prior: bool = False) -> None:
    """An increment with these headers is refused, and changes nothing."""
    s = await t.stream(**COUNTS)
    hits = f"{s.name}.hits"
    if prior:
        await t.js.increment(hits)
    for names in headers:
        text = {name: value.format(stream=s.name) for name, value in names.items()}
        await refusal(t.js.increment(hits, headers=text), MessageIncrInvalidError)
    assert await count(s) == int(prior)


# -- configuration ---------------------------------------------------------------------------------


T.option_is_kept("CTR-101", "allow_msg_counter", 2, retention="limits")


@T.case("CTR-102", "increment", "MessageIncrDisabledError where it is off")
async def off(t: Trial) -> None:
    s = await t.stream()
    assert not (await s.info()).config.allow_msg_counter
    await refusal(t.js.increment(f"{s.name}.hits"), MessageIncrDisabledError)
    assert await count(s) == 0


@T.case(
    "CTR-103", "Stream.update(allow_msg_counter=True)", "StreamInvalidConfigError: it stays off"
)
async def turned_on(t: Trial) -> None:
    s = await t.stream()
    await refusal(s.update(**COUNTS), StreamInvalidConfigError)
    assert not (await s.info()).config.allow_msg_counter
    await refusal(t.js.increment(f"{s.name}.hits", 5), MessageIncrDisabledError)


@T.case(
    "CTR-104", "Stream.update(allow_msg_counter=False)", "StreamInvalidConfigError: it stays on"
)
async def turned_off(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    await refusal(s.update(allow_msg_counter=False), StreamInvalidConfigError)
    assert (await s.info()).config.allow_msg_counter


T.stream_is_refused(
    "CTR-105",
    "for a mirror that counts",
    COUNTS | {"mirror": True},
    error=MirrorWithCountersError,
)
T.stream_is_refused(
    "CTR-106",
    "for a retention other than limits",
    *(COUNTS | {"retention": retention} for retention in ("workqueue", "interest")),
    error=StreamInvalidConfigError,
)
T.stream_is_refused(
    "CTR-107",
    "where new messages are discarded",
    COUNTS | {"discard": "new"},
    error=StreamInvalidConfigError,
)
T.stream_is_refused(
    "CTR-108",
    "with times to live",
    COUNTS | {"allow_msg_ttl": True},
    error=StreamInvalidConfigError,
)


@T.case("CTR-109", "create_stream(sources=)", "counters may have sources")
async def with_sources(t: Trial) -> None:
    await t.sourcing(await t.stream(**COUNTS), **COUNTS)


# -- increments ------------------------------------------------------------------------------------

T.publish_is_refused(
    "CTR-201",
    "for a message without an increment",
    COUNTS,
    {},
    {"X-Other": "1"},
    error=MessageIncrMissingError,
)


@T.case("CTR-202", "increment(by)", "the new value, and what was stored")
async def positive(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    for by, value in ((1, 1), (99, 100)):
        assert await t.js.increment(f"{s.name}.hits", by) == value
        message = await last_on(s, "hits")
        assert json.loads(message.data) == {"val": str(value)}
        assert headers_of(message)[INCREMENT] == f"+{by}"
        counter = await s.get_counter(f"{s.name}.hits")
        assert (counter.value, counter.increment) == (value, by)


@T.case("CTR-203", "increment(by)", "a negative number subtracts, below zero, too")
async def negative(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    await t.js.increment(f"{s.name}.hits", 100)
    for by, value in ((-10, 90), (-100, -10)):
        assert await t.js.increment(f"{s.name}.hits", by) == value
        assert json.loads((await last_on(s, "hits")).data) == {"val": str(value)}


@T.case("CTR-204", "increment(0); publish(headers=)", "the value stays; +0 and -0 are numbers")
async def zero(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    await t.js.increment(f"{s.name}.hits", 5)
    assert await t.js.increment(f"{s.name}.hits", 0) == 5
    for text in ("+0", "-0"):
        assert (await t.js.publish(f"{s.name}.hits", headers={INCREMENT: text})).val == "5"
    await t.err_code(f"{s.name}.hits", headers={INCREMENT: "0"})  # servers may refuse it
    assert await _value(s, f"{s.name}.hits") == 5


T.publish_is_refused(
    "CTR-205",
    "for what is no increment",
    COUNTS,
    *({INCREMENT: text} for text in ("+", "-", "++1", "+1.5", "+1e3", "abc", "+ 1", "")),
)


@T.case("CTR-206", "increment(by)", "numbers of any size")
async def large(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    assert await t.js.increment(f"{s.name}.big", 2**128) == 2**128
    assert await t.js.increment(f"{s.name}.big", -(2**64)) == 2**128 - 2**64
    assert json.loads((await last_on(s, "big")).data) == {"val": str(2**128 - 2**64)}
    error = await refusal(t.js.increment(f"{s.name}.big", 10**4000), ConfigError)
    assert str(error) == "by has more than 4,000 digits."


T.publish_is_refused(
    "CTR-207",
    "where it is off",
    {},
    {INCREMENT: "+1"},
    error=MessageIncrDisabledError,
)

# -- headers that do not go with an increment ------------------------------------------------------


@T.case("CTR-301", "increment(headers=)", "MessageIncrInvalidError with a rollup")
async def with_rollup(t: Trial) -> None:
    await _refuses_increments(t, [{"Nats-Rollup": "sub"}, {"Nats-Rollup": "all"}])


@T.case("CTR-302", "increment(headers=)", "MessageIncrInvalidError with an expected sequence")
async def with_last_sequence(t: Trial) -> None:
    name = "Nats-Expected-Last-Sequence"
    await _refuses_increments(t, [{name: "1"}, {name: "0"}], prior=True)


@T.case(
    "CTR-303",
    "increment(headers=)",
    "MessageIncrInvalidError with an expected sequence of the subject",
)
async def with_last_subject_sequence(t: Trial) -> None:
    await _refuses_increments(t, [{"Nats-Expected-Last-Subject-Sequence": "1"}], prior=True)


@T.case("CTR-304", "increment(headers=)", "MessageIncrInvalidError with an expected stream")
async def with_stream(t: Trial) -> None:
    await _refuses_increments(t, [{"Nats-Expected-Stream": "{stream}"}])


@T.case("CTR-305", "increment(headers=)", "MessageIncrInvalidError with an expected message id")
async def with_last_id(t: Trial) -> None:
    await _refuses_increments(t, [{"Nats-Expected-Last-Msg-Id": "anything"}])


# -- what is stored --------------------------------------------------------------------------------


@T.case("CTR-401", "Stream.get(last_by_subject=)", "a JSON text for the value")
async def body(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    await t.js.increment(f"{s.name}.hits", 42)
    assert json.loads((await last_on(s, "hits")).data) == {"val": "42"}


@T.case("CTR-402", "increment(headers=)", "the increment and other headers are kept")
async def kept_headers(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    await t.js.increment(f"{s.name}.hits", 7, headers={"X-Trace": "abc123"})
    headers = (await last_on(s, "hits")).headers
    assert (headers[INCREMENT], headers["X-Trace"]) == ("+7", "abc123")


@T.case("CTR-403", "increment; publish(headers=)", "PubAck.val is the new value")
async def ack(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    for seq, (by, value) in enumerate((("+1", "1"), ("+1", "2"), ("-3", "-1")), 1):
        found = await t.js.publish(f"{s.name}.hits", headers={INCREMENT: by})
        assert (found.val, found.seq, found.stream) == (value, seq, s.name)


T.publish_is_refused(
    "CTR-404",
    "on every subject of the stream",
    COUNTS,
    {},
    error=MessageIncrMissingError,
)


@T.case("CTR-501", "create_stream(subject_transform=)", "counts on the subject that is stored")
async def transformed(t: Trial) -> None:
    name = t.new_name()
    transform = {"src": f"{name}.es.>", "dest": f"{name}.>"}
    s = await t.stream(name=name, subjects=[f"{name}.es.>"], subject_transform=transform, **COUNTS)
    assert await t.js.increment(f"{name}.es.hits") == 1
    assert await t.js.increment(f"{name}.es.hits") == 2
    assert (await s.get_counter(f"{name}.hits")).value == 2


# -- sources ---------------------------------------------------------------------------------------


@T.case("CTR-601", "Stream.get_counter", "the parts of its sources, and the last difference")
async def parts(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    total = await t.sourcing(s, **COUNTS)
    hits = f"{s.name}.hits"
    for by, value in ((3, 3), (4, 7)):
        await t.js.increment(hits, by)
        await _reaches(total, hits, value)
    counter = await total.get_counter(hits)
    assert (counter.value, counter.increment) == (7, 4)
    assert counter.sources == {s.name: {hits: 7}}


@T.case("CTR-602", "Stream.get_counter", "the sum is whole when messages of a source were missed")
async def missed(t: Trial) -> None:
    s = await t.stream(**COUNTS, max_msgs=1)
    total = await t.sourcing(s, **COUNTS)
    hits = f"{s.name}.hits"
    await t.js.increment(hits, 2)
    await _reaches(total, hits, 2)
    await t.js.increment(hits, 5)
    await t.js.increment(hits, 10)
    await _reaches(total, hits, 17)
    assert sum(int(headers_of(m)[INCREMENT]) for m in await stored(total)) == 17


@T.case("CTR-603", "Stream.update(sources=)", "a source added later counts with its whole value")
async def added_later(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    hits = f"{s.name}.hits"
    await t.js.increment(hits, 10)
    total = await t.stream(**COUNTS)
    await total.update(sources=[{"name": s.name}])
    await _reaches(total, hits, 10)
    assert (await total.get_counter(hits)).increment == 10


async def _sum_of_one(t: Trial) -> tuple[Stream, Stream, str]:
    """A source that has counted to 5, a stream with subjects of its own that adds it up."""
    s = await t.stream(**COUNTS)
    hits = f"{s.name}.hits"
    await t.js.increment(hits, 5)
    # The source's counter is one here that local increments change, too.
    name = t.new_name()
    transforms = [{"src": f"{s.name}.>", "dest": f"{name}.>"}]
    sources = [{"name": s.name, "subject_transforms": transforms}]
    total = await t.stream(name=name, sources=sources, **COUNTS)
    await _reaches(total, f"{name}.hits", 5)
    return s, total, hits


@T.case("CTR-604", "Stream.get_counter", "a local increment keeps the parts of the sources")
async def local_increment(t: Trial) -> None:
    s, total, _ = await _sum_of_one(t)
    before = await total.get_counter(f"{total.name}.hits")
    assert list(before.sources) == [s.name]
    assert await t.js.increment(f"{total.name}.hits") == 6
    after = await total.get_counter(f"{total.name}.hits")
    assert (after.sources, after.increment) == (before.sources, 1)
    assert list(after.sources[s.name].values()) == [5]


@T.case("CTR-605", "Stream.update(sources=None)", "the part of a removed source stays")
async def source_removed(t: Trial) -> None:
    s, total, _ = await _sum_of_one(t)
    await total.update(sources=None)
    assert await t.js.increment(f"{total.name}.hits") == 6
    counter = await total.get_counter(f"{total.name}.hits")
    assert list(counter.sources[s.name].values()) == [5]


@T.case("CTR-606", "Stream.update(sources=)", "a source added again continues where it was")
async def source_back(t: Trial) -> None:
    _, total, hits = await _sum_of_one(t)
    sources = (await total.info()).config.sources
    await total.update(sources=None)
    for _ in range(2):
        await t.js.increment(hits, 10)
    await total.update(sources=sources)
    await _reaches(total, f"{total.name}.hits", 25)


# -- copies, resets and recounts -------------------------------------------------------------------


@T.case("CTR-701", "create_stream(mirror=)", "a mirror has the messages of its source")
async def mirrored(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    m = await t.mirror(s)
    for by in (1, 2, 3):
        await t.js.increment(f"{s.name}.hits", by)
    await has_messages(m, 3)
    found = [(json.loads(x.data)["val"], headers_of(x)[INCREMENT]) for x in await stored(m)]
    assert found == [("1", "+1"), ("3", "+2"), ("6", "+3")]


@T.case("CTR-702", "create_stream(sources=)", "a stream that does not count copies the messages")
async def observed(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    d = await t.sourcing(s)
    await t.js.increment(f"{s.name}.hits", 5)
    await has_messages(d, 1)
    message = await d.get(1)
    assert json.loads(message.data) == {"val": "5"}
    assert headers_of(message)[INCREMENT] == "+5"
    assert SOURCES not in headers_of(message)


@T.case("CTR-801", "Stream.purge(filter=)", "the counter begins anew")
async def purged(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    await t.js.increment(f"{s.name}.hits", 42)
    await s.purge(filter=f"{s.name}.hits")
    await refusal(s.get_counter(f"{s.name}.hits"), MessageNotFoundError)
    assert await t.js.increment(f"{s.name}.hits") == 1


@T.case("CTR-802", "increment(-value), Stream.purge(keep=1)", "the counter continues from zero")
async def reset(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    await t.js.increment(f"{s.name}.hits", 100)
    assert await t.js.increment(f"{s.name}.hits", -100) == 0
    assert await s.purge(filter=f"{s.name}.hits", keep=1) == 1
    assert json.loads((await last_on(s, "hits")).data) == {"val": "0"}
    assert await t.js.increment(f"{s.name}.hits", 5) == 5


@T.case("CTR-901", "Stream.get_counter; Stream.get", "the increments add up to the value")
async def recount(t: Trial) -> None:
    s = await t.stream(**COUNTS)
    for by in (1, 5, -2, 10, -3):
        await t.js.increment(f"{s.name}.hits", by)
    total = sum(int(headers_of(m)[INCREMENT]) for m in await stored(s))
    assert total == (await s.get_counter(f"{s.name}.hits")).value == 11

"""Time to live of messages, and markers of what was removed (ADR-43)."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.conformance.trial import (
    Table,
    Trial,
    api_level,
    count,
    has_messages,
    headers_of,
    last_on,
    refusal,
    until,
)

from jetspark.errors import (
    ConfigError,
    MessageNotFoundError,
    MessageTTLDisabledError,
    MessageTTLInvalidError,
    StreamInvalidConfigError,
)
from jetspark.jetstream.stream import Stream

T = Table(43)
TTL: dict[str, Any] = {"allow_msg_ttl": True}
MARKED = TTL | {"subject_delete_marker_ttl": 60}
TTL_HEADER = "Nats-TTL"
REASON = "Nats-Marker-Reason"


async def _is_gone(s: Stream, seq: int) -> None:
    async def gone() -> bool:
        try:
            await s.get(seq, direct=False)
        except MessageNotFoundError:
            return True
        return False

    await until(gone)


async def _marker(s: Stream, token: str = "k") -> Any:
    """Wait for the marker of a subject."""

    async def marker() -> Any:
        message = await last_on(s, token)
        return message if message is not None and REASON in headers_of(message) else None

    return await until(marker)


def _is_a_minute(text: str) -> bool:
    return text in ("60", "60s", "1m0s", "1m")


# -- configuration ---------------------------------------------------------------------------------


T.option_is_kept("TTL-101", "allow_msg_ttl", 1)


@T.case("TTL-102", "publish(ttl=)", "MessageTTLDisabledError where it is off")
async def off(t: Trial) -> None:
    s = await t.stream()
    assert not (await s.info()).config.allow_msg_ttl
    await refusal(t.js.publish(f"{s.name}.a", ttl=60), MessageTTLDisabledError)
    assert await count(s) == 0


@T.case("TTL-103", "Stream.update(allow_msg_ttl=True)", "turns it on")
async def turned_on(t: Trial) -> None:
    s = await t.stream()
    assert (await s.update(**TTL)).config.allow_msg_ttl
    await t.js.publish(f"{s.name}.a", ttl=60)
    assert await count(s) == 1


@T.case("TTL-104", "Stream.update(allow_msg_ttl=False)", "StreamInvalidConfigError: it stays on")
async def turned_off(t: Trial) -> None:
    s = await t.stream(**TTL)
    await refusal(s.update(allow_msg_ttl=False), StreamInvalidConfigError)
    assert (await s.info()).config.allow_msg_ttl


T.stream_is_refused(
    "TTL-105",
    "for markers that live less than a second",
    TTL | {"subject_delete_marker_ttl": 0.5},
    error=StreamInvalidConfigError,
)
T.stream_is_refused(
    "TTL-106",
    "for a mirror with markers",
    {"mirror": True, "subject_delete_marker_ttl": 60},
    error=StreamInvalidConfigError,
)


@T.case("TTL-107", "create_stream(subject_delete_marker_ttl=)", "turns allow_rollup_hdrs on")
async def turns_rollup_on(t: Trial) -> None:
    assert (await (await t.stream(**MARKED)).info()).config.allow_rollup_hdrs


T.stream_is_refused(
    "TTL-108",
    "without rollups, when the request is pedantic",
    MARKED | {"allow_rollup_hdrs": False, "extra": {"pedantic": True}},
    error=StreamInvalidConfigError,
)


@T.case("TTL-109", "create_stream(deny_purge=True)", "is turned off by markers")
async def turns_deny_purge_off(t: Trial) -> None:
    s = await t.stream(**MARKED, deny_purge=True)
    assert not (await s.info()).config.deny_purge


T.stream_is_refused(
    "TTL-110",
    "where purges are denied, when the request is pedantic",
    MARKED | {"allow_rollup_hdrs": True, "deny_purge": True, "extra": {"pedantic": True}},
    error=StreamInvalidConfigError,
)


@T.case("TTL-111", "StreamInfo.config.metadata", "markers need API level 1")
async def level(t: Trial) -> None:
    s = await t.stream(**MARKED, allow_rollup_hdrs=True, deny_purge=False)
    assert api_level(await s.info()) >= 1


# -- values ----------------------------------------------------------------------------------------


@T.case("TTL-201", "publish(ttl=60)", "is stored with the message")
async def seconds(t: Trial) -> None:
    s = await t.stream(**TTL)
    assert (await t.js.publish(f"{s.name}.a", ttl=60)).seq == 1
    message = await s.get(1)
    assert headers_of(message)[TTL_HEADER] == "60"


@T.case("TTL-202", "publish(headers=)", "durations are stored as they were written")
async def durations(t: Trial) -> None:
    s = await t.stream(**TTL)
    for seq, text in enumerate(("1h", "90s", "2m30s"), 1):
        await t.js.publish(f"{s.name}.a", headers={TTL_HEADER: text})
        message = await s.get(seq)
        assert headers_of(message)[TTL_HEADER] == text


@T.case(
    "TTL-203",
    "publish(ttl=0); publish(headers=)",
    "ConfigError; MessageTTLInvalidError from the server",
)
async def zero(t: Trial) -> None:
    s = await t.stream(**TTL)
    await refusal(t.js.publish(f"{s.name}.a", ttl=0), ConfigError)
    await refusal(t.js.publish(f"{s.name}.a", headers={TTL_HEADER: "0"}), MessageTTLInvalidError)
    assert await count(s) == 0


T.publish_is_refused(
    "TTL-204",
    "for what is no duration",
    TTL,
    *({TTL_HEADER: text} for text in ("not-a-duration", "5x", "-10s")),
    error=MessageTTLInvalidError,
)


@T.case(
    "TTL-205",
    "publish(ttl=0.5); publish(headers=)",
    "ConfigError; MessageTTLInvalidError from the server",
)
async def below_a_second(t: Trial) -> None:
    s = await t.stream(**TTL)
    await refusal(t.js.publish(f"{s.name}.a", ttl=0.5), ConfigError)
    for text in ("500ms", "999ms"):
        await refusal(
            t.js.publish(f"{s.name}.a", headers={TTL_HEADER: text}), MessageTTLInvalidError
        )
    assert await count(s) == 0


T.publish_is_refused(
    "TTL-206",
    "where it is off",
    {},
    {TTL_HEADER: "60s"},
    error=MessageTTLDisabledError,
)


# -- the end of a message --------------------------------------------------------------------------


@T.case("TTL-301", "publish(ttl=), Stream.get", "MessageNotFoundError when its time is over")
async def expires(t: Trial) -> None:
    s = await t.stream(**TTL)
    (seq,) = await t.fill(s, "a", ttl=2)
    await s.get(seq)
    await _is_gone(s, seq)


@T.case("TTL-302", "publish(ttl=)", "each message has its own time")
async def each_its_own(t: Trial) -> None:
    s = await t.stream(**TTL)
    (short,) = await t.fill(s, "a", ttl=1)
    (long,) = await t.fill(s, "a", ttl=300)
    (without,) = await t.fill(s, "a")
    await _is_gone(s, short)
    await s.get(long)
    await s.get(without)


@T.case("TTL-303", "StoredMsg.time", "its time begins when it was stored")
async def from_the_stored_time(t: Trial) -> None:
    s = await t.stream(**TTL)
    (seq,) = await t.fill(s, "a", ttl=2)
    stored_at = (await s.get(seq)).time
    await _is_gone(s, seq)
    (later,) = await t.fill(s, "b")
    assert ((await s.get(later)).time - stored_at).total_seconds() >= 2


@T.case("TTL-401", 'publish(ttl="never")', "stays")
async def never(t: Trial) -> None:
    s = await t.stream(**TTL)
    (seq,) = await t.fill(s, "a", ttl="never")
    await asyncio.sleep(2)
    message = await s.get(seq)
    assert headers_of(message)[TTL_HEADER] == "never"


@T.case("TTL-402", 'publish(ttl="never")', "outlives the stream's max_age")
async def never_and_max_age(t: Trial) -> None:
    s = await t.stream(**TTL, max_age=1)
    (kept,) = await t.fill(s, "a", ttl="never")
    (removed,) = await t.fill(s, "b")
    await _is_gone(s, removed)
    await s.get(kept)


# -- markers ---------------------------------------------------------------------------------------


@T.case("TTL-501", "Stream.get(last_by_subject=)", "a marker when max_age took the last message")
async def marker_of_age(t: Trial) -> None:
    s = await t.stream(**MARKED, max_age=1)
    await t.fill(s, "k")
    marker = await _marker(s)
    assert (headers_of(marker)[REASON], marker.data) == ("MaxAge", b"")
    assert _is_a_minute(headers_of(marker)[TTL_HEADER])


@T.case("TTL-502", "Stream.get(last_by_subject=)", "no marker while the subject has a message")
async def no_marker(t: Trial) -> None:
    s = await t.stream(**MARKED, max_age=6)
    (first,) = await t.fill(s, "k")
    await asyncio.sleep(4)
    (second,) = await t.fill(s, "k")
    await _is_gone(s, first)
    assert (await last_on(s, "k")).seq == second


@T.case("TTL-503", "Stream.get(last_by_subject=)", "a marker goes when its own time is over")
async def marker_expires(t: Trial) -> None:
    s = await t.stream(**TTL, subject_delete_marker_ttl=2, max_age=1)
    await t.fill(s, "k")
    marker = await _marker(s)
    assert headers_of(marker)[TTL_HEADER] in ("2", "2s")
    await _is_gone(s, marker.seq)


@T.case("TTL-504", "publish(ttl=)", "a marker when a time to live took the last message")
async def marker_of_ttl(t: Trial) -> None:
    # A shorter time to live than the markers' would be lengthened: see TTL-506.
    s = await t.stream(**TTL, subject_delete_marker_ttl=1)
    await t.fill(s, "k", ttl=1)
    marker = await _marker(s)
    assert headers_of(marker)[REASON] == "MaxAge"
    assert headers_of(marker)[TTL_HEADER] in ("1", "1s")


@T.case("TTL-505", "Stream.get(last_by_subject=)", "no marker without subject_delete_marker_ttl")
async def markers_off(t: Trial) -> None:
    s = await t.stream(**TTL, max_age=1)
    (seq,) = await t.fill(s, "k")
    await _is_gone(s, seq)
    assert await last_on(s, "k") is None


@T.case("TTL-506", "publish(ttl=)", "is lengthened to that of the markers")
async def lengthened(t: Trial) -> None:
    s = await t.stream(**MARKED)
    (seq,) = await t.fill(s, "k", ttl=2)
    message = await s.get(seq)
    assert _is_a_minute(headers_of(message)[TTL_HEADER])


async def _a_marker_or_nothing(s: Stream, reason: str) -> None:
    """No server says yet that it places this marker; both are allowed."""
    message = await last_on(s, "k")
    if message is not None:
        assert headers_of(message)[REASON] == reason
        assert _is_a_minute(headers_of(message)[TTL_HEADER])


@T.case("TTL-701", "Stream.delete_msg", "a marker, or nothing on the subject")
async def after_delete(t: Trial) -> None:
    s = await t.stream(**MARKED)
    (seq,) = await t.fill(s, "k")
    await s.delete_msg(seq)
    await _a_marker_or_nothing(s, "Remove")


@T.case("TTL-702", "Stream.delete_msg", "no marker while the subject has a message")
async def after_delete_of_another(t: Trial) -> None:
    s = await t.stream(**MARKED)
    first, second = await t.fill(s, "kk")
    await s.delete_msg(first)
    assert (await last_on(s, "k")).seq == second


@T.case("TTL-801", "Stream.purge(filter=)", "a marker, or nothing on the subject")
async def after_purge(t: Trial) -> None:
    s = await t.stream(**MARKED)
    await t.fill(s, "kkk")
    assert await s.purge(filter=f"{s.name}.k") == 3
    await _a_marker_or_nothing(s, "Purge")


@T.case("TTL-802", "Stream.purge(keep=)", "no marker, since a message stays")
async def after_purge_of_others(t: Trial) -> None:
    s = await t.stream(**MARKED)
    *_, last = await t.fill(s, "kkk")
    assert await s.purge(filter=f"{s.name}.k", keep=1) == 2
    assert (await last_on(s, "k")).seq == last


# -- mirrors and sources ---------------------------------------------------------------------------


@T.case("TTL-901", "create_stream(mirror=)", "keeps the header, where it is off, too")
async def mirror_without(t: Trial) -> None:
    s = await t.stream(**TTL)
    m = await t.mirror(s)
    await t.fill(s, "a", ttl=1)
    await has_messages(m, 1)
    await _is_gone(s, 1)
    await asyncio.sleep(0.5)
    message = await m.get(1)
    assert headers_of(message)[TTL_HEADER] == "1"


@T.case("TTL-902", "create_stream(mirror=, allow_msg_ttl=True)", "a mirror removes messages, too")
async def mirror_with(t: Trial) -> None:
    s = await t.stream(**TTL)
    m = await t.mirror(s, **TTL)
    await t.fill(s, "a", ttl=3)
    await has_messages(m, 1)
    await _is_gone(m, 1)


T.stream_is_refused(
    "TTL-903",
    "for a mirror with markers",
    TTL | {"mirror": True, "subject_delete_marker_ttl": 60},
    error=StreamInvalidConfigError,
)


@T.case("TTL-904", "create_stream(sources=, subject_delete_marker_ttl=)", "places its own markers")
async def source_with_markers(t: Trial) -> None:
    s = await t.stream(**TTL)
    d = await t.sourcing(s, **MARKED, max_age=1)
    await t.fill(s, "k")

    async def marked() -> bool:
        try:
            message = await d.get(last_by_subject=f"{s.name}.k", direct=False)
        except MessageNotFoundError:
            return False
        return headers_of(message).get(REASON) == "MaxAge"

    await until(marked)

"""Scheduled messages (ADR-51)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from tests.conformance.trial import (
    Table,
    Trial,
    api_level,
    count,
    headers_of,
    last_on,
    refusal,
    until,
)

from jetspark.errors import (
    APIError,
    ConfigError,
    MessageSchedulesDisabledError,
    MessageSchedulesPatternInvalidError,
    MessageSchedulesRollupInvalidError,
    MessageSchedulesSchedulerInvalidError,
    MessageSchedulesSourceInvalidError,
    MessageSchedulesTargetInvalidError,
    MessageSchedulesTimeZoneInvalidError,
    MessageTTLDisabledError,
    MirrorWithMsgSchedulesError,
    SourceWithMsgSchedulesError,
    StreamInvalidConfigError,
    WrongLastSequenceError,
)
from jetspark.jetstream.stream import Stream
from jetspark.timestamps import parse_isotime

T = Table(51)
SCHEDULES: dict[str, Any] = {"allow_msg_schedules": True}
BOTH = SCHEDULES | {"allow_msg_ttl": True}
SCHEDULE = "Nats-Schedule"
TARGET = "Nats-Schedule-Target"
SOURCE = "Nats-Schedule-Source"
ZONE = "Nats-Schedule-Time-Zone"
NEXT = "Nats-Schedule-Next"
SCHEDULER = "Nats-Scheduler"
TTL = "Nats-TTL"
ROLLUP = "Nats-Rollup"
EVERY_SECOND = "* * * * * *"


async def _default(t: Trial, **options: Any) -> Stream:
    return await t.stream(**BOTH | options)


def _soon(seconds: float = 1) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def _schedule(t: Trial, s: Stream, payload: bytes = b"body", **options: Any) -> int:
    """Put a schedule on `s.`, with the target `t.`; returns its sequence."""
    options = {"target": f"{s.name}.t"} | options
    return (await t.js.schedule(f"{s.name}.s", payload, **options)).seq


async def _fired(s: Stream, times: int = 1, token: str = "t") -> list[Any]:
    """Wait until the schedule has published so many messages; returns them."""

    async def enough() -> list[Any] | None:
        counts = (await s.info(subjects_filter=f"{s.name}.{token}")).state.subjects or {}
        return [1] if counts.get(f"{s.name}.{token}", 0) >= times else None

    await until(enough, 30)
    found: list[Any] = []
    seq = 1
    while len(found) < times:
        found.append(await s.get(seq, next_by_subject=f"{s.name}.{token}", direct=False))
        seq = found[-1].seq + 1
    return found


async def _is_gone(s: Stream, token: str = "s") -> None:
    async def gone() -> bool:
        return await last_on(s, token) is None

    await until(gone)


async def _published(s: Stream, token: str = "t") -> int:
    counts = (await s.info(subjects_filter=f"{s.name}.{token}")).state.subjects or {}
    return counts.get(f"{s.name}.{token}", 0)


async def _has_stopped(s: Stream, token: str = "t") -> None:
    """Nothing more is published, but for one that was on its way."""
    before = await _published(s, token)
    await asyncio.sleep(2.5)
    assert await _published(s, token) <= before + 1


async def _is_refused(
    t: Trial, s: Stream, *variants: dict[str, str], error: type[APIError]
) -> None:
    """A message with each of these headers, and a target, is refused and not stored."""
    for headers in variants:
        own = {TARGET: f"{s.name}.t"} | headers
        await refusal(t.js.publish(f"{s.name}.s", headers=own), error)
    assert await last_on(s, "s") is None


def _is_after(text: str, message: Any) -> bool:
    return parse_isotime(text) > parse_isotime(message.time.isoformat())


# -- configuration ---------------------------------------------------------------------------------


@T.case("SCH-101", "create_stream(allow_msg_schedules=True)", "is on, with rollups and purges")
async def on(t: Trial) -> None:
    info = await (await t.stream(**SCHEDULES)).info()
    assert info.config.allow_msg_schedules
    assert info.config.allow_rollup_hdrs
    assert not info.config.deny_purge
    assert api_level(info) >= 2


@T.case("SCH-102", "schedule", "MessageSchedulesDisabledError where it is off")
async def off(t: Trial) -> None:
    s = await t.stream()
    assert not (await s.info()).config.allow_msg_schedules
    await refusal(_schedule(t, s, cron="@hourly"), MessageSchedulesDisabledError)
    assert await count(s) == 0


@T.case(
    "SCH-103", "Stream.update(allow_msg_schedules=False)", "StreamInvalidConfigError: it stays on"
)
async def turned_off(t: Trial) -> None:
    s = await t.stream(**SCHEDULES)
    await refusal(s.update(allow_msg_schedules=False), StreamInvalidConfigError)
    assert (await s.info()).config.allow_msg_schedules


@T.case("SCH-104", "Stream.update(allow_msg_schedules=True)", "turns schedules and rollups on")
async def turned_on(t: Trial) -> None:
    s = await t.stream(allow_msg_ttl=True)
    config = (await s.update(**SCHEDULES)).config
    assert config.allow_msg_schedules
    assert config.allow_rollup_hdrs
    await _schedule(t, s, at=_soon())
    await _fired(s)


T.stream_is_refused(
    "SCH-105",
    "for a mirror",
    SCHEDULES | {"mirror": True},
    error=MirrorWithMsgSchedulesError,
)
T.stream_is_refused(
    "SCH-106",
    "with sources",
    SCHEDULES | {"sources": True},
    error=SourceWithMsgSchedulesError,
)


@T.case("SCH-107", "schedule(target_ttl=)", "MessageTTLDisabledError without allow_msg_ttl")
async def ttl_off(t: Trial) -> None:
    s = await t.stream(**SCHEDULES)
    await refusal(_schedule(t, s, cron="@hourly", target_ttl=300), MessageTTLDisabledError)
    assert await count(s) == 0


@T.case("SCH-108", "schedule", "a schedule replaces the one before it")
async def rolls_up(t: Trial) -> None:
    s = await t.stream(**SCHEDULES)
    await _schedule(t, s, cron="@hourly")
    assert (await last_on(s, "s")).headers[ROLLUP] == "sub"


# -- at one time -----------------------------------------------------------------------------------


@T.case("SCH-201", "schedule(at=)", "publishes once, and is gone")
async def at(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, at=_soon())
    (message,) = await _fired(s)
    assert message.data == b"body"
    assert headers_of(message)[NEXT] == "purge"
    assert headers_of(message)[SCHEDULER] == f"{s.name}.s"
    await _is_gone(s)
    assert await _published(s) == 1


@T.case("SCH-202", "schedule(at=)", "a time that has passed means now")
async def in_the_past(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, at=datetime(2009, 11, 10, 23, tzinfo=UTC))
    (message,) = await _fired(s)
    assert headers_of(message)[NEXT] == "purge"


@T.case("SCH-203", "schedule(at=); publish(headers=)", "a time with another offset")
async def with_offset(t: Trial) -> None:
    s = await _default(t)
    local = _soon().astimezone(timezone(timedelta(hours=2)))
    await _schedule(t, s, at=local)
    text = {SCHEDULE: f"@at {local.isoformat()}", TARGET: f"{s.name}.t"}
    await t.js.publish(f"{s.name}.other", headers=text)
    await _fired(s, 2)


@T.case("SCH-204", "schedule(target_ttl=)", "the published message has that time to live")
async def target_ttl(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, at=_soon(), target_ttl=timedelta(minutes=5))
    (message,) = await _fired(s)
    assert headers_of(message)[TTL] == "300"
    assert "Nats-Schedule-TTL" not in headers_of(message)


@T.case("SCH-205", "schedule(headers=)", "other headers are published, the schedule's are not")
async def other_headers(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, at=_soon(), headers={"X-Custom": "test-42"})
    (message,) = await _fired(s)
    assert headers_of(message)["X-Custom"] == "test-42"
    assert headers_of(message)[SCHEDULER] == f"{s.name}.s"
    assert headers_of(message)[NEXT] == "purge"
    assert SCHEDULE not in headers_of(message)


@T.case("SCH-206", "schedule(ttl=)", "a schedule that is removed before its time publishes nothing")
async def own_ttl(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, at=_soon(60), ttl=1)
    await _is_gone(s)
    assert await _published(s) == 0


# -- again and again -------------------------------------------------------------------------------


@T.case("SCH-301", "schedule(cron=)", "publishes each second, names the next time, and stays")
async def cron(t: Trial) -> None:
    s = await _default(t)
    seq = await _schedule(t, s, cron=EVERY_SECOND)
    for message in await _fired(s, 3):
        assert headers_of(message)[SCHEDULER] == f"{s.name}.s"
        assert _is_after(headers_of(message)[NEXT], message)
    assert (await last_on(s, "s")).seq == seq


async def _is_accepted(t: Trial, words: list[str]) -> None:
    s = await _default(t)
    for word in words:
        await t.js.schedule(f"{s.name}.s{word}", target=f"{s.name}.t{word}", cron=word)
        assert (await last_on(s, f"s{word}")).headers[SCHEDULE] == word


@T.case("SCH-302", 'schedule(cron="@hourly")', "is stored")
async def hourly(t: Trial) -> None:
    await _is_accepted(t, ["@hourly"])


@T.case("SCH-303", 'schedule(cron="@daily")', "is stored, and so are the other words")
async def other_words(t: Trial) -> None:
    words = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight"]
    await _is_accepted(t, words)


@T.case("SCH-304", "schedule(cron=)", "stays as it is")
async def stays(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, cron=EVERY_SECOND)
    before = await last_on(s, "s")
    await _fired(s, 3)
    assert await last_on(s, "s") == before


@T.case("SCH-305", "schedule(every=1)", "publishes each second, names the next time, and stays")
async def every(t: Trial) -> None:
    s = await _default(t)
    seq = await _schedule(t, s, every=1)
    for message in await _fired(s, 3):
        assert parse_isotime(headers_of(message)[NEXT])
    assert (await last_on(s, "s")).seq == seq


@T.case("SCH-306", "schedule(cron=)", "MessageSchedulesPatternInvalidError for what is no pattern")
async def no_pattern(t: Trial) -> None:
    s = await _default(t)
    await refusal(_schedule(t, s, cron="not a valid cron"), MessageSchedulesPatternInvalidError)
    assert await last_on(s, "s") is None


@T.case("SCH-307", "schedule(cron=, target_ttl=)", "each message has that time to live")
async def cron_target_ttl(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, cron=EVERY_SECOND, target_ttl=60)
    assert [headers_of(m)[TTL] for m in await _fired(s, 2)] == ["60", "60"]


@T.case("SCH-308", "schedule(cron=, ttl=)", "ends with its own time to live")
async def cron_own_ttl(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, cron=EVERY_SECOND, ttl=2)
    await _is_gone(s)
    await _has_stopped(s)


@T.case(
    "SCH-309",
    "schedule(every=); publish(headers=)",
    "ConfigError and MessageSchedulesPatternInvalidError below a second",
)
async def shortest(t: Trial) -> None:
    s = await _default(t)
    for seconds in (0.5, 0.1, 0):
        await refusal(_schedule(t, s, every=seconds), ConfigError)
    await _is_refused(
        t,
        s,
        *({SCHEDULE: f"@every {text}"} for text in ("500ms", "100ms", "0s")),
        error=MessageSchedulesPatternInvalidError,
    )
    await _schedule(t, s, every=1)


# -- sampling --------------------------------------------------------------------------------------


@T.case("SCH-401", "schedule(source=)", "publishes the last message of another subject")
async def sample(t: Trial) -> None:
    s = await _default(t)
    await t.fill(s, ["a"] * 5)
    await _schedule(t, s, b"", every=1, source=f"{s.name}.a")
    (message,) = await _fired(s)
    assert message.data == b"5"
    assert headers_of(message)[SCHEDULER] == f"{s.name}.s"
    assert _is_after(headers_of(message)[NEXT], message)


@T.case("SCH-402", "schedule(source=); publish(headers=)", "errors for a wildcard")
async def sample_wildcard(t: Trial) -> None:
    s = await _default(t)
    await refusal(_schedule(t, s, every=1, source=f"{s.name}.*"), ConfigError)
    await _is_refused(
        t,
        s,
        {SCHEDULE: "@every 1s", SOURCE: f"{s.name}.*"},
        error=MessageSchedulesSourceInvalidError,
    )


@T.case("SCH-403", "schedule(source=)", "its own message while that subject has none")
async def sample_of_nothing(t: Trial) -> None:
    s = await _default(t)
    own = {"X-Marker": "schedule-body"}
    await _schedule(t, s, every=1, source=f"{s.name}.a", headers=own)
    (message,) = await _fired(s)
    assert (message.data, headers_of(message)["X-Marker"]) == (b"body", "schedule-body")
    assert headers_of(message)[SCHEDULER] == f"{s.name}.s"


@T.case("SCH-404", "schedule(source=)", "each time the newest")
async def sample_again(t: Trial) -> None:
    s = await _default(t)
    await t.fill(s, "a")
    await _schedule(t, s, b"", every=1, source=f"{s.name}.a")
    assert (await _fired(s))[0].data == b"1"
    await t.js.publish(f"{s.name}.a", b"9")

    async def sampled() -> bool:
        return bool((await last_on(s, "t")).data == b"9")

    await until(sampled)


# -- values ----------------------------------------------------------------------------------------


@T.case("SCH-501", "schedule(cron=, time_zone=)", "is stored with its time zone")
async def zone(t: Trial) -> None:
    s = await _default(t)
    for name in ("UTC", "America/New_York"):
        await _schedule(t, s, cron="0 30 9 * * *", time_zone=name)
        assert (await last_on(s, "s")).headers[ZONE] == name


@T.case(
    "SCH-502",
    "schedule(at=, time_zone=); publish(headers=)",
    "ConfigError; MessageSchedulesPatternInvalidError",
)
async def zone_at(t: Trial) -> None:
    s = await _default(t)
    await refusal(_schedule(t, s, at=_soon(), time_zone="Europe/Amsterdam"), ConfigError)
    await _is_refused(
        t,
        s,
        {SCHEDULE: "@at 2099-01-01T00:00:00Z", ZONE: "Europe/Amsterdam"},
        error=MessageSchedulesPatternInvalidError,
    )


@T.case(
    "SCH-503",
    "schedule(every=, time_zone=); publish(headers=)",
    "ConfigError; MessageSchedulesPatternInvalidError",
)
async def zone_every(t: Trial) -> None:
    s = await _default(t)
    await refusal(_schedule(t, s, every=60, time_zone="Europe/Amsterdam"), ConfigError)
    await _is_refused(
        t,
        s,
        {SCHEDULE: "@every 1m", ZONE: "Europe/Amsterdam"},
        error=MessageSchedulesPatternInvalidError,
    )


@T.case(
    "SCH-504",
    "schedule(cron=, time_zone=)",
    "MessageSchedulesTimeZoneInvalidError for what is no time zone",
)
async def no_zone(t: Trial) -> None:
    s = await _default(t)
    for name in ("Not/A_Zone", "+02:00"):
        await refusal(
            _schedule(t, s, cron=EVERY_SECOND, time_zone=name), MessageSchedulesTimeZoneInvalidError
        )
    assert await last_on(s, "s") is None


@T.case("SCH-505", "schedule(rollup=True)", "the published message replaces the target's others")
async def rollup(t: Trial) -> None:
    s = await _default(t)
    await t.fill(s, "t")
    await _schedule(t, s, at=_soon(), rollup=True)

    async def replaced() -> bool:
        return bool((await last_on(s, "t")).data == b"body")

    await until(replaced)
    assert (await last_on(s, "t")).headers[ROLLUP] == "sub"
    assert await _published(s) == 1


@T.case("SCH-506", "publish(headers=)", "MessageSchedulesRollupInvalidError for another rollup")
async def other_rollup(t: Trial) -> None:
    s = await _default(t)
    await _is_refused(
        t,
        s,
        {SCHEDULE: "@hourly", "Nats-Schedule-Rollup": "all"},
        error=MessageSchedulesRollupInvalidError,
    )


@T.case(
    "SCH-507",
    "schedule(target=)",
    "MessageSchedulesTargetInvalidError for a target outside of the stream",
)
async def target_elsewhere(t: Trial) -> None:
    s = await _default(t)
    await refusal(
        _schedule(t, s, at=_soon(), target="nope.elsewhere"), MessageSchedulesTargetInvalidError
    )
    assert await count(s) == 0


@T.case("SCH-508", "schedule(target_ttl=, rollup=, headers=)", "none of the schedule's own headers")
async def stripped(t: Trial) -> None:
    s = await _default(t)
    own = {"X-Keep": "yes"}
    await _schedule(t, s, at=_soon(), target_ttl=60, rollup=True, headers=own)
    (message,) = await _fired(s)
    defining = {SCHEDULE, TARGET, "Nats-Schedule-TTL", "Nats-Schedule-Rollup"}
    assert not defining & set(headers_of(message))
    rest = {name: headers_of(message)[name] for name in (SCHEDULER, NEXT, TTL, ROLLUP, "X-Keep")}
    assert list(rest.values()) == [f"{s.name}.s", "purge", "60", "sub", "yes"]


@T.case("SCH-509", "schedule(time_zone=); publish(headers=)", "an error for an empty time zone")
async def empty_zone(t: Trial) -> None:
    s = await _default(t)
    await refusal(
        _schedule(t, s, cron=EVERY_SECOND, time_zone=""), MessageSchedulesTimeZoneInvalidError
    )
    await _is_refused(
        t, s, {SCHEDULE: EVERY_SECOND, ZONE: ""}, error=MessageSchedulesTimeZoneInvalidError
    )


# -- the end of a schedule -------------------------------------------------------------------------


@T.case("SCH-601", "schedule", "a new schedule on the subject replaces the old one")
async def replaced(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, b"A", every=1)
    assert (await _fired(s))[0].data == b"A"
    await _schedule(t, s, b"B", every=1)
    assert (await last_on(s, "s")).data == b"B"
    assert (await s.info(subjects_filter=f"{s.name}.s")).state.subjects == {f"{s.name}.s": 1}

    async def published() -> bool:
        return bool((await last_on(s, "t")).data == b"B")

    await until(published)


@T.case("SCH-602", "Stream.delete_msg", "ends the schedule")
async def deleted(t: Trial) -> None:
    s = await _default(t)
    seq = await _schedule(t, s, every=1)
    await _fired(s)
    await s.delete_msg(seq)
    await _has_stopped(s)


@T.case("SCH-603", "Stream.cancel_schedule; Stream.purge(filter=)", "end the schedule")
async def purged(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, every=1)
    await _fired(s)
    await s.purge(filter=f"{s.name}.s")
    assert await last_on(s, "s") is None
    await _has_stopped(s)
    await _schedule(t, s, every=1)
    assert await s.cancel_schedule(f"{s.name}.s")
    assert not await s.cancel_schedule(f"{s.name}.s")


@T.case("SCH-604", "Stream.purge(filter=)", "a wildcard ends several schedules")
async def purged_by_wildcard(t: Trial) -> None:
    s = await _default(t)
    for key in "abc":
        subject, target = f"{s.name}.s.{key}", f"{s.name}.t.{key}"
        await t.js.schedule(subject, target=target, every=1)
    for key in "abc":
        await _fired(s, token=f"t.{key}")
    assert await s.purge(filter=f"{s.name}.s.>") == 3
    await asyncio.gather(*(_has_stopped(s, f"t.{key}") for key in "abc"))


@T.case("SCH-605", "end_schedule(schedule, subject)", "publishes there and ends the schedule")
async def ended(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, at=_soon(3))
    await t.js.end_schedule(f"{s.name}.s", f"{s.name}.canceled", b"cancel-body")
    assert (await last_on(s, "canceled")).data == b"cancel-body"
    await _is_gone(s)
    await asyncio.sleep(4)
    assert await _published(s) == 0


@T.case("SCH-606", "end_schedule(schedule_seq=)", "WrongLastSequenceError when it is gone already")
async def ended_if_there(t: Trial) -> None:
    s = await _default(t)
    seq = await _schedule(t, s, every=1)
    names = (f"{s.name}.s", f"{s.name}.signal")
    await t.js.end_schedule(*names, schedule_seq=seq)
    await _is_gone(s)
    await refusal(t.js.end_schedule(*names, schedule_seq=seq), WrongLastSequenceError)
    assert await _published(s, "signal") == 1
    await _has_stopped(s)


@T.case(
    "SCH-607",
    "end_schedule; publish(headers=)",
    "ConfigError and MessageSchedulesSchedulerInvalidError on its own subject",
)
async def ended_by_itself(t: Trial) -> None:
    s = await _default(t)
    seq = await _schedule(t, s, every=1)
    await refusal(t.js.end_schedule(f"{s.name}.s", f"{s.name}.s"), ConfigError)
    headers = {NEXT: "purge", SCHEDULER: f"{s.name}.s"}
    await refusal(
        t.js.publish(f"{s.name}.s", headers=headers), MessageSchedulesSchedulerInvalidError
    )
    assert (await last_on(s, "s")).seq == seq


@T.case("SCH-608", "end_schedule(schedule, target)", "publishes early, and only once")
async def early(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, b"slow", at=_soon(3))
    await t.js.end_schedule(f"{s.name}.s", f"{s.name}.t", b"fast")
    await _is_gone(s)
    await asyncio.sleep(4)
    assert await _published(s) == 1
    assert (await last_on(s, "t")).data == b"fast"


@T.case("SCH-609", "schedule(at=)", "is gone when it has published")
async def gone_by_itself(t: Trial) -> None:
    s = await _default(t)
    await _schedule(t, s, at=_soon())
    await _fired(s)
    await _is_gone(s)


@T.case(
    "SCH-610",
    "end_schedule; publish(headers=)",
    "ConfigError and MessageSchedulesSchedulerInvalidError for no subject",
)
async def ends_nothing(t: Trial) -> None:
    s = await _default(t)
    error = await refusal(t.js.end_schedule("", f"{s.name}.end"), ConfigError)
    assert str(error).startswith("Bad schedule ''")
    headers = {NEXT: "purge", SCHEDULER: ""}
    await refusal(
        t.js.publish(f"{s.name}.end", headers=headers), MessageSchedulesSchedulerInvalidError
    )
    assert await count(s) == 0


@T.case(
    "SCH-611",
    "end_schedule; publish(headers=)",
    "ConfigError and MessageSchedulesSchedulerInvalidError for a bad subject",
)
async def ends_a_bad_subject(t: Trial) -> None:
    s = await _default(t)
    for subject in (" ", "bad subject with spaces", "*.>", ".leading.dot"):
        await refusal(t.js.end_schedule(subject, f"{s.name}.end"), ConfigError)
        headers = {NEXT: "purge", SCHEDULER: subject}
        await refusal(
            t.js.publish(f"{s.name}.end", headers=headers), MessageSchedulesSchedulerInvalidError
        )
    assert await count(s) == 0


# -- retention -------------------------------------------------------------------------------------


@T.case("SCH-701", 'create_stream(retention="limits")', "publishes, and the schedule stays")
async def limits(t: Trial) -> None:
    s = await _default(t, retention="limits")
    await _schedule(t, s, every=1)
    await _fired(s, 3)
    assert await last_on(s, "s") is not None


@T.case("SCH-702", 'create_stream(retention="workqueue")', "publishes while nobody acknowledges it")
async def workqueue(t: Trial) -> None:
    s = await _default(t, retention="workqueue")
    await _schedule(t, s, every=1)
    await _fired(s, 3)
    assert await last_on(s, "s") is not None


@T.case("SCH-703", "JsMsg.ack of the schedule", "ends the schedule of a work queue")
async def acknowledged(t: Trial) -> None:
    s = await _default(t, retention="workqueue")
    await _schedule(t, s, every=3)
    consumer = await t.consumer(s, None, filter_subject=f"{s.name}.s")
    await (await consumer.next(timeout=20)).ack_sync()
    await _is_gone(s)
    before = await _published(s)
    await asyncio.sleep(4)
    assert await _published(s) <= before + 1


@T.case("SCH-704", 'create_stream(retention="interest")', "publishes while a consumer keeps it")
async def interest(t: Trial) -> None:
    s = await _default(t, retention="interest")
    for token in "st":
        await t.consumer(s, None, filter_subject=f"{s.name}.{token}", ack_policy="none")
    await _schedule(t, s, every=1)
    await _fired(s, 3)
    assert await last_on(s, "s") is not None


@T.case("SCH-705", 'create_stream(retention="interest")', "stores no schedule without a consumer")
async def no_interest(t: Trial) -> None:
    s = await _default(t, retention="interest")
    await _schedule(t, s, every=1)
    await _is_gone(s)
    await asyncio.sleep(2)
    assert await _published(s) == 0


@T.case("SCH-706", "create_stream(max_age=)", "removes a schedule that is due later")
async def too_old(t: Trial) -> None:
    s = await _default(t, max_age=1)
    await _schedule(t, s, every=10)
    await _is_gone(s)
    assert await _published(s) == 0


@T.case(
    "SCH-707", "create_stream(sources=)", "publishes through a work queue to an interest stream"
)
async def composed(t: Trial) -> None:
    s = await _default(t, retention="workqueue")
    source = {"name": s.name, "filter_subject": f"{s.name}.t"}
    d = await t.stream(retention="interest", sources=[source], subjects=None)
    consumer = await t.consumer(d, None)
    await _schedule(t, s, every=1)
    for _ in range(3):
        message = await consumer.next(timeout=30)
        assert (message.subject, message.data) == (f"{s.name}.t", b"body")
    assert await last_on(s, "s") is not None
    assert not (await d.info()).config.allow_msg_schedules


# -- time zones ------------------------------------------------------------------------------------


@T.case("SCH-801", "schedule(cron=)", "a pattern is in UTC")
async def utc(t: Trial) -> None:
    s = await _default(t)
    due = _soon(3)
    await _schedule(t, s, cron=f"{due.second} {due.minute} {due.hour} * * *")
    (message,) = await _fired(s)
    assert abs((message.time - due).total_seconds()) < 5


@T.case("SCH-802", "schedule(cron=, time_zone=)", "Nats-Schedule-Next is in that time zone")
async def shifted(t: Trial) -> None:
    s = await _default(t)
    now = _soon(3)
    # Lima is five hours behind, always: the hour there is this one.
    lima = now - timedelta(hours=5)
    pattern = f"{lima.second} {lima.minute} {lima.hour} * * *"
    await _schedule(t, s, cron=pattern, time_zone="America/Lima")
    (message,) = await _fired(s)
    assert abs((message.time - now).total_seconds()) < 5


T.out_of_reach("SCH-803", "It is about clocks that change twice a year, and runs nothing.")

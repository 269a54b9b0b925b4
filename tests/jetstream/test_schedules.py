"""Scheduled messages (ADR-51)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.conftest import NeedsServer
from tests.jetstream.conftest import ServerIs
from tests.jetstream.eventually import eventually

from jetspark import errors
from jetspark.full_client import Client, JetStream

FAR = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _schedules(needs_server: NeedsServer) -> None:
    needs_server("2.12")


@pytest.fixture
async def planned(js: JetStream, stream: str) -> str:
    """A stream that takes schedules."""
    await js.stream(stream).update(allow_msg_schedules=True, allow_msg_ttl=True)
    return stream


async def headers_of(js: JetStream, stream: str, subject: str) -> dict[str, list[str]]:
    message = await js.stream(stream).get(last_by_subject=subject, direct=False)
    assert message.headers is not None
    return message.headers.to_dict()


async def arrives(js: JetStream, stream: str, subject: str) -> bytes:
    async def is_there() -> bool:
        try:
            await js.stream(stream).get(last_by_subject=subject, direct=False)
        except errors.MessageNotFoundError:
            return False
        return True

    await eventually(is_there)
    return (await js.stream(stream).get(last_by_subject=subject, direct=False)).data


async def test_schedule_at_a_time_is_published_once(js: JetStream, planned: str) -> None:
    plan, target = f"{planned}.plan", f"{planned}.done"
    soon = datetime.now(timezone(timedelta(hours=3))) + timedelta(seconds=1)
    ack = await js.schedule(
        plan, b"x", target=target, at=soon, headers={"K": "1"}, target_ttl=60, msg_id="m"
    )
    assert ack.seq == 1
    assert await arrives(js, planned, target) == b"x"
    headers = await headers_of(js, planned, target)
    assert (headers["K"], headers["Nats-TTL"]) == (["1"], ["60"])
    assert (headers["Nats-Scheduler"], headers["Nats-Schedule-Next"]) == ([plan], ["purge"])
    stored = await js.stream(planned).get(last_by_subject=target, direct=False)
    assert stored.time >= soon
    with pytest.raises(errors.MessageNotFoundError):  # it is gone
        await js.stream(planned).get(last_by_subject=plan, direct=False)


async def test_a_time_that_has_passed_means_now(js: JetStream, planned: str) -> None:
    plan, target = f"{planned}.plan", f"{planned}.done"
    for _ in range(2):  # a new one replaces the old one
        await js.schedule(plan, target=target, at=FAR)
    assert (await js.stream(planned).info()).state.messages == 1
    await js.schedule(plan, b"late", target=target, at=datetime(2020, 1, 1, tzinfo=UTC))
    assert await arrives(js, planned, target) == b"late"


async def test_a_repeated_schedule_publishes_until_it_is_cancelled(
    js: JetStream, planned: str, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    plan, target = f"{planned}.plan", f"{planned}.done"
    await js.schedule(plan, b"tick", target=target, every=1, rollup=True)
    async with js.stream(planned).ordered(
        start_seq=3
    ) as ticks:  # the plan and the first are before
        assert (await ticks.next(20)).data == b"tick"
    assert (await headers_of(js, planned, target))["Nats-Rollup"] == ["sub"]
    assert await js.stream(planned).cancel_schedule(plan) is True
    assert await js.stream(planned).cancel_schedule(plan) is False
    assert (await js.stream(planned).info()).state.messages == 1


async def test_cancelling_a_schedule_that_is_being_replaced_ends_the_new_one(
    js: JetStream, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, target, stream = f"{planned}.plan", f"{planned}.done", js.stream(planned)
    await js.schedule(plan, target=target, at=FAR)
    delete, replaced = stream.delete_msg, False

    async def replaced_before(seq: int) -> None:
        nonlocal replaced
        if not replaced:
            await js.schedule(plan, target=target, at=FAR)
            replaced = True
        await delete(seq)

    monkeypatch.setattr(stream, "delete_msg", replaced_before)
    assert await stream.cancel_schedule(plan) is True
    assert (await stream.info()).state.messages == 0


async def test_schedule_with_a_source_publishes_its_last_message(
    js: JetStream, planned: str, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    target, source = f"{planned}.sampled", f"{planned}.sensor"
    await js.publish(source, b"21")
    await js.schedule(f"{planned}.plan", b"none", target=target, source=source, every=1)
    assert await arrives(js, planned, target) == b"21"


@pytest.mark.parametrize(
    ("options", "header", "value"),
    [
        ({"every": 90}, "Nats-Schedule", "@every 90000000000ns"),
        ({"every": timedelta(milliseconds=1500)}, "Nats-Schedule", "@every 1500000000ns"),
        ({"cron": "@hourly"}, "Nats-Schedule", "@hourly"),
        ({"cron": "0 30 9 * * mon-fri"}, "Nats-Schedule", "0 30 9 * * mon-fri"),
        ({"cron": "@daily", "time_zone": "UTC"}, "Nats-Schedule-Time-Zone", "UTC"),
        ({"at": FAR, "ttl": 3600}, "Nats-TTL", "3600"),
        ({"at": FAR, "ttl": "never"}, "Nats-Schedule", "@at 2100-01-01T00:00:00Z"),
    ],
)
async def test_schedule_forms_are_accepted_by_the_server(
    js: JetStream, planned: str, needs_server: NeedsServer, options: Any, header: str, value: str
) -> None:
    if "at" not in options:
        needs_server("2.14")
    await js.schedule(f"{planned}.plan", target=f"{planned}.done", **options)
    assert (await headers_of(js, planned, f"{planned}.plan"))[header] == [value]


async def test_a_message_ends_a_schedule_in_one_step(
    js: JetStream, planned: str, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    plan, target = f"{planned}.plan", f"{planned}.done"
    ack = await js.schedule(plan, b"later", target=target, at=FAR)
    with pytest.raises(errors.WrongLastSequenceError):
        await js.end_schedule(plan, target, b"early", schedule_seq=ack.seq + 7)
    await js.end_schedule(plan, target, b"early", schedule_seq=ack.seq)
    assert (await js.stream(planned).get(last_by_subject=target, direct=False)).data == b"early"
    with pytest.raises(errors.MessageNotFoundError):
        await js.stream(planned).get(last_by_subject=plan, direct=False)
    with pytest.raises(errors.WrongLastSequenceError):  # there is none any more
        await js.end_schedule(plan, target, b"early", schedule_seq=ack.seq)


async def test_only_schedules_are_cancelled(js: JetStream, planned: str) -> None:
    for subject, headers in ((f"{planned}.orders", None), (f"{planned}.other", {"K": "1"})):
        await js.publish(subject, b"x", headers=headers)
        with pytest.raises(errors.JetStreamError, match="is not a schedule"):
            await js.stream(planned).cancel_schedule(subject)
    assert (await js.stream(planned).info()).state.messages == 2


async def test_the_stream_refuses_schedules_targets_elsewhere_and_wrong_patterns(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    plan, target = f"{stream}.plan", f"{stream}.done"
    with pytest.raises(errors.NotEnabledOnStreamError) as not_enabled:
        await js.schedule(plan, target=target, at=FAR)
    assert not_enabled.value.option == "allow_msg_schedules"
    await js.stream(stream).update(allow_msg_schedules=True, allow_msg_ttl=True)
    with pytest.raises(errors.APIError) as refused:
        await js.schedule(plan, target="elsewhere", at=FAR)
    assert refused.value.err_code == 10190
    needs_server("2.14")
    with pytest.raises(errors.APIError) as refused:  # seconds come first
        await js.schedule(plan, target=target, cron="*/5 * * * *")
    assert refused.value.err_code == 10189


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"at": FAR, "every": 5},
        {"at": datetime(2100, 1, 1)},
        {"at": "tomorrow"},
        {"every": 0.5},
        {"every": float("nan")},
        {"cron": " "},
        {"at": FAR, "time_zone": "UTC"},
        {"at": FAR, "target": "plan"},
        {"at": FAR, "source": "done"},
        {"at": FAR, "target": "done.*"},
        {"at": FAR, "source": "a..b"},
        {"at": FAR, "target_ttl": 0.5},
        {"at": FAR, "ttl": 0},
    ],
)
async def test_mistakes_are_found_before_anything_is_sent(
    js: JetStream, nc: Client, options: Any, server_is: ServerIs
) -> None:
    server_is("2.15.0")
    before = nc.stats.out_msgs
    with pytest.raises(errors.ConfigError):
        await js.schedule("plan", **{"target": "done", **options})
    with pytest.raises(errors.BadSubjectError):
        await js.stream("S").cancel_schedule("plan.*")
    with pytest.raises(errors.ConfigError):
        await js.end_schedule("plan", "plan")
    assert nc.stats.out_msgs == before


@pytest.mark.parametrize(
    ("version", "options"),
    [
        ("2.11.11", {"at": FAR}),
        ("2.12.8", {"every": 5}),
        ("2.12.8", {"cron": "@hourly"}),
        ("2.12.8", {"at": FAR, "source": "s"}),
        ("2.12.8", {"at": FAR, "rollup": True}),
    ],
)
async def test_schedule_on_an_older_server_is_refused_before_sending(
    js: JetStream, server_is: ServerIs, version: str, options: Any
) -> None:
    server_is(version)
    with pytest.raises(errors.UnsupportedByServerError):
        await js.schedule("plan", target="done", **options)
    with pytest.raises(errors.UnsupportedByServerError):
        await js.end_schedule("plan", "done")

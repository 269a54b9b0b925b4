"""Scheduled messages (ADR-51)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from tests.jetstream.eventually import eventually

from jetspark.errors import (
    APIError,
    BadSubjectError,
    ConfigError,
    JetStreamError,
    MessageNotFoundError,
    NotEnabledOnStreamError,
    UnsupportedByServerError,
    WrongLastSequenceError,
)
from jetspark.wire.documents import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.full_client import Client, JetStream

FAR = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _schedules(needs_server: Callable[[str], None]) -> None:
    needs_server("2.12")


@pytest.fixture
async def planned(js: JetStream, stream: str) -> str:
    """A stream that takes schedules."""
    await js.update_stream(name=stream, allow_msg_schedules=True, allow_msg_ttl=True)
    return stream


async def headers_of(js: JetStream, stream: str, subject: str) -> dict[str, list[str]]:
    message = await js.get_msg(stream, last_by_subject=subject, direct=False)
    assert message.headers is not None
    return message.headers.to_dict()


async def arrives(js: JetStream, stream: str, subject: str) -> bytes:
    async def is_there() -> bool:
        try:
            await js.get_msg(stream, last_by_subject=subject, direct=False)
        except MessageNotFoundError:
            return False
        return True

    await eventually(is_there)
    return (await js.get_msg(stream, last_by_subject=subject, direct=False)).data


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
    stored = await js.get_msg(planned, last_by_subject=target, direct=False)
    assert stored.time >= soon
    with pytest.raises(MessageNotFoundError):  # it is gone
        await js.get_msg(planned, last_by_subject=plan, direct=False)


async def test_a_time_that_has_passed_means_now(js: JetStream, planned: str) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    await js.schedule(f"{planned}.plan", b"late", target=f"{planned}.done", at=past)
    assert await arrives(js, planned, f"{planned}.done") == b"late"


async def test_a_repeated_schedule_publishes_until_it_is_cancelled(
    js: JetStream, planned: str, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")
    plan, target = f"{planned}.plan", f"{planned}.done"
    await js.schedule(plan, b"tick", target=target, every=1, rollup=True)

    async def came_twice() -> bool:
        info = await js.stream_info(planned)
        return info.state.last_seq >= 3

    await eventually(came_twice)
    assert (await headers_of(js, planned, target))["Nats-Rollup"] == ["sub"]
    assert await js.cancel_schedule(planned, plan) is True
    assert await js.cancel_schedule(planned, plan) is False
    assert (await js.stream_info(planned)).state.messages == 1


async def test_schedule_with_a_source_publishes_its_last_message(
    js: JetStream, planned: str, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")
    await js.publish(f"{planned}.sensor", b"21")
    every = timedelta(seconds=1)
    target, source = f"{planned}.sampled", f"{planned}.sensor"
    await js.schedule(f"{planned}.plan", b"none", target=target, source=source, every=every)
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
    js: JetStream,
    planned: str,
    needs_server: Callable[[str], None],
    options: Any,
    header: str,
    value: str,
) -> None:
    if "at" not in options:
        needs_server("2.14")
    await js.schedule(f"{planned}.plan", target=f"{planned}.done", **options)
    assert (await headers_of(js, planned, f"{planned}.plan"))[header] == [value]


async def test_a_new_schedule_replaces_the_old_one(js: JetStream, planned: str) -> None:
    for _ in range(2):
        await js.schedule(f"{planned}.plan", target=f"{planned}.done", at=FAR)
    assert (await js.stream_info(planned)).state.messages == 1


async def test_a_message_ends_a_schedule_in_one_step(
    js: JetStream, planned: str, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")
    plan, target = f"{planned}.plan", f"{planned}.done"
    ack = await js.schedule(plan, b"later", target=target, at=FAR)
    with pytest.raises(WrongLastSequenceError):
        await js.end_schedule(plan, target, b"early", schedule_seq=ack.seq + 7)
    await js.end_schedule(plan, target, b"early", schedule_seq=ack.seq)
    assert (await js.get_msg(planned, last_by_subject=target, direct=False)).data == b"early"
    with pytest.raises(MessageNotFoundError):
        await js.get_msg(planned, last_by_subject=plan, direct=False)
    with pytest.raises(WrongLastSequenceError):  # there is none any more
        await js.end_schedule(plan, target, b"early", schedule_seq=ack.seq)


async def test_only_schedules_are_cancelled(js: JetStream, planned: str) -> None:
    await js.publish(f"{planned}.orders", b"x")
    await js.publish(f"{planned}.other", b"x", headers={"K": "1"})
    for subject in (f"{planned}.orders", f"{planned}.other"):
        with pytest.raises(JetStreamError, match="is not a schedule"):
            await js.cancel_schedule(planned, subject)
    assert (await js.stream_info(planned)).state.messages == 2


async def test_schedule_on_a_stream_without_schedules_is_refused(
    js: JetStream, stream: str
) -> None:
    with pytest.raises(NotEnabledOnStreamError) as refused:
        await js.schedule(f"{stream}.plan", target=f"{stream}.done", at=FAR)
    assert refused.value.option == "allow_msg_schedules"


async def test_the_stream_refuses_targets_elsewhere_and_wrong_patterns(
    js: JetStream, planned: str, needs_server: Callable[[str], None]
) -> None:
    with pytest.raises(APIError) as refused:
        await js.schedule(f"{planned}.plan", target="elsewhere", at=FAR)
    assert refused.value.err_code == 10190
    needs_server("2.14")
    with pytest.raises(APIError) as refused:  # seconds come first
        await js.schedule(f"{planned}.plan", target=f"{planned}.done", cron="*/5 * * * *")
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
    js: JetStream, nc: Client, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = ServerInfo(server_id="x", version="2.15.0", headers=True, max_payload=1_000_000)
    monkeypatch.setattr(nc._link, "info", newest)
    before = nc.stats.out_msgs
    with pytest.raises(ConfigError):
        await js.schedule("plan", **{"target": "done", **options})
    with pytest.raises(BadSubjectError):
        await js.cancel_schedule("S", "plan.*")
    with pytest.raises(ConfigError):
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
    js: JetStream, nc: Client, monkeypatch: pytest.MonkeyPatch, version: str, options: Any
) -> None:
    old = ServerInfo(server_id="x", version=version, headers=True, max_payload=1_000_000)
    monkeypatch.setattr(nc._link, "info", old)
    with pytest.raises(UnsupportedByServerError):
        await js.schedule("plan", target="done", **options)
    with pytest.raises(UnsupportedByServerError):
        await js.end_schedule("plan", "done")

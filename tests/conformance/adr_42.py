"""Priority groups of pull consumers (ADR-42).

The document of the official suite also describes a failover of overflow pulls (PG-206 to PG-210);
its program has no such cases, and no server has that feature.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.conformance.trial import Table, Trial, headers_of, refusal, status_of, until

from jetspark.errors import (
    APIError,
    ConfigError,
    ConsumerInvalidPriorityGroupError,
    ConsumerPriorityGroupWithPolicyNoneError,
    ConsumerPriorityPolicyWithoutGroupError,
    ConsumerPushWithPriorityGroupError,
)
from jetspark.jetstream.consumers import PullConsumer
from jetspark.jetstream.stream import Stream

T = Table(42)
PIN = "Nats-Pin-Id"
BRIEF = 0.6
"""Seconds that a fetch waits for what should not come."""


async def _second_handle(s: Stream, consumer: PullConsumer) -> PullConsumer:
    """Another client of the consumer: a handle keeps its own pin."""
    return await s.consumer(consumer.name)


async def _next_pinned(consumer: PullConsumer, timeout: float = 20) -> str:
    """Fetch one message; returns the pin that it came with."""
    message = await consumer.next(timeout=timeout, group="jobs")
    pin = headers_of(message)[PIN]
    assert pin
    return pin


async def _pinned(t: Trial, **options: Any) -> tuple[Stream, PullConsumer, str]:
    """A stream, its consumer, and the pin of the client that fetched the only message."""
    s = await t.stream()
    consumer = await t.consumer(s, "pinned_client", **{"priority_timeout": 60} | options)
    await t.fill(s, "a")
    return s, consumer, await _next_pinned(consumer)


async def _pinned_now(consumer: PullConsumer) -> Any:
    (group,) = (await consumer.info()).priority_groups or []
    assert group.group == "jobs"
    return group.pinned_client_id


async def _is_refused(t: Trial, consumer: PullConsumer, **body: Any) -> None:
    """The server answers such a pull with an error."""
    code, description = status_of(await t.pull(consumer, **body))
    assert code in (400, 409), description


# -- configuration ---------------------------------------------------------------------------------


@T.case("PG-101", "Stream.create_consumer(priority_policy=)", "overflow, with one group")
async def overflow(t: Trial) -> None:
    config = (await (await t.consumer(await t.stream(), "overflow")).info()).config
    assert (config.priority_groups, config.priority_policy) == (["jobs"], "overflow")


@T.case("PG-102", "Stream.create_consumer(priority_timeout=)", "pinned_client, with a timeout")
async def pinned_client(t: Trial) -> None:
    consumer = await t.consumer(await t.stream(), "pinned_client", priority_timeout=120)
    config = (await consumer.info()).config
    assert (config.priority_groups, config.priority_policy) == (["jobs"], "pinned_client")
    assert config.priority_timeout is not None
    assert config.priority_timeout.total_seconds() == 120


@T.case("PG-103", "Stream.create_consumer(priority_policy=)", "prioritized, with one group")
async def prioritized(t: Trial) -> None:
    config = (await (await t.consumer(await t.stream(), "prioritized")).info()).config
    assert config.priority_policy == "prioritized"


@T.case("PG-104", "Stream.create_consumer(priority_policy=)", "ConfigError for an unknown policy")
async def unknown_policy(t: Trial) -> None:
    s = await t.stream()
    await refusal(t.consumer(s, "bogus"), ConfigError)
    config = {"durable_name": "c", "ack_policy": "explicit", "priority_groups": ["jobs"]}
    await refusal(s.create_consumer(config | {"priority_policy": "bogus"}))


@T.case(
    "PG-105",
    "Stream.create_consumer(priority_groups=)",
    "ConsumerPriorityGroupWithPolicyNoneError without a policy",
)
async def groups_without_policy(t: Trial) -> None:
    await refusal(
        t.consumer(await t.stream(), None, priority_groups=["jobs"]),
        ConsumerPriorityGroupWithPolicyNoneError,
    )


@T.case(
    "PG-106",
    "Stream.create_consumer(priority_policy=)",
    "ConsumerPriorityPolicyWithoutGroupError without groups",
)
async def policy_without_groups(t: Trial) -> None:
    await refusal(
        t.consumer(await t.stream(), "overflow", priority_groups=[]),
        ConsumerPriorityPolicyWithoutGroupError,
    )


@T.case(
    "PG-107",
    "Stream.create_consumer(priority_groups=)",
    "APIError for two groups",
    differs="Several groups are accepted.",
)
async def two_groups(t: Trial) -> None:
    try:
        consumer = await t.consumer(await t.stream(), "overflow", priority_groups=["a", "b"])
    except APIError:
        return
    assert consumer.cached_info.config.priority_groups == ["a", "b"]


@T.case("PG-108", "Stream.create_consumer(priority_groups=)", "APIError for an unusable name")
async def names_of_groups(t: Trial) -> None:
    s = await t.stream()
    for name in ("jobs", "abcdefghij012345"):
        consumer = await t.consumer(s, "overflow", priority_groups=[name])
        assert (await consumer.info()).config.priority_groups == [name]
    for name in ("abcdefghij0123456", "bad name", "bad.name", ""):
        await refusal(t.consumer(s, "overflow", priority_groups=[name]))


@T.case("PG-109", "Stream.create_push_consumer(priority_groups=)", "an error: pull consumers only")
async def push(t: Trial) -> None:
    s = await t.stream()
    options: dict[str, Any] = {"priority_groups": ["jobs"], "priority_policy": "overflow"}
    await refusal(
        s.create_push_consumer(deliver_subject="d", **options), ConsumerPushWithPriorityGroupError
    )


ANY_ACKS = "Any policy is accepted, in pedantic requests, too."


@T.case(
    "PG-110",
    "create_consumer(ack_policy=); JetStream.api_request",
    "overflow takes explicit acks only, and a pedantic request is refused",
    differs=ANY_ACKS,
)
async def overflow_and_acks(t: Trial) -> None:
    await _needs_explicit_acks(t, "overflow", "none", "all")


@T.case(
    "PG-111",
    "create_consumer(ack_policy=); JetStream.api_request",
    "pinned_client takes explicit acks only, and a pedantic request is refused",
    differs=ANY_ACKS,
)
async def pinned_and_acks(t: Trial) -> None:
    await _needs_explicit_acks(t, "pinned_client", "none")


async def _needs_explicit_acks(t: Trial, policy: str, *ack_policies: str) -> None:
    s = await t.stream()
    for ack_policy in ack_policies:
        try:
            consumer = await t.consumer(s, policy, ack_policy=ack_policy)
            assert (await consumer.info()).config.ack_policy in ("explicit", ack_policy)
        except APIError:
            pass
        config: dict[str, Any] = {"durable_name": "p", "ack_policy": ack_policy}
        config |= {"priority_groups": ["jobs"], "priority_policy": policy}
        request = {"stream_name": s.name, "config": config, "action": "create", "pedantic": True}
        try:
            answer = await t.js.api_request(f"CONSUMER.DURABLE.CREATE.{s.name}.p", request)
        except APIError:
            continue
        assert answer["config"]["ack_policy"] == ack_policy
        await s.delete_consumer("p")


UPDATED = "The update is accepted."


async def _is_refused_or_there(consumer: PullConsumer, policy: str | None, **options: Any) -> None:
    try:
        await consumer.update(priority_policy=policy, **options)
    except APIError:
        return
    assert (await consumer.info()).config.priority_policy == policy


@T.case("PG-112", "Consumer.update(priority_groups=)", "APIError: not later", differs=UPDATED)
async def added_later(t: Trial) -> None:
    consumer = await t.consumer(await t.stream(), None)
    await _is_refused_or_there(consumer, "overflow", priority_groups=["jobs"])


@T.case("PG-113", "Consumer.update(priority_groups=None)", "APIError", differs=UPDATED)
async def removed_later(t: Trial) -> None:
    consumer = await t.consumer(await t.stream(), "overflow")
    await _is_refused_or_there(consumer, None, priority_groups=None)


@T.case("PG-114", "Consumer.update(priority_policy=)", "APIError", differs=UPDATED)
async def switched_later(t: Trial) -> None:
    consumer = await t.consumer(await t.stream(), "overflow")
    await _is_refused_or_there(consumer, "pinned_client")


@T.case("PG-115", "Consumer.update(priority_timeout=)", "changes the timeout")
async def timeout_changed(t: Trial) -> None:
    consumer = await t.consumer(await t.stream(), "pinned_client", priority_timeout=60)
    await consumer.update(priority_timeout=300)
    timeout = (await consumer.info()).config.priority_timeout
    assert timeout is not None
    assert timeout.total_seconds() == 300


# -- overflow --------------------------------------------------------------------------------------


@T.case("PG-201", "fetch; Client.request_many", "ConfigError without a group; a status")
async def overflow_without_group(t: Trial) -> None:
    await _a_group_is_needed(t, "overflow")


async def _a_group_is_needed(t: Trial, policy: str) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, policy)
    await t.fill(s, "a")
    await refusal(consumer.fetch(1), ConfigError)
    await _is_refused(t, consumer, group=None)


@T.case("PG-202", "fetch(group=); Client.request_many", "ConfigError for another; a status")
async def unknown_group(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "overflow")
    await t.fill(s, "a")
    await refusal(consumer.fetch(1, group="ghost"), ConfigError)
    await _is_refused(t, consumer, group="ghost")


@T.case("PG-203", "fetch(min_pending=)", "nothing while fewer wait")
async def too_few_pending(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "overflow")
    await t.fill(s, "aaaaa")
    assert await consumer.fetch(1, timeout=BRIEF, group="jobs", min_pending=1000) == []


@T.case("PG-204", "fetch(min_pending=)", "messages while so many wait")
async def enough_pending(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "overflow")
    await t.fill_many(s, "a" * 1500)
    assert len(await consumer.fetch(5, timeout=20, group="jobs", min_pending=1000)) == 5


@T.case("PG-205", "fetch(min_pending=, min_ack_pending=)", "either condition is enough")
async def either_condition(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "overflow")
    await t.fill_many(s, "a" * 100)
    assert len(await consumer.fetch(50, timeout=20, group="jobs")) == 50
    conditions = {"min_pending": 1000, "min_ack_pending": 10}
    assert len(await consumer.fetch(1, timeout=20, group="jobs", **conditions)) == 1


# -- pinned client ---------------------------------------------------------------------------------


@T.case("PG-301", "next(group=), Consumer.info", "the first client is pinned, and its pin is told")
async def first_is_pinned(t: Trial) -> None:
    _, consumer, pin = await _pinned(t)
    (group,) = (await consumer.info()).priority_groups or []
    assert (group.group, group.pinned_client_id) == ("jobs", pin)
    assert group.pinned_ts is not None


@T.case("PG-302", "fetch(group=) of a second handle", "waits, without an error")
async def standby(t: Trial) -> None:
    s, consumer, _ = await _pinned(t)
    await t.fill(s, "a")
    other = await _second_handle(s, consumer)
    result = await other.fetch(1, timeout=BRIEF, group="jobs")
    assert (result, result.error) == ([], None)


@T.case("PG-303", "Client.request_many", "status 423 for another client's pin")
async def wrong_pin(t: Trial) -> None:
    s, consumer, _ = await _pinned(t)
    await t.fill(s, "a")
    reply = await t.pull(consumer, id="definitely-not-the-pin")
    assert status_of(reply)[0] == 423


@T.case("PG-304", "fetch(group=)", "the pinned client keeps its pin")
async def keeps_its_pin(t: Trial) -> None:
    s, consumer, pin = await _pinned(t)
    await t.fill(s, "aaaa")
    messages = await consumer.fetch(4, timeout=20, group="jobs")
    assert [headers_of(m)[PIN] for m in messages] == [pin] * 4


@T.case("PG-305", "next(group=) of a second handle", "is pinned when the first is silent too long")
async def switched_after_silence(t: Trial) -> None:
    s, consumer, pin = await _pinned(t, priority_timeout=2)
    await t.fill(s, "a")
    other = await _second_handle(s, consumer)
    new_pin = await _next_pinned(other)
    assert new_pin != pin
    assert await _pinned_now(consumer) == new_pin
    reply = await t.pull(consumer, id=pin)
    assert status_of(reply)[0] == 423
    # A handle notices, and waits as others do.
    result = await consumer.fetch(1, timeout=BRIEF, group="jobs")
    assert (result, result.error) == ([], None)


@T.case("PG-306", "next(group=)", "the pin stays while the client pulls in time")
async def stays_pinned(t: Trial) -> None:
    s, consumer, pin = await _pinned(t, priority_timeout=4)
    for _ in range(6):
        await asyncio.sleep(1)
        await t.fill(s, "a")
        assert await _next_pinned(consumer) == pin
        assert await _pinned_now(consumer) == pin


@T.case("PG-307", "fetch(group=) without a timeout", "delivers, and pins the client")
async def pinned_at_once(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "pinned_client", priority_timeout=30)
    await t.fill(s, "a")
    messages = await until(lambda: consumer.fetch(1, group="jobs"))
    assert await _pinned_now(consumer) == headers_of(messages[0])[PIN]


# -- unpin -----------------------------------------------------------------------------------------


@T.case("PG-401", "PullConsumer.unpin(group)", "another client is pinned, the first one hears 423")
async def unpinned(t: Trial) -> None:
    s, consumer, pin = await _pinned(t)
    other = await _second_handle(s, consumer)
    waiting = asyncio.create_task(_next_pinned(other))
    await asyncio.sleep(0.3)
    await t.fill(s, "a")
    await consumer.unpin("jobs")
    assert await waiting != pin
    reply = await t.pull(consumer, id=pin)
    assert status_of(reply)[0] == 423


@T.case(
    "PG-402",
    "PullConsumer.unpin(group)",
    "ConsumerInvalidPriorityGroupError for an unknown group; the pin stays",
)
async def unpin_unknown_group(t: Trial) -> None:
    _, consumer, pin = await _pinned(t)
    await refusal(consumer.unpin("ghost"), ConsumerInvalidPriorityGroupError)
    assert await _pinned_now(consumer) == pin


@T.case(
    "PG-403",
    "unpin; JetStream.api_request",
    "ConfigError for another policy; APIError",
    differs="The request is accepted, and does nothing.",
)
async def unpin_of_overflow(t: Trial) -> None:
    consumer = await t.consumer(await t.stream(), "overflow")
    await refusal(consumer.unpin("jobs"), ConfigError)
    names = f"{consumer.stream}.{consumer.name}"
    try:
        await t.js.api_request(f"CONSUMER.UNPIN.{names}", {"group": "jobs"})
    except APIError:
        pass


@T.case("PG-404", "JetStream.api_request; Client.request", "APIError for an unreadable request")
async def unpin_malformed(t: Trial) -> None:
    _, consumer, pin = await _pinned(t)
    subject = f"CONSUMER.UNPIN.{consumer.stream}.{consumer.name}"
    await refusal(t.js.api_request(subject))
    assert await t.err_code(f"$JS.API.{subject}", b"{not json")
    assert await _pinned_now(consumer) == pin


# -- events ----------------------------------------------------------------------------------------


@T.case("PG-501", "JetStream.events", "ConsumerGroupPinnedEvent with the pin")
async def pinned_event(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "pinned_client", priority_timeout=30)
    await t.fill(s, "a")
    async with t.events("consumer_group_pinned", s) as next_event:
        pin = await _next_pinned(consumer)
        event = await next_event()
    assert (event.stream, event.consumer, event.group) == (s.name, consumer.name, "jobs")
    assert event.pinned_id == pin


@T.case("PG-502", "JetStream.events", "ConsumerGroupUnpinnedEvent, reason admin")
async def unpinned_event(t: Trial) -> None:
    s, consumer, _ = await _pinned(t)
    async with t.events("consumer_group_unpinned", s) as next_event:
        await consumer.unpin("jobs")
        event = await next_event()
    assert (event.consumer, event.group, event.reason) == (consumer.name, "jobs", "admin")


@T.case("PG-503", "JetStream.events", "ConsumerGroupUnpinnedEvent, reason timeout")
async def timeout_event(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "pinned_client", priority_timeout=2)
    await t.fill(s, "a")
    async with t.events("consumer_group_unpinned", s) as next_event:
        await _next_pinned(consumer)
        event = await next_event()
    assert (event.consumer, event.group, event.reason) == (consumer.name, "jobs", "timeout")


# -- prioritized -----------------------------------------------------------------------------------


@T.case("PG-601", "fetch; Client.request_many", "ConfigError without a group; a status")
async def prioritized_without_group(t: Trial) -> None:
    await _a_group_is_needed(t, "prioritized")


@T.case("PG-602", "fetch(priority=); Client.request_many", "ConfigError beyond 0 to 9; a status")
async def priority_out_of_range(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "prioritized")
    await t.fill(s, "a")
    for priority in (-1, 10):
        await refusal(consumer.fetch(1, group="jobs", priority=priority), ConfigError)
        await _is_refused(t, consumer, priority=priority)


@T.case("PG-603", "fetch(group=)", "priority 0 by default")
async def default_priority(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "prioritized")
    await t.fill(s, "a")
    assert len(await consumer.fetch(1, timeout=20, group="jobs")) == 1


async def _waiting(
    t: Trial, consumer: PullConsumer, batch: int, priority: int
) -> asyncio.Task[list[Any]]:
    """A fetch that waits at the server."""
    waiting = (await consumer.info()).num_waiting
    fetch = consumer.fetch(batch, timeout=6, group="jobs", priority=priority)
    task: asyncio.Task[list[Any]] = asyncio.create_task(fetch)

    async def waits() -> bool:
        return (await consumer.info()).num_waiting > waiting

    await until(waits)
    return task


@T.case("PG-604", "fetch(priority=)", "the lower number is served first")
async def lower_first(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "prioritized")
    high = await _waiting(t, consumer, 5, 5)
    low = await _waiting(t, consumer, 5, 0)
    await t.fill(s, "aaa")
    assert [len(result) for result in await asyncio.gather(low, high)] == [3, 0]


@T.case("PG-605", "fetch(priority=)", "the higher number while no lower one waits")
async def higher_alone(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "prioritized")
    high = await _waiting(t, consumer, 5, 5)
    await t.fill(s, "a")
    low = await _waiting(t, consumer, 1, 0)
    await t.fill(s, "b")
    assert [m.subject[-1] for m in await low] == ["b"]
    assert [m.subject[-1] for m in await high] == ["a"]


@T.case("PG-606", "fetch(priority=)", "pulls of one priority take turns")
async def in_turns(t: Trial) -> None:
    s = await t.stream()
    consumer = await t.consumer(s, "prioritized")
    pulls = [await _waiting(t, consumer, 10, 0) for _ in range(2)]
    await t.fill(s, "aaaa")
    shares = [len(result) for result in await asyncio.gather(*pulls)]
    assert sum(shares) == 4
    assert all(shares)


# -- state -----------------------------------------------------------------------------------------


@T.case("PG-701", "ConsumerInfo.priority_groups", "the group, without a pin")
async def state_before(t: Trial) -> None:
    consumer = await t.consumer(await t.stream(), "pinned_client", priority_timeout=30)
    (group,) = (await consumer.info()).priority_groups or []
    assert (group.group, group.pinned_client_id or None) == ("jobs", None)


@T.case("PG-702", "ConsumerInfo.priority_groups", "the pin, and since when")
async def state_pinned(t: Trial) -> None:
    _, consumer, pin = await _pinned(t)
    info = await consumer.info()
    (group,) = info.priority_groups or []
    assert group.pinned_client_id == pin
    assert group.pinned_ts is not None
    assert abs((group.pinned_ts - info.created).total_seconds()) < 30


@T.case("PG-703", "ConsumerInfo.priority_groups", "no pin, or another one")
async def state_unpinned(t: Trial) -> None:
    _, consumer, pin = await _pinned(t)
    await consumer.unpin("jobs")
    assert await _pinned_now(consumer) != pin


@T.case("PG-704", "ConsumerInfo.priority_groups", "none for a consumer without groups")
async def state_without_groups(t: Trial) -> None:
    assert not (await (await t.consumer(await t.stream(), None)).info()).priority_groups

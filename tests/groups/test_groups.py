"""Consumer groups on a real server: members, partitions, takeovers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from tests.conftest import MakeStream, NeedsServer
from tests.jetstream.eventually import eventually
from tests.support.frame_proxy import FrameProxy

import jetspark
from jetspark import errors
from jetspark.full_client import JetStream
from jetspark.groups import ElasticConfig, ElasticGroup, GroupMember, GroupMsg, PartitioningFilter
from jetspark.groups.member import MemberConsumer
from jetspark.server import NatsServer

KEYS = [f"k{number}" for number in range(12)]


@pytest.fixture(autouse=True)
def groups(needs_server: NeedsServer) -> None:
    needs_server("2.11")


@pytest.fixture
async def elastic(js: JetStream, make_stream: MakeStream) -> AsyncIterator[ElasticGroup]:
    """Six partitions by the second token, no members."""
    stream = await make_stream()
    group = await js.consumer_groups(stream).create_elastic(
        "cg", max_members=6, filters=[PartitioningFilter(f"{stream}.*", [1])]
    )
    yield group
    with suppress(errors.ConsumerGroupNotFoundError):
        await group.delete()


@pytest.fixture
async def one_member(js: JetStream, elastic: ElasticGroup) -> ElasticGroup:
    """The member is m1, and each key has a message."""
    await elastic.add_members("m1")
    await publish(js, elastic.stream, 0, 1)
    return elastic


@pytest.fixture
async def elsewhere(
    shared_server: NatsServer, one_member: ElasticGroup, told: list[str]
) -> AsyncIterator[ElasticGroup]:
    """The group of another client, whose reports are `told`."""
    options: Any = {"error_callback": lambda error: told.append(str(error))}
    async with jetspark.connect(shared_server.url, **options) as other:
        yield await other.jetstream().consumer_groups(one_member.stream).elastic("cg")


@pytest.fixture
def told() -> list[str]:
    return []


async def publish(js: JetStream, stream: str, first: int, last: int) -> None:
    async with js.publisher() as publisher:
        for number in range(first, last):
            for key in KEYS:
                await publisher.publish(f"{stream}.{key}", b"%d" % number)


async def take(member: GroupMember, count: int) -> list[GroupMsg]:
    taken: list[GroupMsg] = []
    async with asyncio.timeout(60):
        while len(taken) < count:
            taken.append(message := await anext(member))
            await message.ack_sync()
    return taken


async def test_members_share_the_partitions_and_each_key_stays_in_order(
    js: JetStream, elastic: ElasticGroup
) -> None:
    assert await elastic.add_members(["m2", "m1"]) == ["m2", "m1"]
    assert (elastic.partitions("m1"), elastic.partitions("m2")) == ([0, 1, 2], [3, 4, 5])
    await publish(js, elastic.stream, 0, 5)
    found: dict[str, list[tuple[str, int]]] = {key: [] for key in KEYS}
    done = asyncio.Event()

    def callback_of(name: str) -> Callable[[GroupMsg], object]:
        async def callback(message: GroupMsg) -> None:
            assert message.partition in elastic.partitions(name)
            found[message.subject.partition(".")[2]].append((name, int(message.data)))
            await message.ack()
            if sum(map(len, found.values())) == 5 * len(KEYS):
                done.set()

        return callback

    async with asyncio.timeout(60), AsyncExitStack() as stack:
        for name in ("m1", "m2"):
            member = elastic.consume(name, callback=callback_of(name))  # type: ignore[arg-type]
            await stack.enter_async_context(member)
        await done.wait()
        assert await elastic.active_members().all() == ["m1", "m2"]
    for taken in found.values():
        assert [number for _, number in taken] == list(range(5))
        assert len({name for name, _ in taken}) == 1
    assert len({taken[0][0] for taken in found.values()}) == 2


async def test_partitions_go_over_when_members_come_and_go(
    js: JetStream, elastic: ElasticGroup
) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(elastic.consume("m1", ack_wait=2))
        two = await stack.enter_async_context(elastic.consume("m2", ack_wait=2))
        await elastic.add_members("m1")
        await publish(js, elastic.stream, 0, 1)
        await take(one, len(KEYS))
        assert not two.joined
        await elastic.add_members("m2")
        await publish(js, elastic.stream, 1, 2)
        theirs = [message.partition for message in await asyncio.wait_for(_rest(one, two), 60)]
        assert set(theirs) <= {3, 4, 5}
        assert await elastic.delete_members("m2") == ["m1"]
        await publish(js, elastic.stream, 2, 3)
        await take(one, len(KEYS))
        await elastic.delete_members("m1")
        await elastic.set_mappings({"m2": range(6)})
        with pytest.raises(errors.ConfigError, match="has mappings"):
            await elastic.add_members("m1")
        await publish(js, elastic.stream, 3, 4)
        await take(two, len(KEYS))
        await elastic.delete_mappings()
        assert isinstance(elastic.config, ElasticConfig)
        assert elastic.config.member_mappings is None


async def _rest(one: GroupMember, two: GroupMember) -> list[GroupMsg]:
    """What two members take of a round; those of the second."""
    taken: dict[GroupMember, list[GroupMsg]] = {one: [], two: []}

    async def of(member: GroupMember) -> None:
        async for message in member:
            await message.ack_sync()
            taken[member].append(message)
            if sum(map(len, taken.values())) == len(KEYS):
                return

    both = [asyncio.create_task(of(member)) for member in taken]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for task in both:
        task.cancel()
    await asyncio.gather(*both, return_exceptions=True)
    return taken[two]


async def test_another_instance_takes_over_within_twice_ack_wait_when_one_dies(
    shared_server: NatsServer, one_member: ElasticGroup
) -> None:
    wait = 2.0
    async with jetspark.connect(shared_server.url) as other:
        group = await other.jetstream().consumer_groups(one_member.stream).elastic("cg")
        dying = await group.consume("m1", ack_wait=wait).__aenter__()
        first = await dying.next(30)
    died = time.monotonic()  # with a message that it has not acknowledged
    async with one_member.consume("m1", ack_wait=wait) as standby:
        again = await standby.next(30)
        assert time.monotonic() - died < 2 * wait + 10  # of a busy machine
        assert (again.subject, again.data) == (first.subject, first.data)
        await again.ack()
        await take(standby, len(KEYS) - 1)


async def test_an_instance_that_leaves_or_steps_down_is_followed_at_once(
    one_member: ElasticGroup,
) -> None:
    async with (
        asyncio.timeout(60),
        one_member.consume("m1", ack_wait=60) as one,
        one_member.consume("m1", ack_wait=60) as other,
    ):
        waiting = {asyncio.create_task(anext(each)): each for each in (one, other)}
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        (task,) = done
        pinned = waiting.pop(task)
        ((standing_by, standby),) = waiting.items()
        await (await task).ack_sync()
        message = await anext(pinned)  # the server has sent it already
        await one_member.step_down("m1")
        await message.ack_sync()
        await (await standing_by).ack_sync()
        resuming = asyncio.create_task(anext(pinned))
        await standby.stop()  # with one that was sent, and is not taken
        await (await resuming).ack_sync()
        await take(pinned, len(KEYS) - 4)


async def test_an_instance_with_a_cancelled_end_is_followed(one_member: ElasticGroup) -> None:
    async with asyncio.timeout(30), one_member.consume("m1", ack_wait=60) as one:
        await (await anext(one)).ack_sync()
        leaving = asyncio.create_task(one.stop())
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        async with one_member.consume("m1", ack_wait=60) as following:
            await take(following, len(KEYS) - 1)


async def test_a_message_on_its_way_to_an_instance_that_leaves_is_handled_at_once(
    shared_server: NatsServer, one_member: ElasticGroup
) -> None:
    async with (
        asyncio.timeout(30),
        FrameProxy(shared_server.port) as proxy,
        jetspark.connect(proxy.url) as client,
    ):
        group = await client.jetstream().consumer_groups(one_member.stream).elastic("cg")
        async with group.consume("m1", ack_wait=60) as leaving:
            message = await anext(leaving)
            sent = proxy.arm(1, "stalled", delay=0.2, wanted=lambda frame: b"$JS.ACK." in frame)
            await message.ack()
            await eventually(lambda: sent.hit is not None)
        async with one_member.consume("m1", ack_wait=60) as following:
            await take(following, len(KEYS) - 1)


async def _next_has_come(member: GroupMember) -> None:
    """A message is in its buffer."""
    messages = member._messages
    assert messages is not None
    await eventually(lambda: messages.pending_msgs > 0)


async def test_what_came_before_a_pause_is_not_handed_out_when_another_instance_had_it(
    js: JetStream, one_member: ElasticGroup, elsewhere: ElasticGroup
) -> None:
    await publish(js, one_member.stream, 1, 2)
    async with asyncio.timeout(60), one_member.consume("m1", ack_wait=1) as one:
        await (await anext(one)).ack_sync()
        await _next_has_come(one)
        async with elsewhere.consume("m1", ack_wait=1) as standby:
            await one_member.step_down("m1")
            await take(standby, 2 * len(KEYS) - 1)
            with pytest.raises(jetspark.RequestTimeoutError):
                await one.next(0.5)
            await publish(js, one_member.stream, 2, 3)
            await take(standby, len(KEYS))
            waiting = asyncio.create_task(anext(one))
        await publish(js, one_member.stream, 3, 4)
        message = await waiting
        assert message.data == b"3"
        await message.ack_sync()
        await take(one, len(KEYS) - 1)


async def test_a_message_that_came_again_while_it_was_handled_is_not_handed_out_after_its_ack(
    one_member: ElasticGroup,
) -> None:
    async with asyncio.timeout(60), one_member.consume("m1", ack_wait=1) as member:
        first = await anext(member)
        await _next_has_come(member)
        await first.ack_sync()
        rest = await take(member, len(KEYS) - 1)
        assert len({message.subject for message in [first, *rest]}) == len(KEYS)


async def test_a_message_without_ack_comes_again_to_its_instance(one_member: ElasticGroup) -> None:
    async with asyncio.timeout(60), one_member.consume("m1", ack_wait=1) as member:
        first, again = await anext(member), await anext(member)
        assert (again.subject, again.metadata.deliveries) == (first.subject, 2)
        await again.ack_sync()
        await asyncio.sleep(1)  # longer than ack_wait: the next one is asked about
        await take(member, len(KEYS) - 1)


async def test_what_other_instances_got_is_not_reported_as_missing(
    js: JetStream, one_member: ElasticGroup, elsewhere: ElasticGroup, told: list[str]
) -> None:
    async with asyncio.timeout(60), one_member.consume("m1", ack_wait=2) as one:
        await (await anext(one)).ack_sync()
        async with elsewhere.consume("m1", ack_wait=2) as standby:
            await asyncio.sleep(1)  # it has heard from the consumer
            await take(one, len(KEYS) - 1)
            await one.stop()
            await publish(js, one_member.stream, 1, 2)
            await take(standby, len(KEYS))
            await asyncio.sleep(2)  # longer than it takes to be certain
    assert told == []


async def test_options_that_cannot_work_are_refused(js: JetStream, elastic: ElasticGroup) -> None:
    await elastic.add_members("m1")
    wrong: list[dict[str, Any]] = [
        *({"max_ack_pending": 0}, {"max_ack_pending": -2}, {"ack_wait": 0}),
        {"ack_policy": "none"},
    ]
    for options in wrong:
        for member in ("m1", "nobody"):
            with pytest.raises(errors.ConfigError):
                elastic.consume(member, **options)
    with pytest.raises(errors.ConfigError, match="delete_mappings"):
        await elastic.set_mappings({})
    nobody: list[dict[str, Any]] = [{}, {"members": [], "mappings": {}}]
    for members in nobody:
        with pytest.raises(errors.ConfigError, match="needs members or mappings"):
            await js.consumer_groups(elastic.stream).create_static("s", max_members=2, **members)
    for limit in ("max_buffered_msgs", "max_buffered_bytes"):
        negative: dict[str, Any] = {limit: -5}
        with pytest.raises(errors.ConfigError, match="cannot be negative"):
            await js.consumer_groups(elastic.stream).create_elastic("e", max_members=2, **negative)
    assert await js.consumer_groups(elastic.stream).static_names().all() == []


async def test_misspelt_members_and_filters_raise(js: JetStream, elastic: ElasticGroup) -> None:
    await elastic.add_members(["m1", "m2"])
    misspelt = r'"M1" is not a member .*: did you mean "m1"\?'
    with pytest.raises(errors.ConfigError, match=misspelt):
        await elastic.delete_members("M1")
    with pytest.raises(errors.ConfigError, match=misspelt):
        elastic.partitions("M1")
    filters = [PartitioningFilter("meter.*", [1])]
    with pytest.raises(errors.ConfigError, match=r'filter "meter\.\*" matches none'):
        await js.consumer_groups(elastic.stream).create_elastic(
            "no", max_members=2, filters=filters
        )
    assert await js.consumer_groups(elastic.stream).elastic_names().all() == ["cg"]


async def test_who_is_none_of_the_members_waits_and_is_told_once(
    one_member: ElasticGroup, elsewhere: ElasticGroup, told: list[str]
) -> None:
    async with asyncio.timeout(60), elsewhere.consume("M1") as member:
        await eventually(lambda: told)
        await one_member.add_members("M1")
        await one_member.delete_members("m1")
        await take(member, len(KEYS))
    assert told == [
        f'"M1" is not a member of consumer group "cg" of stream "{one_member.stream}": '
        'did you mean "m1"?'
    ]


async def test_members_end_when_their_group_is_deleted(
    js: JetStream, one_member: ElasticGroup
) -> None:
    group = one_member
    async with asyncio.timeout(60), group.consume("m1") as member:
        ending = asyncio.create_task(take(member, len(KEYS) + 1))
        await group.delete()
        for ended in (ending, member.wait_stopped()):
            with pytest.raises(errors.ConsumerGroupNotFoundError):
                await ended
    for call in (js.consumer_groups(group.stream).elastic("cg"), group.add_members("m2")):
        with pytest.raises(errors.ConsumerGroupNotFoundError):
            await call
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream(f"{group.stream}-cg").info()


async def test_a_refused_group_leaves_nothing_and_a_stream_of_its_name_is_not_deleted(
    js: JetStream, elastic: ElasticGroup
) -> None:
    stream, foreign = elastic.stream, f"{elastic.stream}-other"
    filters = [PartitioningFilter(f"{stream}.*", [1])]
    options: dict[str, Any] = {"retention": "workqueue", "storage": "memory"}
    await js.create_stream(name=foreign, subjects=[foreign], **options)
    await js.publish(foreign, b"precious")
    with pytest.raises(errors.NameInUseError, match=f'"{foreign}" exists'):
        await js.consumer_groups(stream).create_elastic("other", max_members=6, filters=filters)
    assert await js.consumer_groups(stream).elastic_names().all() == ["cg"]
    with pytest.raises(errors.APIError):
        # More than the server has.
        await js.consumer_groups(stream).create_elastic(
            "huge", max_members=6, max_buffered_bytes=1 << 60
        )
    assert await js.consumer_groups(stream).elastic_names().all() == ["cg"]
    # A group whose stream was deleted, and its name taken.
    await js.delete_stream(f"{stream}-cg")
    source = {"name": stream, "subject_transforms": [{"src": ">", "dest": "mine.>"}]}
    await js.create_stream(name=f"{stream}-cg", sources=[source], **options)
    with pytest.raises(errors.NameInUseError):
        await js.consumer_groups(stream).create_elastic("cg", max_members=6, filters=filters)
    assert await js.consumer_groups(stream).elastic_names().all() == ["cg"]  # it was there before
    await elastic.delete()
    for name in (foreign, f"{stream}-cg"):
        await js.delete_stream(name)


async def test_a_failure_of_the_server_itself_is_reported_and_tried_again_while_the_group_exists(
    one_member: ElasticGroup,
    elsewhere: ElasticGroup,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure = errors.APIError(500, 10012, "open obs/m1/meta.inf.tmp: no such file or directory")
    pull, failing, asked = MemberConsumer.pull, True, asyncio.Event()

    async def fails(self: MemberConsumer, filters: list[str]) -> Any:
        if failing:
            asked.set()
            raise failure
        return await pull(self, filters)

    monkeypatch.setattr(MemberConsumer, "pull", fails)
    async with asyncio.timeout(60), elsewhere.consume("m1") as member:
        for _ in range(2):
            await asked.wait()
            asked.clear()
        failing = False
        await take(member, len(KEYS))
        assert told == [str(failure)]
        failing = True
        async with elsewhere.consume("m1") as standby:
            asked.clear()
            await asked.wait()
            await one_member.delete()
            with pytest.raises(errors.ConsumerGroupNotFoundError):
                await standby.wait_stopped()
        with pytest.raises(errors.ConsumerGroupNotFoundError):
            await member.wait_stopped()


async def test_a_static_group_reads_a_stream_with_partitions(
    js: JetStream, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    dest = "{{partition(4,1)}}." + stream + ".{{wildcard(1)}}"
    await js.stream(stream).update(subject_transform={"src": f"{stream}.*", "dest": dest})
    await publish(js, stream, 0, 3)
    group = await js.consumer_groups(stream).create_static("cg", max_members=4, members=["a", "b"])
    assert await js.consumer_groups(stream).static_names().all() == ["cg"]
    assert await js.consumer_groups(stream).elastic_names().all() == []
    again = await js.consumer_groups(stream).create_static("cg", max_members=4, members=["a", "b"])
    assert again.config == group.config
    with pytest.raises(errors.ConfigError, match="exists with other options"):
        await js.consumer_groups(stream).create_static("cg", max_members=4, members=["a"])
    with pytest.raises(errors.ConfigError, match=r"its members are a, b\."):
        group.consume("c")
    with pytest.raises(errors.ConfigError, match=r'mean "a"\?'):
        group.consume("A")
    with pytest.raises(errors.ConfigError, match="decides on durable_name"):
        group.consume("a", durable_name="x")  # type: ignore[call-arg]
    found: list[GroupMsg] = []
    async with asyncio.timeout(60), group.consume("a") as a, group.consume("b") as b:
        for member in (a, b):
            with suppress(jetspark.RequestTimeoutError):
                while True:
                    found.append(message := await member.next(1 if found else 30))
                    await message.ack_sync()
        assert await group.active_members().all() == ["a", "b"]
        assert (await js.stream(stream).consumer("cg-a")).cached_info.config.durable_name == "cg-a"
        await group.delete()
        with pytest.raises(errors.ConsumerGroupNotFoundError):
            await a.wait_stopped()
    assert sorted(message.subject for message in found) == sorted(
        f"{stream}.{key}" for key in KEYS for _ in range(3)
    )
    with pytest.raises(errors.ConsumerNotFoundError):
        await js.stream(stream).consumer("cg-a")

"""Consumers on a real server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import MakeServer, NeedsServer, Unique

from jetspark import errors
from jetspark.documents.consumers import ConsumerConfig
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import PullConsumer


async def test_create_consumer_never_changes_an_existing_one(js: JetStream, stream: str) -> None:
    config = ConsumerConfig(durable_name="c", ack_wait=timedelta(seconds=7))
    made = await js.stream(stream).create_consumer(config)
    assert isinstance(made, PullConsumer)
    assert (made.name, made.stream) == ("c", stream)
    assert made.cached_info.config.ack_policy == "explicit"
    again = await js.stream(stream).create_consumer(config)
    assert again.cached_info.created == made.cached_info.created
    with pytest.raises(errors.NameInUseError, match='"c"'):
        await js.stream(stream).create_consumer(config, ack_wait=timedelta(seconds=8))
    assert (await made.info()).config.ack_wait == timedelta(seconds=7)
    await made.delete()
    with pytest.raises(errors.ConsumerNotFoundError, match=f'"c" of stream "{stream}"'):
        await made.info()


@pytest.mark.parametrize(
    "options", [{}, {"filter_subject": "x.>", "max_ack_pending": 7}, {"metadata": {"k": "v"}}]
)
async def test_a_named_consumer_is_durable_and_creating_it_again_binds(
    js: JetStream, stream: str, needs_server: NeedsServer, options: dict[str, Any]
) -> None:
    if "metadata" in options:
        needs_server("2.10")
    for _ in range(2):  # bound
        worker = await js.stream(stream).create_consumer(name="worker", **options)
        config = (await worker.info()).config
        assert (config.durable_name, config.inactive_threshold) == ("worker", None)
    again = await js.stream(stream).create_consumer(durable_name="worker", **options)
    assert again.cached_info.created == worker.cached_info.created
    with pytest.raises(errors.NameInUseError, match='"worker"'):
        await js.stream(stream).create_consumer(
            name="worker", **options, ack_wait=timedelta(seconds=7)
        )
    assert (
        await js.stream(stream).create_or_update_consumer(name="other")
    ).cached_info.config.durable_name == "other"


async def test_a_named_consumer_with_a_threshold_is_removed(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    minute = timedelta(minutes=1)
    for _ in range(2):  # bound
        reader = await js.stream(stream).create_consumer(name="reader", inactive_threshold=minute)
        config = (await reader.info()).config
        assert (config.durable_name, config.inactive_threshold) == (None, minute)
    # A document is sent as it is.
    for document in ({"name": "plain", "ack_policy": "explicit"}, ConsumerConfig(name="typed")):
        made = await js.stream(stream).create_consumer(document)
        assert made.cached_info.config.durable_name is None
    named = await js.stream(stream).create_or_update_consumer(
        {"name": "third", "ack_policy": "none"}
    )
    assert named.cached_info.config.durable_name is None


async def test_update_consumer_keeps_options_not_given(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    await js.stream(stream).create_consumer(
        durable_name="c", ack_wait=7, filter_subject=f"{stream}.a"
    )
    config = (await (await js.stream(stream).consumer("c")).update(max_ack_pending=5)).config
    assert (config.max_ack_pending, config.ack_wait) == (5, timedelta(seconds=7))
    assert config.filter_subject == f"{stream}.a"
    filters = [f"{stream}.b", f"{stream}.c.>"]
    config = (await (await js.stream(stream).consumer("c")).update(filter_subjects=filters)).config
    assert (config.filter_subject, config.filter_subjects) == (None, filters)
    config = (
        await (await js.stream(stream).consumer("c")).update(filter_subject=f"{stream}.d")
    ).config
    assert (config.filter_subject, config.filter_subjects) == (f"{stream}.d", None)
    with pytest.raises(errors.ConsumerNotFoundError):
        await (await js.stream(stream).consumer("nobody")).update(max_ack_pending=5)
    with pytest.raises(errors.ConfigError, match="renamed"):
        await (await js.stream(stream).consumer("c")).update(name="d")


async def test_create_or_update_consumer_does_either(js: JetStream, stream: str) -> None:
    made = await js.stream(stream).create_or_update_consumer(durable_name="c", max_deliver=3)
    changed = await js.stream(stream).create_or_update_consumer(durable_name="c", description="d")
    assert made.cached_info.config.ack_policy == changed.cached_info.config.ack_policy == "explicit"
    assert (changed.cached_info.config.max_deliver, changed.cached_info.config.description) == (
        3,
        "d",
    )


async def test_a_consumer_without_a_name_gets_one(js: JetStream, stream: str) -> None:
    names = sorted([(await js.stream(stream).create_consumer()).name for _ in range(2)])
    assert len(set(names)) == 2
    assert sorted(await js.stream(stream).consumer_names().all()) == names
    assert sorted([info.name async for info in js.stream(stream).consumers()]) == names
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream("absent").consumer_names().all()


async def test_binding_to_a_kind(js: JetStream, stream: str, nc: Client, unique: Unique) -> None:
    await js.stream(stream).create_consumer(durable_name="pull")
    subject = unique("deliver")
    push = await js.stream(stream).create_push_consumer(
        durable_name="push", deliver_subject=subject
    )
    assert push.deliver_subject == subject
    assert (await js.stream(stream).consumer("pull")).name == "pull"
    assert (await js.stream(stream).push_consumer("push")).deliver_subject == subject
    with pytest.raises(errors.ConsumerIsPushError):
        await js.stream(stream).consumer("push")
    with pytest.raises(errors.ConfigError, match="pull consumer"):
        await js.stream(stream).push_consumer("pull")
    with pytest.raises(errors.ConsumerNotFoundError):
        await js.stream(stream).consumer("nobody")
    async with nc.subscribe(subject) as deliveries:
        await js.publish(f"{stream}.a", b"pushed")
        msg = await deliveries.next(20)
        assert (msg.data, msg.metadata.consumer) == (b"pushed", "push")


@pytest.mark.parametrize("filter", ["a", "*", ">"])
async def test_next_gives_one_message_or_a_timeout(js: JetStream, stream: str, filter: str) -> None:
    consumer = await js.stream(stream).create_consumer(
        name="c", filter_subject=f"{stream}.{filter}"
    )
    await js.publish(f"{stream}.a", b"1")
    await js.publish(f"{stream}.a", b"2")
    assert [(await consumer.next()).data, (await consumer.next(30)).data] == [b"1", b"2"]
    with pytest.raises(errors.RequestTimeoutError):
        await consumer.next(0.05)


async def test_wrong_consumer_options_are_not_sent(js: JetStream, nc: Client) -> None:
    before = nc.stats.out_msgs
    for options, error in (
        ({"name": "a", "durable_name": "b"}, errors.ConfigError),
        ({"name": "a.b"}, errors.BadNameError),
        ({"durable_name": "a b"}, errors.BadNameError),
        ({"filter_subject": "a", "filter_subjects": ["b"]}, errors.ConfigError),
        ({"filter_subject": "a..b"}, errors.ConfigError),
        ({"deliver_subject": "x"}, errors.ConfigError),
        ({"ack_wate": timedelta(1)}, TypeError),
    ):
        with pytest.raises(error):
            await js.stream("S").create_consumer(**options)
    with pytest.raises(errors.BadNameError):
        await js.stream("S.T").create_consumer(name="c")
    with pytest.raises(errors.ConfigError, match="deliver_subject"):
        await js.stream("S").create_push_consumer(name="c")
    assert nc.stats.out_msgs == before


async def test_permissions_by_filter(make_server: MakeServer, needs_server: NeedsServer) -> None:
    needs_server("2.10")  # for older servers the client has to look whether the consumer exists
    server = make_server(
        """
        jetstream {}
        authorization { users: [
          { user: admin, password: pw }
          { user: eu, password: pw, permissions: {
              publish: ["$JS.API.CONSUMER.CREATE.S.*.orders.eu", "$JS.API.CONSUMER.MSG.NEXT.S.*"]
              subscribe: ["_INBOX.>"] } }
        ] }
        """
    )
    async with (
        connect(server.url, user="admin", password="pw") as admin,
        connect(server.url, user="eu", password="pw") as eu,
    ):
        await JetStream(admin).create_stream(name="S", subjects=["orders.*"])
        await JetStream(admin).publish("orders.eu", b"x")
        js = JetStream(eu, timeout=2)
        consumer = await js.stream("S").create_consumer(name="c", filter_subject="orders.eu")
        assert len(await consumer.fetch(1, timeout=5)) == 1
        with pytest.raises(errors.PermissionsError):
            await js.stream("S").create_consumer(name="d", filter_subject="orders.us")

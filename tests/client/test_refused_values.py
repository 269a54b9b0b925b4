"""Values that would be misread in silence: each call refuses them, and nothing is sent.

What type checkers find, and Python refuses, is not listed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import NeedsServer, Unique

from jetspark import blocking
from jetspark.acl import Responses
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.errors import ConfigError, JetsparkError
from jetspark.full_client import connect
from jetspark.kv import Origin, ZlibCodec
from jetspark.objects import ObjectInfo
from jetspark.server import NatsServer

NAN, INF = float("nan"), float("inf")
WHOLE: list[Any] = [True, 1.5, NAN, "5", 2**63]
COUNTS = [*WHOLE, 0, -1]
SEQUENCES = [True, 1.5, NAN, "5", 2**64, 0, -1]
EXPECTED = [True, 1.5, NAN, "5", 2**64, -1]
"""Sequences, or 0 for none."""
NOW = datetime.now(UTC)
MOMENTS: list[Any] = [5, "2026-01-01T00:00:00Z", datetime(2026, 1, 1)]
AGES = [NAN, -INF, -1, timedelta(-1), True]
TEXTS: list[Any] = [5, b"ab", True, Path("a"), NOW]
"""What is no text."""
SEVERAL: list[Any] = [b"", b"ab", {"a": 1}, [5], [b"a"]]
"""What is no text and no list of texts."""

Call = Callable[[Any, Any], Any]
"""Of what there is (nc, js, bucket, store, name of a stream, folder) and the wrong value."""

CALLS: list[tuple[str, Call, list[Any]]] = [
    # Whole numbers.
    ("max_msgs ", lambda at, v: at.nc.subscribe("a", max_msgs=v), [*WHOLE, -1]),
    ("pending_msgs_limit ", lambda at, v: at.nc.subscribe("a", pending_msgs_limit=v), COUNTS),
    ("pending_bytes_limit ", lambda at, v: at.nc.subscribe("a", pending_bytes_limit=v), COUNTS),
    ("pending_msgs_limit ", lambda at, v: at.js.events(pending_msgs_limit=v), COUNTS),
    ("max_msgs ", lambda at, v: at.nc.subscribe("a").unsubscribe(v), [*WHOLE, -1]),
    ("max_msgs ", lambda at, v: at.nc.request_many("a", max_msgs=v), [*WHOLE, -1]),
    ("window ", lambda at, v: at.js.publisher(v), COUNTS),
    ("keep ", lambda at, v: at.js.stream(at.name).purge(keep=v), COUNTS),
    ("chunk_size ", lambda at, v: at.store.put("x", b"", chunk_size=v), COUNTS),
    ("chunk_size ", lambda at, v: at.js.backup_stream(at.name, at.folder, chunk_size=v), COUNTS),
    ("window_size ", lambda at, v: at.js.backup_stream(at.name, at.folder, window_size=v), COUNTS),
    ("batch ", lambda at, v: at.js.stream(at.name).get_many(batch=v), COUNTS),
    ("max_msgs ", lambda at, v: at.js.stream(at.name).get_many(max_msgs=v), COUNTS),
    ("max_messages ", lambda at, v: at.js.stream(at.name).ordered(max_messages=v), COUNTS),
    # Sequences: 0 is "not given" to the server.
    ("seq ", lambda at, v: at.js.stream(at.name).purge(seq=v), SEQUENCES),
    ("seq ", lambda at, v: at.js.stream(at.name).delete_msg(v), SEQUENCES),
    ("seq ", lambda at, v: at.js.stream(at.name).get(v), SEQUENCES),
    ("seq ", lambda at, v: at.js.stream(at.name).get_many(v), SEQUENCES),
    ("up_to_seq ", lambda at, v: at.js.stream(at.name).get_many(up_to_seq=v), SEQUENCES),
    ("up_to_seq ", lambda at, v: at.js.stream(at.name).get_last(">", up_to_seq=v), SEQUENCES),
    ("start_seq ", lambda at, v: at.js.stream(at.name).ordered(start_seq=v), SEQUENCES),
    ("seq ", lambda at, v: at.consumer.reset(v), SEQUENCES),
    ("revision ", lambda at, v: at.bucket.get("a", v), SEQUENCES),
    ("revision ", lambda at, v: at.bucket.revert("a", v), [None, *SEQUENCES]),
    ("resume_from ", lambda at, v: at.bucket.watch(resume_from=v), SEQUENCES),
    ("revision ", lambda at, v: at.bucket.update("a", b"", v), [None, *EXPECTED]),
    ("revision ", lambda at, v: at.bucket.delete("a", v), EXPECTED),
    ("expect_last_seq ", lambda at, v: at.js.publish(at.name, expect_last_seq=v), EXPECTED),
    # Times.
    (
        "until is a datetime",
        lambda at, v: at.consumer.pause(v),
        [None, *MOMENTS],
    ),
    (
        "start_time is a datetime",
        lambda at, v: at.js.stream(at.name).ordered(start_time=v),
        MOMENTS,
    ),
    (
        "start_time is a datetime",
        lambda at, v: at.js.stream(at.name).get_many(start_time=v),
        MOMENTS,
    ),
    (
        "up_to_time is a datetime",
        lambda at, v: at.js.stream(at.name).get_last(">", up_to_time=v),
        MOMENTS,
    ),
    ("at is a datetime", lambda at, v: at.js.schedule("s", target="t", at=v), MOMENTS),
    (
        "opt_start_time: ",
        lambda at, v: at.js.stream(at.name).create_consumer(opt_start_time=v),
        [datetime(2026, 1, 1)],
    ),
    ("seconds", lambda at, v: at.nc.request("a", timeout=v), [*AGES, 0]),
    ("seconds", lambda at, v: at.nc.flush(v), [*AGES, 0]),
    ("seconds", lambda at, v: at.nc.subscribe("a").next(v), AGES),
    ("seconds", lambda at, v: at.nc.jetstream(timeout=v), [*AGES, 0]),
    ("ttl ", lambda at, v: at.js.publish(at.name, ttl=v), [*AGES, 0, 1.5]),
    ("ttl ", lambda at, v: at.bucket.create("a", b"", ttl=v), [*AGES, 0, 1.5]),
    ("every ", lambda at, v: at.js.schedule("s", target="t", every=v), [*AGES, 0]),
    (
        "backoff",
        lambda at, v: at.js.stream(at.name).create_consumer(backoff=v),
        [b"\1\2", [True], [-INF], [1e300]],
    ),
    (
        "inactive_threshold",
        lambda at, v: at.js.stream(at.name).ordered(inactive_threshold=v),
        [NAN, INF, -INF, 1e300, -1, True],
    ),
    # Durations and times where a number or a text is wanted.
    (
        "Not a usable ConsumerConfig: max_deliver: expected int",
        lambda at, v: at.js.stream(at.name).create_consumer(max_deliver=v),
        [timedelta(microseconds=1), NOW, True, "5"],
    ),
    (
        "Not a usable StreamConfig: max_msgs: expected int",
        lambda at, v: at.js.create_stream({"name": "S", "max_msgs": v}),
        [timedelta(microseconds=1), NOW, True, "5"],
    ),
    (
        "Not a usable ConsumerConfig: filter_subject: expected str",
        lambda at, v: at.js.stream(at.name).create_consumer(filter_subject=v),
        [NOW, timedelta(1), 5, True],
    ),
    (
        "Not a usable StreamConfig: metadata[...]: expected str",
        lambda at, v: at.js.create_stream(name="S", metadata={"a": v}),
        [NOW, timedelta(1), 5, True],
    ),
    # Lists of texts.
    ("subjects", lambda at, v: at.js.create_stream(name="S", subjects=v), [*SEVERAL, [NOW]]),
    ("subjects", lambda at, v: at.js.stream(at.name).ordered(subjects=v), SEVERAL),
    ("keys ", lambda at, v: at.bucket.watch(v), SEVERAL),
    ("servers ", lambda at, v: at.nc.set_servers(v), SEVERAL),
    # Names, texts, mappings and objects.
    ("The name of an object ", lambda at, v: at.store.put(v, b""), [None, *TEXTS]),
    ("The name of an object ", lambda at, v: at.store.info(v), [None, *TEXTS]),
    ("The name of an object ", lambda at, v: at.store.get_into(v, at.folder), [None, *TEXTS]),
    ("The name of an object ", lambda at, v: at.store.update_meta("o", new_name=v), TEXTS),
    (
        "headers",
        lambda at, v: at.store.put("x", b"", headers=v),
        [5, "ab", [("a", "b")], {5: "a"}, {"a": [5]}, {"a": b"ab"}],
    ),
    ("target is the info of an object", lambda at, v: at.store.add_link("l", v), [None, *TEXTS]),
    ("api_prefix is a text", lambda at, v: at.nc.jetstream(api_prefix=v), TEXTS),
    ("cron is a text", lambda at, v: at.js.schedule("s", target="t", cron=v), TEXTS),
    ("keys is a codec", lambda at, v: at.bucket.with_codecs(keys=v), [5, "base64", ZlibCodec()]),
    ("values is a codec", lambda at, v: at.bucket.with_codecs(values=v), [5, "zlib"]),
    (
        "metadata",
        lambda at, v: at.nc.add_service("s", "1.0.0", metadata=v),
        [5, "", {5: "a"}, {"a": 5}],
    ),
    (
        "description is a text",
        lambda at, v: at.nc.add_service("s", "1.0.0", description=v),
        [None, *TEXTS],
    ),
    ("holder is a text", lambda at, v: at.bucket.lock("a", holder=v), TEXTS),
    (
        "The name of a field of Placement is a text",
        lambda at, v: at.js.create_stream(name="S", placement=v),
        [{5: "a"}, {None: 1}],
    ),
    ("", lambda at, v: at.bucket.purge_deletes(older_than=v), AGES[1:]),
    ("", lambda at, v: at.store.purge_orphans(older_than=v), AGES),
    ("seconds", lambda at, v: at.bucket.live(resync=v), [*AGES, 0]),
    ("max_age", lambda at, v: at.js.create_stream(name="S", max_age=v), [NAN]),
    # Words.
    (
        "retention is 'limits', 'interest' or 'workqueue'",
        lambda at, v: at.js.create_stream(name="S", retention=v),
        ["workqueu", "work_queue"],
    ),
    (
        "storage is 'file' or 'memory', not 'fiel'; did you mean 'file'?",
        lambda at, v: at.js.create_bucket("b", storage=v),
        ["fiel"],
    ),
    (
        "did you mean 'last'?",
        lambda at, v: at.js.stream(at.name).ordered(deliver_policy=v),
        ["lats"],
    ),
    (
        "deliver_policy",
        lambda at, v: at.js.stream(at.name).ordered(deliver_policy=v),
        ["", False, 0, b"", []],
    ),
    ("There is no kind of event 'x'", lambda at, v: at.js.events(kinds=v), ["x", ["x"]]),
    # What is empty counts as not given.
    ("msg_id is empty", lambda at, v: at.js.publish(at.name, msg_id=v), [""]),
    ("subject", lambda at, v: at.js.stream(at.name).purge(filter=v), ["", "a b"]),
    (
        "Not a usable ObjectInfo: metadata",
        lambda at, v: at.store.put("x", b"", metadata=v),
        [{"run": 17}, {"a": [1]}],
    ),
    ("pathlib.Path", lambda at, v: at.store.put("x", v), ["text"]),
    # Paths.
    ("folder is not a valid file path", lambda at, v: at.js.restore_stream(v), ["a\0b", "\ud800"]),
    ("the path of a file", lambda at, v: at.store.get_into("o", v), [Path("/"), "/", ""]),
    # Links that lead to themselves.
    (
        "Link 'l' cannot lead to the store that it is in",
        lambda at, v: at.store.add_store_link("l", at.store.name),
        [None],
    ),
    (
        "Link 'l' cannot lead to itself",
        lambda at, v: at.store.add_link(v, ObjectInfo(name="l", bucket=at.store.name, nuid="n")),
        ["l"],
    ),
]


class Things:
    def __init__(
        self, nc: Any, consumer: Any, bucket: Any, store: Any, name: str, folder: Path
    ) -> None:
        self.nc, self.js, self.consumer = nc, nc.jetstream(), consumer
        self.bucket, self.store, self.name, self.folder = bucket, store, name, folder


async def _made(url: str, unique: Unique) -> tuple[str, str, str]:
    """A stream, a bucket and an object store with an object."""
    names = unique("S"), unique("b"), unique("o")
    async with connect(url) as nc:
        js = nc.jetstream()
        await js.create_stream(name=names[0], subjects=[names[0]], storage="memory")
        await js.stream(names[0]).create_consumer(name="c")
        await js.create_bucket(names[1], storage="memory")
        await (await js.create_object_store(names[2], storage="memory")).put("o", b"x")
    return names


async def test_a_value_that_would_be_misread_is_refused(
    shared_server: NatsServer, unique: Unique, tmp_path: Path, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    names = await _made(shared_server.url, unique)
    async with asyncio.timeout(120), connect(shared_server.url) as nc:
        js = nc.jetstream()
        bucket, store = await js.bucket(names[1]), await js.object_store(names[2])
        at = Things(
            nc,
            await js.stream(names[0]).consumer("c"),
            bucket,
            store,
            names[0],
            tmp_path / "backup",
        )
        for words, call, values in CALLS:
            for value in values:
                with pytest.raises(JetsparkError) as raised:
                    result = call(at, value)
                    if inspect.isawaitable(result):
                        await result
                    pytest.fail(f"{words}: {value!r} is taken")
                assert words in str(raised.value)
        assert not at.folder.exists()
        assert nc.last_error is None


def test_the_blocking_client_refuses_it_too(
    shared_server: NatsServer, unique: Unique, tmp_path: Path, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    names = asyncio.run(_made(shared_server.url, unique))
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        bucket, store = js.bucket(names[1]), js.object_store(names[2])
        at = Things(
            nc, js.stream(names[0]).consumer("c"), bucket, store, names[0], tmp_path / "backup"
        )
        for words, call, values in CALLS:
            with pytest.raises(JetsparkError) as raised:
                call(at, values[0])
                pytest.fail(f"{words}: {values[0]!r} is taken")
            assert words in str(raised.value)
        assert not at.folder.exists()


OPTIONS: dict[str, tuple[list[Any], str]] = {
    "first_connect": (["wiat", None], "first_connect is 'once', 'wait' or 'background'"),
    "connect_timeout": ([0, -1, -INF], "connect_timeout"),
    "request_timeout": ([True, False], "A duration is seconds or a timedelta, not "),
    "servers": ([b"nats://a", [b"nats://a"], {"nats://a": 1}], "servers"),
    "proxy": ([5, b"http://a:1"], "proxy is a text"),
    "jetstream_api_prefix": ([5, b"a"], "api_prefix is a text"),
    "ping_interval": ([NAN], "A timeout must be more than 0 seconds, not nan"),
    "reconnect_jitter": ([INF, 1e18, -1], "cannot be negative or infinite"),
    "pending_size": ([NAN, "x", 1.5, True, -1, timedelta(1)], "pending_size "),
    "max_reconnect_attempts": ([NAN, "x", True, -2], "max_reconnect_attempts "),
    "max_outstanding_pings": ([True, 0], "max_outstanding_pings "),
    "max_control_line": ([NAN, True, 255], "max_control_line "),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_would_be_misread_is_refused(option: str) -> None:
    values, words = OPTIONS[option]
    for value in values:
        with pytest.raises(ConfigError) as raised:
            make_options(**{option: value})
        assert words in str(raised.value)


def test_one_text_is_never_taken_apart() -> None:
    assert (
        ConnectOptions(servers="nats://a,nats://b").urls()
        == make_options(["nats://a", "nats://b"]).urls()
    )
    assert Origin("b", keys="ab").keys == ("ab",)


def test_numbers_of_other_values_are_checked() -> None:
    for wrong in (True, 0, 1.5):
        with pytest.raises(ConfigError, match=r"^max "):
            Responses(max=wrong)  # type: ignore[arg-type]
    for wrong in (True, 10, -2):
        with pytest.raises(ConfigError, match=r"^level "):
            ZlibCodec(wrong)


forever = pytest.mark.parametrize("forever", [INF, 1e30, 10**400], ids=["inf", "huge", "no float"])


@forever
async def test_timeout_for_ever(shared_server: NatsServer, unique: Unique, forever: float) -> None:
    name = unique("S")
    async with connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=forever)
        await js.create_stream(name=name, subjects=[name], storage="memory")
        await js.publish(name, timeout=forever)
        consumer = await js.stream(name).create_consumer(name="c", ack_policy="none")
        assert len(await consumer.fetch(1, timeout=forever)) == 1
        assert (await js.stream(name).ordered().next(forever)).subject == name
        await nc.flush(forever)


@forever
def test_a_timeout_of_the_blocking_client_may_be_for_ever(
    shared_server: NatsServer, unique: Unique, forever: float
) -> None:
    name = unique("S")
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=forever)
        js.create_stream(name=name, subjects=[name], storage="memory")
        js.publish(name, timeout=forever)
        consumer = js.stream(name).create_consumer(name="c", ack_policy="none")
        assert len(consumer.fetch(1, timeout=forever)) == 1
        assert js.stream(name).ordered().next(forever).subject == name
        assert js.create_bucket(unique("b")).watch().next(forever) is None
        nc.flush(forever)


@pytest.mark.parametrize("option", ["echo", "reconnect", "tls", "tls_first", "pedantic"])
def test_a_text_is_no_switch(option: str) -> None:
    given: dict[str, Any] = {option: "no"}
    with pytest.raises(ConfigError, match="True or False") as refused:
        make_options("nats://a", **given)
    assert refused.value.option == option


def test_a_name_is_a_text() -> None:
    with pytest.raises(ConfigError, match=r"^name is a text, not 3\.$"):
        make_options("nats://a", name=3)

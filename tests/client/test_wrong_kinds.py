"""Arguments of a wrong kind, and values that cannot be meant: what each call says of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jetspark import blocking
from jetspark.errors import ConfigError, JetsparkError
from jetspark.full_client import connect
from jetspark.jetstream import verify_backup
from jetspark.kv import Base64Codec, KeyChain, Origin, ValueChain, ZlibCodec
from jetspark.objects import ObjectInfo

if TYPE_CHECKING:
    from jetspark.server import NatsServer

NAN, INF = float("nan"), float("inf")
NO_KEYS = [None, 5, b"x", ["a"], object()]
NO_LISTS = [5, b"x", [5], object()]
NO_TIMES = [None, "5", [1], object()]
NO_CONFIGS = [5, [1], object(), b"", "x", "[]", Path("/nope"), Path("/")]

Call = Callable[[Any, Any], Any]
"""Of what there is (nc, js, bucket, store, name of a stream, folder) and the wrong value."""

CALLS: dict[str, tuple[Call, list[Any], str]] = {
    # Made for each message: checked where it fails.
    "publish": (lambda at, v: at.nc.publish(v), [[], {}, ["a"], None, 5], "a subject is a str"),
    "publish_nowait": (lambda at, v: at.nc.publish_nowait(v), [[], {}], "a subject is a str"),
    "request": (lambda at, v: at.nc.request(v), [[], {}, 5], "a subject is a str"),
    "reply": (lambda at, v: at.nc.publish("a", reply=v), [[], 5], "a subject is a str"),
    "publish js": (lambda at, v: at.js.publish(v), [[], {}, None], "a subject is a str"),
    "increment": (lambda at, v: at.js.increment(v), [[], {}, None], "a subject is a str"),
    "expect": (lambda at, v: at.js.publish("a", expect_last_seq=v), [int], "a whole number"),
    "key": (lambda at, v: at.bucket.get(v), NO_KEYS, "it is a str"),
    "key put": (lambda at, v: at.bucket.put(v), NO_KEYS, "it is a str"),
    "key create": (lambda at, v: at.bucket.create(v), NO_KEYS, "it is a str"),
    "key update": (lambda at, v: at.bucket.update(v, b"", 1), NO_KEYS, "it is a str"),
    "key delete": (lambda at, v: at.bucket.delete(v), NO_KEYS, "it is a str"),
    "leader": (lambda at, v: at.bucket.get("a", leader=v), ["no", 5], "leader is True or False"),
    "direct": (lambda at, v: at.js.get_msg("S", 1, direct=v), ["no", 5], "direct is True or False"),
    "next": (lambda at, v: at.nc.subscribe("a").next(v), [-1, -0.5], "more than 0 seconds"),
    "next of watch": (lambda at, v: at.bucket.watch("q").next(v), [-1], "more than 0 seconds"),
    "next of ordered": (lambda at, v: at.js.ordered(at.name).next(v), [-1], "more than 0 seconds"),
    "headers": (lambda at, v: at.nc.publish("a", headers=v), [0, 5], "headers is a mapping"),
    "bytes in headers": (
        lambda at, v: at.nc.publish("a", headers={"A": v}),
        [b"x", bytearray(b"x"), None, 5],
        "the value of header 'A' is a str, not ",
    ),
    "bytes as a header": (
        lambda at, v: at.nc.publish("a", headers={v: "x"}),
        [b"A"],
        "the name of a header is a str, not b'A'",
    ),
    # Texts, and several of them.
    "subscribe": (lambda at, v: at.nc.subscribe(v), [[], 5], "subject is a str"),
    "request_many": (lambda at, v: at.nc.request_many(v), [[], 5], "subject is a str"),
    "keys": (lambda at, v: at.bucket.keys(v), [None, *NO_LISTS], "keys is a str or a list of str"),
    "history": (lambda at, v: at.bucket.history(v), [None, *NO_LISTS], "keys is a str or"),
    "watch": (lambda at, v: at.bucket.watch(v), [None, *NO_LISTS], "keys is a str or"),
    "live": (lambda at, v: at.bucket.live(v), [None, *NO_LISTS], "keys is a str or"),
    "last": (lambda at, v: at.js.get_last_msgs("S", v), [None, *NO_LISTS], "subjects is a str or"),
    "counters": (lambda at, v: at.js.get_counters("S", v), [None, *NO_LISTS], "subjects is a str"),
    "ordered": (lambda at, v: at.js.ordered("S", subjects=v), NO_LISTS, "subjects is a str or"),
    "kinds": (lambda at, v: at.js.events(kinds=v), NO_LISTS, "kinds is a str or a list of str"),
    "preferred": (
        lambda at, v: at.js.stream_leader_stepdown("S", preferred=v),
        [object(), int],
        "preferred is a str",
    ),
    # Numbers, times, switches.
    "pending": (
        lambda at, v: at.js.events(pending_msgs_limit=v),
        ["x", None, NAN, 1.5, True],
        "pending_msgs_limit is a whole number",
    ),
    "max_msgs": (lambda at, v: at.nc.subscribe("a", max_msgs=v), [int, NAN], "a whole number"),
    "seq": (lambda at, v: at.js.delete_msg("S", v), [object(), "x", None], "seq is a whole number"),
    "reset": (lambda at, v: at.js.reset_consumer("S", "c", v), ["x"], "seq is a whole number"),
    "resume": (lambda at, v: at.bucket.watch(resume_from=v), ["x"], "resume_from is a whole"),
    "chunk": (
        lambda at, v: at.js.backup_stream("S", at.folder, chunk_size=v),
        ["x", NAN],
        "chunk_size is a whole number",
    ),
    "retry_for": (lambda at, v: at.js.publisher(retry_for=v), NO_TIMES, "retry_for is a number of"),
    "expires": (lambda at, v: at.js.ordered("S", expires=v), NO_TIMES, "expires is a number of s"),
    "heartbeat": (lambda at, v: at.bucket.watch(heartbeat=v), NO_TIMES, "heartbeat is a number of"),
    "resync": (lambda at, v: at.bucket.live(resync=v), NO_TIMES, "resync is a number of seconds"),
    "older_than": (lambda at, v: at.bucket.purge_deletes(older_than=v), NO_TIMES, "a timedelta"),
    "orphans": (lambda at, v: at.store.purge_orphans(older_than=v), NO_TIMES, "older_than is a n"),
    "trace": (lambda at, v: at.nc.jetstream(trace=v), ["no", 5, None], "trace is True or False"),
    "until": (lambda at, v: at.js.pause_consumer("S", "c", v), [None, 5, "x"], "until is a dateti"),
    "details": (
        lambda at, v: at.js.stream_info("S", deleted_details=v),
        [object(), 5],
        "deleted_details is True or False",
    ),
    "sequences": (
        lambda at, v: at.js.delete_msg(at.name, v),
        [-1, 0, 2**64],
        "seq is a whole numb",
    ),
    "get_msgs": (lambda at, v: at.js.get_msgs(at.name, v), [-1, 0, 10**30], "seq is a whole numb"),
    "up_to_seq": (lambda at, v: at.js.get_last_msgs("S", ">", up_to_seq=v), [0], "up_to_seq is a"),
    "start_seq": (lambda at, v: at.js.ordered(at.name, start_seq=v), [-1, 0], "start_seq is a wh"),
    "purge": (lambda at, v: at.js.purge_stream(at.name, seq=v), [-1, 0], "seq is a whole number"),
    "revert": (lambda at, v: at.bucket.revert("a", v), [-1, 0], "revision is a whole number"),
    "resume_from": (lambda at, v: at.bucket.watch(resume_from=v), [-1, 0], "resume_from is a who"),
    "revision": (lambda at, v: at.bucket.get("a", v), [-1, 0, 10**30], "revision must be at "),
    "keep many": (lambda at, v: at.js.purge_stream("S", keep=v), [10**30], "keep must be at most"),
    "since": (
        lambda at, v: at.js.ordered(at.name, start_time=v),
        [datetime(2026, 1, 1), "yesterday"],
        "start_time is a datetime with a time zone",
    ),
    "up_to_time": (
        lambda at, v: at.js.get_last_msgs(at.name, ">", up_to_time=v),
        [datetime(2026, 1, 1)],
        "up_to_time is a datetime with a time zone",
    ),
    "negative age": (
        lambda at, v: at.bucket.purge_deletes(older_than=v),
        [-1, timedelta(-1)],
        "older_than cannot be negative",
    ),
    "negative age of orphans": (
        lambda at, v: at.store.purge_orphans(older_than=v),
        [-1],
        "older_than cannot be negative",
    ),
    # Words, and what is empty.
    "retention": (
        lambda at, v: at.js.create_stream(name="S", retention=v),
        ["workqueu", "work_queue"],
        "retention is 'limits', 'interest' or 'workqueue'",
    ),
    "storage": (
        lambda at, v: at.js.create_bucket("b", storage=v),
        ["fiel"],
        "storage is 'file' or 'memory', not 'fiel'; did you mean 'file'?",
    ),
    "ack_policy": (
        lambda at, v: at.js.create_consumer(at.name, ack_policy=v),
        ["explict"],
        "did you mean 'explicit'?",
    ),
    "deliver_policy": (
        lambda at, v: at.js.ordered(at.name, deliver_policy=v),
        ["lats"],
        "did you mean 'last'?",
    ),
    "on_disconnect": (
        lambda at, v: at.js.publisher(on_disconnect=v),
        ["fial"],
        "on_disconnect is 'auto', 'fail' or 'resend', not 'fial'; did you mean 'fail'?",
    ),
    "empty msg_id": (lambda at, v: at.js.publish(at.name, msg_id=v), [""], "msg_id is empty"),
    "empty headers": (lambda at, v: at.nc.publish("a", headers=v), ["", b""], "headers is a mapp"),
    "empty headers of js": (
        lambda at, v: at.js.publish(at.name, headers=v),
        ["", b""],
        "headers is a mapping",
    ),
    "a store in itself": (
        lambda at, v: at.store.add_store_link("l", at.store.name),
        [None],
        "Link 'l' cannot lead to the store that it is in",
    ),
    "an object in itself": (
        lambda at, v: at.store.add_link(v, ObjectInfo(name="l", bucket=at.store.name, nuid="n")),
        ["l"],
        "Link 'l' cannot lead to itself",
    ),
    # Functions.
    "sentinel": (
        lambda at, v: at.nc.request_many("a", sentinel=v),
        [5, "x"],
        "sentinel is True or",
    ),
    "on_change": (lambda at, v: at.bucket.live(on_change=v), [5, "f"], "is a function"),
    "progress": (
        lambda at, v: at.js.backup_stream("S", at.folder, progress=v),
        [5, "f"],
        "a function",
    ),
    # Configurations.
    "stream": (lambda at, v: at.js.create_stream(v), NO_CONFIGS, ""),
    "stream by text": (
        lambda at, v: at.js.create_stream(v),
        ["x"],
        "A str is the JSON text of a S",
    ),
    "stream by number": (
        lambda at, v: at.js.create_stream(v),
        [5],
        "config is a StreamConfig, a m",
    ),
    "update": (lambda at, v: at.js.update_stream(v), NO_CONFIGS, ""),
    "consumer": (lambda at, v: at.js.create_consumer("S", v), NO_CONFIGS, ""),
    "create_bucket": (lambda at, v: at.js.create_bucket("b", v), [5, {"histroy": 5}], "BucketConf"),
    "store config": (lambda at, v: at.js.create_object_store("b", v), [5, {"a": 5}], "ObjectStore"),
    "misspelt": (
        lambda at, v: at.js.create_stream(v),
        [{"name": "S", "max_mgss": 5}, '{"name": "S", "max_mgss": 5}'],
        "did you mean 'max_msgs'",
    ),
    "misspelt option": (lambda at, v: at.js.create_bucket("b", **v), [{"histroy": 5}], "'history'"),
    "no name": (lambda at, v: at.js.create_stream(v), [{5: 5}], "a mapping of str to anything"),
    "extra": (lambda at, v: at.js.create_stream(name="S", extra=v), [5, None, "x"], "extra is a d"),
    "time for a number": (
        lambda at, v: at.js.create_stream(name="S", max_msgs=v),
        [timedelta(days=1)],
        "max_msgs is a whole number, not datetime.timedelta",
    ),
    "time in a mapping": (
        lambda at, v: at.js.create_stream({"name": "S", "max_msgs": v}),
        [timedelta(days=1)],
        "max_msgs is no time",
    ),
    "api_request": (
        lambda at, v: at.js.api_request("INFO", v),
        [5, object()],
        "document is a mapp",
    ),
    "text": (lambda at, v: at.js.api_request("INFO", v), ["\ud800", '"\ud800'], "lone surrogate"),
    "mirror": (lambda at, v: at.js.create_bucket_mirror("m", v), [5, None, "b"], "origin is an Or"),
    "mirror name": (
        lambda at, v: at.js.create_bucket_mirror(v, Origin("b")),
        [5, None],
        "name is a",
    ),
    "aggregate": (
        lambda at, v: at.js.create_bucket_aggregate("a", v),
        [5, None, "b", ["b"], Origin("b")],
        "origins is a list of Origin or Source",
    ),
    "codec": (lambda at, v: at.bucket.with_codecs(keys=v), [5, "x", Base64Codec], "is a KeyCodec"),
    "values": (lambda at, v: at.bucket.with_codecs(values=v), [5, ZlibCodec], "is a ValueCodec"),
    # Paths.
    "backup": (
        lambda at, v: at.js.backup_stream("S", v),
        [None, 5, b"x"],
        "folder is a str or a p",
    ),
    "restore": (
        lambda at, v: at.js.restore_stream(v),
        [None, 5, b"x"],
        "folder is a str or a path",
    ),
    "odd folder": (
        lambda at, v: at.js.restore_stream(v),
        ["a\0b", "\ud800"],
        "folder is not a valid file path",
    ),
    "odd backup": (
        lambda at, v: at.js.backup_stream("S", v),
        ["a\0b", "\ud800"],
        "folder is not a",
    ),
    "data": (lambda at, v: at.store.put("x", v), [Path("/nope"), Path("/")], "Cannot read /"),
    "target": (lambda at, v: at.store.get_into("o", v), [Path("/"), "/", ""], "the path of a file"),
    "odd target": (
        lambda at, v: at.store.get_into("o", v),
        ["a\0b", "\ud800"],
        "target is not a valid file path",
    ),
    "no folder": (lambda at, v: at.store.get_into("o", v), ["/nope/x"], "Cannot write /nope/x"),
}


async def _made(server: NatsServer, unique: Callable[[str], str]) -> tuple[str, str, str]:
    """A stream, a bucket and an object store with an object."""
    names = unique("S"), unique("b"), unique("o")
    async with connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name=names[0], subjects=[names[0]], storage="memory")
        await js.create_bucket(names[1])
        await (await js.create_object_store(names[2])).put("o", b"x")
    return names


@pytest.mark.parametrize("label", CALLS)
async def test_wrong_kind_is_refused_with_its_words(
    shared_server: NatsServer, unique: Callable[[str], str], tmp_path: Path, label: str
) -> None:
    call, values, words = CALLS[label]
    names = await _made(shared_server, unique)
    async with connect(shared_server.url) as nc:
        js = nc.jetstream()
        at = Things(nc, js, await js.bucket(names[1]), await js.object_store(names[2]), names[0])
        at.folder = tmp_path / "backup"
        for value in values:
            with pytest.raises(JetsparkError) as raised:
                async with asyncio.timeout(20):
                    result = call(at, value)
                    if inspect.isawaitable(result):
                        await result
            assert words in str(raised.value)
        assert not at.folder.exists()


@pytest.mark.parametrize("label", CALLS)
def test_what_the_blocking_client_says_of_it(
    shared_server: NatsServer, unique: Callable[[str], str], tmp_path: Path, label: str
) -> None:
    call, values, words = CALLS[label]
    names = asyncio.run(_made(shared_server, unique))
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        at = Things(nc, js, js.bucket(names[1]), js.object_store(names[2]), names[0])
        at.folder = tmp_path / "backup"
        for value in values:
            with pytest.raises(JetsparkError) as raised:
                call(at, value)
            if "callback" not in str(raised.value).casefold():  # they are looked at before
                assert words in str(raised.value)
        assert not at.folder.exists()


class Things:
    def __init__(self, nc: Any, js: Any, bucket: Any, store: Any, name: str) -> None:
        self.nc, self.js, self.bucket, self.store, self.name = nc, js, bucket, store, name
        self.folder = Path()


async def test_listen_refuses_handlers_that_are_not_functions(shared_server: NatsServer) -> None:
    async with connect(shared_server.url) as nc:
        for name in ("on_end", "on_run", "on_disconnect", "on_reconnect", "on_refused"):
            with pytest.raises(ConfigError, match=f"^{name} is a function, not 5"):
                nc.listen("a", lambda frame: None, **{name: 5})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"^handler is a function"):
            nc.listen("a", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 5, "x", b"x", [5], KeyChain, object()])
def test_codec_chain_refuses_anything_but_codecs(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^codecs is a KeyCodec"):
        KeyChain(Base64Codec(), wrong)
    with pytest.raises(ConfigError, match=r"^codecs is a ValueCodec"):
        ValueChain(wrong)
    if wrong != 5:
        with pytest.raises(ConfigError, match=r"^level is a whole number"):
            ZlibCodec(wrong)


@pytest.mark.parametrize("wrong", [None, 5, b"x", object()])
def test_a_backup_to_verify_is_a_folder(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^folder is a str or a path"):
        verify_backup(wrong)


OPTIONS: dict[str, tuple[list[Any], str]] = {
    "servers": ([5, [None], [5], b"x", object()], "is a str"),
    "name": ([5, b"x", None], "is a str"),
    "password": ([5], "is a str or a function, not int"),
    "reconnect": (["no", None, 0, 5], "is True or False"),
    "tls": ([None, "x"], "is True or False"),
    "echo": ([NAN], "is True or False"),
    "connect_timeout": ([None, "x", [1]], "is a number of seconds"),
    "reconnect_wait": ([None, "x"], "is a number of seconds"),
    "reconnect_jitter": ([INF, 1e18, -1], "cannot be negative, or for ever"),
    "pending_size": ([NAN, None, "x", 1.5, timedelta(1)], "is a whole number"),
    "max_reconnect_attempts": ([NAN, None, "x", True], "is a whole number"),
    "max_control_line": ([NAN, INF], "is a whole number"),
    "jetstream_api_prefix": ([5, b"x"], "is a str"),
    "ws_headers": ([5, None, "a b", ["a"], {1: 2}, {"a": None}], "is a mapping of str to str"),
    "reconnect_delay": ([5, "f"], "is a function"),
    "ssl_context": ([5], "is a SSLContext"),
    "event_callback": ([5, "f"], "is a function"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_wrong_option_is_refused_with_its_words(option: str) -> None:
    values, words = OPTIONS[option]
    for value in values:
        for made in (connect, blocking.connect):
            with pytest.raises(ConfigError) as raised:
                made(**{option: value})
            assert words in str(raised.value)

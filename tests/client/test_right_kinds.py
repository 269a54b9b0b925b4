"""Arguments that fit, in other forms than the plain one: each is handed on as it is meant."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from jetspark import blocking
from jetspark.connection.options import ConnectOptions
from jetspark.documents.consumers import ConsumerConfig
from jetspark.documents.streams import StreamConfig
from jetspark.errors import BadTimeError, ConfigError
from jetspark.full_client import connect
from jetspark.timestamps import in_seconds

if TYPE_CHECKING:
    from jetspark.server import NatsServer


class Text(str):
    """As np.str_ is one: a subclass of str."""

    __slots__ = ()


def member(text: str) -> Any:
    """Formatted, it says "K.IT"."""
    K: Any = Enum("K", {"IT": text}, type=str)
    return K.IT


class Whole:
    """As np.int64 is one: a number by __index__ alone."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


def whole_enum(number: int) -> Any:
    N: Any = IntEnum("N", {"IT": number})
    return N.IT


class Array:
    """As an array of NumPy's is one: it has a length and is no Sequence."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Any:
        return iter(self.items)

    def __contains__(self, item: object) -> bool:
        return item in self.items


TEXTS: list[Any] = [Text, member]
WHOLE: list[Any] = [Whole, whole_enum]
TIMES: list[Any] = [Decimal, Fraction, Whole, lambda it: timedelta(seconds=it)]
LISTS: list[Any] = [tuple, set, Array, iter, lambda items: (Text(item) for item in items)]
SWITCHES: list[Any] = [bool]
try:
    import numpy
except ImportError:
    pass
else:
    TEXTS.append(numpy.str_)
    WHOLE.append(numpy.int64)
    TIMES += [numpy.int64, numpy.float32]
    LISTS.append(numpy.array)
    SWITCHES.append(numpy.bool_)

Call = Callable[[Any, Callable[..., Any]], Any]
"""Of what there is (nc, js, bucket, store, name of a stream), and what makes the form."""

CALLS: dict[str, tuple[Call, list[Any]]] = {
    # Texts.
    "create_stream": (lambda at, f: at.js.create_stream(name=f(at.name + "x")), TEXTS),
    "stream mapping": (
        lambda at, f: at.js.create_stream({f("name"): f(at.name + "x"), f("storage"): f("memory")}),
        TEXTS,
    ),
    "stream subjects": (
        lambda at, f: at.js.create_stream(name=at.name + "x", subjects=[f(at.name + "x")]),
        TEXTS,
    ),
    "stream document": (
        lambda at, f: at.js.create_stream(StreamConfig(name=f(at.name + "x"))),
        TEXTS,
    ),
    "stream_info": (lambda at, f: at.js.stream_info(f(at.name)), TEXTS),
    "subjects_filter": (lambda at, f: at.js.stream_info(at.name, subjects_filter=f(">")), TEXTS),
    "consumer": (lambda at, f: at.js.consumer(f(at.name), f("c")), TEXTS),
    "create_consumer": (
        lambda at, f: at.js.create_consumer(f(at.name), name=f("d"), filter_subject=f(at.name)),
        TEXTS,
    ),
    "get_msg": (lambda at, f: at.js.get_msg(f(at.name), last_by_subject=f(at.name)), TEXTS),
    "get_msg of the leader": (
        lambda at, f: at.js.get_msg(f(at.name), last_by_subject=f(at.name), direct=False),
        TEXTS,
    ),
    "purge_stream": (lambda at, f: at.js.purge_stream(at.name, filter=f(at.name)), TEXTS),
    "stream_names": (lambda at, f: at.listed(at.js.stream_names(f(at.name))), TEXTS),
    "api_request": (
        lambda at, f: at.js.api_request("STREAM.NAMES", {f("subject"): f(at.name)}),
        TEXTS,
    ),
    "ordered": (lambda at, f: at.js.ordered(f(at.name), subjects=[f(at.name)]).next(20), TEXTS),
    "publish": (lambda at, f: at.js.publish(f(at.name), b"", msg_id=f("i")), TEXTS),
    "expect": (lambda at, f: at.js.publish(at.name, b"", expect_stream=f(at.name)), TEXTS),
    "put": (lambda at, f: at.store.put(f("new"), b"x"), TEXTS),
    "object": (lambda at, f: at.store.get_bytes(f("o")), TEXTS),
    "bucket": (lambda at, f: at.js.bucket(f(at.bucket.name)), TEXTS),
    "key": (lambda at, f: at.bucket.put(f("new"), b"x"), TEXTS),
    "key got": (lambda at, f: at.bucket.get(f("k")), TEXTS),
    "watch": (lambda at, f: at.bucket.watch(f("k")).next(20), TEXTS),
    "subscribe": (lambda at, f: at.nc.subscribe(f("a"), queue=f("q")), TEXTS),
    # Numbers.
    "fetch": (lambda at, f: at.consumer.fetch(f(2), timeout=0.2), WHOLE),
    "consume": (lambda at, f: at.consumer.consume(max_messages=f(2)).next(20), WHOLE),
    "seq": (lambda at, f: at.js.get_msg(at.name, f(1)), WHOLE),
    "seq of the leader": (lambda at, f: at.js.get_msg(at.name, f(1), direct=False), WHOLE),
    "expect seq": (lambda at, f: at.js.publish(at.name, b"", expect_last_seq=f(2)), WHOLE),
    "keep": (lambda at, f: at.js.purge_stream(at.name, keep=f(1)), WHOLE),
    "delete_msg": (lambda at, f: at.js.delete_msg(at.name, f(1)), WHOLE),
    "revision": (lambda at, f: at.bucket.get("k", revision=f(1)), WHOLE),
    "chunk": (lambda at, f: at.store.put("new", b"x", chunk_size=f(1000)), WHOLE),
    "number of the API": (
        lambda at, f: at.js.api_request(f"STREAM.MSG.GET.{at.name}", {"seq": f(1)}),
        WHOLE,
    ),
    "max_msgs": (lambda at, f: at.js.create_stream(name=at.name + "x", max_msgs=f(5)), WHOLE),
    "history": (lambda at, f: at.js.create_bucket(at.bucket.name + "x", history=f(5)), WHOLE),
    "max_deliver": (
        lambda at, f: at.js.create_consumer(at.name, name="d", max_deliver=f(5)),
        WHOLE,
    ),
    "opt_start_seq": (
        lambda at, f: at.js.create_consumer(
            at.name, name="d", deliver_policy="by_start_sequence", opt_start_seq=f(2)
        ),
        WHOLE,
    ),
    # Switches.
    "no_ack": (lambda at, f: at.js.create_stream(name=at.name + "x", no_ack=f(True)), SWITCHES),
    "no_ack in a mapping": (
        lambda at, f: at.js.create_stream({"name": at.name + "x", "no_ack": f(True)}),
        SWITCHES,
    ),
    "details": (lambda at, f: at.js.stream_info(at.name, deleted_details=f(True)), SWITCHES),
    "direct": (lambda at, f: at.js.get_msg(at.name, 1, direct=f(True)), SWITCHES),
    "leader": (lambda at, f: at.bucket.get("k", leader=f(True)), SWITCHES),
    # Times.
    "timeout": (lambda at, f: at.js.publish(at.name, b"", timeout=f(20)), TIMES),
    "next": (lambda at, f: at.js.ordered(at.name).next(f(20)), TIMES),
    "fetch timeout": (lambda at, f: at.consumer.fetch(1, timeout=f(1)), TIMES),
    "jetstream": (lambda at, f: at.nc.jetstream(timeout=f(20)).stream_info(at.name), TIMES),
    "ttl": (lambda at, f: at.js.publish(at.name, b"", ttl=f(60)), TIMES),
    # Lists.
    "subjects": (
        lambda at, f: at.js.create_stream(name=at.name + "x", subjects=f([at.name + "x"])),
        LISTS,
    ),
    "subjects in a mapping": (
        lambda at, f: at.js.create_stream({"name": at.name + "x", "subjects": f([at.name + "x"])}),
        LISTS,
    ),
    "last": (lambda at, f: at.listed(at.js.get_last_msgs(at.name, f([at.name]))), LISTS),
    "subjects of ordered": (
        lambda at, f: at.js.ordered(at.name, subjects=f([at.name])).next(20),
        LISTS,
    ),
    "keys": (lambda at, f: at.bucket.keys(f(["k"])), LISTS),
    "backoff": (
        lambda at, f: at.js.create_consumer(
            at.name, name="d", max_deliver=4, backoff=f([timedelta(1), timedelta(2)])
        ),
        [tuple, iter],
    ),
    "bytes of JSON": (
        lambda at, f: at.js.create_stream(f(b'{"name": "%sx"}' % at.name.encode())),
        [bytearray, memoryview],
    ),
}


class Things:
    def __init__(self, nc: Any, js: Any, bucket: Any, store: Any, consumer: Any, name: str) -> None:
        self.nc, self.js, self.bucket, self.store = nc, js, bucket, store
        self.consumer, self.name = consumer, name

    def listed(self, items: Any) -> Any:
        if hasattr(items, "__iter__"):
            return list(items)
        return self._listed(items)

    async def _listed(self, items: Any) -> list[Any]:
        return [item async for item in items]


async def _made(url: str, unique: Callable[[str], str]) -> tuple[str, str, str]:
    names = unique("S"), unique("b"), unique("o")
    async with connect(url) as nc:
        js = nc.jetstream(timeout=20)
        await js.create_stream(
            name=names[0],
            subjects=[names[0]],
            storage="memory",
            allow_direct=True,
            allow_msg_ttl=True,
        )
        for _ in range(2):
            await js.publish(names[0], b"x")
        await js.create_consumer(names[0], durable_name="c")
        await (await js.create_bucket(names[1], storage="memory")).put("k", b"x")
        await (await js.create_object_store(names[2], storage="memory")).put("o", b"x")
    return names


CASES = [(label, number) for label, (_, forms) in CALLS.items() for number in range(len(forms))]


@pytest.mark.parametrize(("label", "number"), CASES)
async def test_client_accepts_every_listed_form(
    shared_server: NatsServer, unique: Callable[[str], str], label: str, number: int
) -> None:
    call, forms = CALLS[label]
    names = await _made(shared_server.url, unique)
    async with asyncio.timeout(60), connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=20)
        bucket, store = await js.bucket(names[1]), await js.object_store(names[2])
        consumer = await js.consumer(names[0], "c")
        result = call(Things(nc, js, bucket, store, consumer, names[0]), forms[number])
        if inspect.isawaitable(result):
            await result
        await nc.flush()
        assert nc.last_error is None


@pytest.mark.parametrize(("label", "number"), CASES)
def test_blocking_client_accepts_every_listed_form(
    shared_server: NatsServer, unique: Callable[[str], str], label: str, number: int
) -> None:
    call, forms = CALLS[label]
    names = asyncio.run(_made(shared_server.url, unique))
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=20)
        bucket, store = js.bucket(names[1]), js.object_store(names[2])
        consumer = js.consumer(names[0], "c")
        call(Things(nc, js, bucket, store, consumer, names[0]), forms[number])
        nc.flush()
        assert nc.last_error is None


@pytest.mark.parametrize("form", TEXTS)
def test_options_of_a_connection_are_plain(form: Any) -> None:
    options = ConnectOptions(servers=form("nats://a"), name=form("n"), user=form("u"), password="p")
    assert [type(it) for it in (options.servers, options.name, options.user)] == [str] * 3
    assert (options.servers, options.name, options.user) == ("nats://a", "n", "u")


def test_plain_arguments_are_handed_on_as_they_are() -> None:
    subjects = ("nats://a", "nats://b")
    assert ConnectOptions(servers=subjects).servers is subjects


async def test_items_of_a_generator_are_checked(shared_server: NatsServer) -> None:
    async with connect(shared_server.url) as nc:
        with pytest.raises(ConfigError, match=r"^subjects is a str or a list of str"):
            nc.jetstream().ordered("S", subjects=(it for it in ["a", 5]))  # type: ignore[arg-type]


def test_numbers_of_every_kind_are_times() -> None:
    assert in_seconds(Decimal("2.5")) == 2.5  # type: ignore[call-overload]
    assert in_seconds(Fraction(5, 2)) == 2.5  # type: ignore[call-overload]
    wrong: Any
    for wrong in (True, "5", [5], 5j):
        with pytest.raises(BadTimeError):
            in_seconds(wrong)


def test_lists_of_a_document() -> None:
    given: Any = (timedelta(1), timedelta(2))
    backoff = ConsumerConfig(backoff=given).backoff
    assert backoff == [timedelta(1), timedelta(2)]


async def test_increment_refuses_a_bool(shared_server: NatsServer) -> None:
    async with connect(shared_server.url) as nc:
        with pytest.raises(ConfigError, match="by is a whole number"):
            await nc.jetstream().increment("a", True)


def test_an_object_with_an_async_call_is_no_callback(shared_server: NatsServer) -> None:
    class Called:
        async def __call__(self, _: object) -> None: ...

    with (
        blocking.connect(shared_server.url) as nc,
        pytest.raises(ConfigError, match="plain functions, not async"),
    ):
        nc.subscribe("a", callback=Called())  # type: ignore[arg-type]

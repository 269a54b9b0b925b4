"""Arguments of the wrong kind: one sentence of ours that names them, and nothing is sent."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from jetspark import blocking
from jetspark.connection.options import make_options
from jetspark.errors import ConfigError, JetsparkError
from jetspark.full_client import connect
from jetspark.kv import Origin

if TYPE_CHECKING:
    from jetspark.server import NatsServer

NAN = float("nan")
NO_NUMBERS = ["5", b"5", NAN, 1.5, [1], None, object()]
NO_TEXTS = [5, b"x", ["x"], NAN, object()]
NO_MAPPINGS = [5, "text", b"x", [1], object()]

Call = Callable[[Any, Any, Any, Any], Any]
"""Of a client, its JetStream, an object store, and the wrong value."""

CALLS: dict[str, tuple[Call, list[Any]]] = {
    "subject": (lambda nc, js, o, v: nc.publish_nowait(v), [5, b"x", None]),
    "subscribe": (lambda nc, js, o, v: nc.subscribe(v), [5, b"x", None]),
    "headers": (lambda nc, js, o, v: nc.publish_nowait("a", headers=v), NO_MAPPINGS),
    "message": (lambda nc, js, o, v: nc.publish_msg(v), ["text", None, 5]),
    "message of a request": (lambda nc, js, o, v: nc.request_msg(v), ["text", None, 5]),
    "message of js": (lambda nc, js, o, v: js.publish_msg(v), ["text", None, 5]),
    "callback": (lambda nc, js, o, v: nc.subscribe("a", callback=v), ["f", 5]),
    "callback of ordered": (lambda nc, js, o, v: js.ordered("S", callback=v), ["f", 5]),
    "max_msgs": (lambda nc, js, o, v: nc.subscribe("a", max_msgs=v), NO_NUMBERS),
    "pending": (lambda nc, js, o, v: nc.subscribe("a", pending_msgs_limit=v), NO_NUMBERS),
    "unsubscribe": (lambda nc, js, o, v: nc.subscribe("a").unsubscribe(v), NO_NUMBERS),
    "request_many": (lambda nc, js, o, v: nc.request_many("a", max_msgs=v), NO_NUMBERS),
    "timeout": (lambda nc, js, o, v: nc.request("a", timeout=v), ["5", NAN, [1]]),
    "flush": (lambda nc, js, o, v: nc.flush(v), ["5", NAN, [1]]),
    "next": (lambda nc, js, o, v: nc.subscribe("a").next(v), ["5", NAN, [1]]),
    "api_prefix": (lambda nc, js, o, v: nc.jetstream(api_prefix=v), NO_TEXTS),
    "domain": (lambda nc, js, o, v: nc.jetstream(domain=v), NO_TEXTS),
    "js timeout": (lambda nc, js, o, v: nc.jetstream(timeout=v), [None, "5", NAN]),
    "window": (lambda nc, js, o, v: js.publisher(v), NO_NUMBERS),
    "keep": (lambda nc, js, o, v: js.purge_stream("S", keep=v), ["5", NAN, [1]]),
    "expect": (lambda nc, js, o, v: js.publish("a", expect_last_seq=v), ["5", NAN, [1]]),
    "seq": (lambda nc, js, o, v: js.get_msg("S", v), ["5", NAN, [1]]),
    "start_seq": (lambda nc, js, o, v: js.ordered("S", start_seq=v), ["5", NAN, [1]]),
    "bucket": (lambda nc, js, o, v: js.bucket(v), NO_TEXTS),
    "store": (lambda nc, js, o, v: js.object_store(v), NO_TEXTS),
    "object": (lambda nc, js, o, v: o.info(v), NO_TEXTS),
    "object to put": (lambda nc, js, o, v: o.put(v, b""), NO_TEXTS),
    "object headers": (lambda nc, js, o, v: o.put("x", b"", headers=v), NO_MAPPINGS),
    "metadata": (lambda nc, js, o, v: o.put("x", b"", metadata=v), NO_MAPPINGS),
    "values of metadata": (
        lambda nc, js, o, v: o.put("x", b"", metadata=v),
        [{"run": 17}, {17: "run"}, {"a": None}, {"a": b"x"}],
    ),
    "description": (lambda nc, js, o, v: o.put("x", b"", description=v), NO_TEXTS),
    "new description": (lambda nc, js, o, v: o.update_meta("x", description=v), NO_TEXTS),
    "mirror": (lambda nc, js, o, v: js.create_bucket_mirror(v, Origin("b")), [""]),
    "headers of a request": (
        lambda nc, js, o, v: nc.request("a", headers=v),
        [*NO_MAPPINGS, b"NATS/1.0\r\nA:b\r\n\r\n"],
    ),
    "chunk_size": (lambda nc, js, o, v: o.put("x", b"", chunk_size=v), ["5", NAN, [1]]),
    "link": (lambda nc, js, o, v: o.add_link("x", v), [None, "y", 5]),
    "target": (lambda nc, js, o, v: o.get_into("x", v), ["", "a\0b"]),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_wrong_argument_is_refused_with_a_sentence(
    shared_server: NatsServer, unique: Callable[[str], str], name: str
) -> None:
    call, values = CALLS[name]
    async with connect(shared_server.url) as nc:
        js = nc.jetstream()
        store = await js.create_object_store(unique("o"))
        for value in values:
            with pytest.raises(JetsparkError) as raised:
                async with asyncio.timeout(20):
                    result = call(nc, js, store, value)
                    if inspect.isawaitable(result):
                        await result
            assert str(raised.value)


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_by_the_blocking_client_too(
    shared_server: NatsServer, unique: Callable[[str], str], name: str
) -> None:
    call, values = CALLS[name]
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        store = js.create_object_store(unique("o"))
        for value in values:
            with pytest.raises(JetsparkError) as raised:
                call(nc, js, store, value)
            assert str(raised.value)


@pytest.mark.parametrize("revision", [None, True, "1", NAN, -1])
async def test_an_update_of_a_key_says_what_it_replaces(
    shared_server: NatsServer, unique: Callable[[str], str], revision: Any
) -> None:
    async with connect(shared_server.url) as nc:
        bucket = await nc.jetstream().create_bucket(unique("b"))
        await bucket.put("a", b"faster")
        with pytest.raises(ConfigError, match="revision"):
            await bucket.update("a", b"late", revision)
        with pytest.raises(ConfigError, match="revision"):
            await bucket.revert("a", revision)
        assert (await bucket.get("a")).revision == 1


@pytest.mark.parametrize(
    "option",
    ["creds_file", "nkey_seed_file", "tls_ca_file", "tls_ca_dir", "tls_cert_file", "tls_key_file"],
)
def test_path_options_refuse_numbers_and_bytes(option: str) -> None:
    """It would be taken for an open file of the program."""
    for wrong in (True, 3, b"x"):
        options: dict[str, Any] = {option: wrong}
        with pytest.raises(ConfigError, match=f"{option} is a str or a path"):
            make_options(**options)


FOREVER = [float("inf"), 1e30, 10**400]


@pytest.mark.parametrize("forever", FOREVER, ids=["inf", "huge", "no float"])
async def test_a_timeout_may_be_for_ever(
    shared_server: NatsServer, unique: Callable[[str], str], forever: float
) -> None:
    name = unique("S")
    async with connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=forever)
        await js.create_stream(name=name, subjects=[name], storage="memory")
        await js.publish(name, timeout=forever)
        consumer = await js.create_consumer(name, name="c", ack_policy="none")
        assert len(await consumer.fetch(1, timeout=forever)) == 1
        assert (await js.ordered(name).next(forever)).subject == name
        await nc.flush(forever)


@pytest.mark.parametrize("forever", FOREVER, ids=["inf", "huge", "no float"])
def test_a_timeout_of_the_blocking_client_may_be_for_ever(
    shared_server: NatsServer, unique: Callable[[str], str], forever: float
) -> None:
    name = unique("S")
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=forever)
        js.create_stream(name=name, subjects=[name], storage="memory")
        js.publish(name, timeout=forever)
        consumer = js.create_consumer(name, name="c", ack_policy="none")
        assert len(consumer.fetch(1, timeout=forever)) == 1
        assert js.ordered(name).next(forever).subject == name
        assert js.create_bucket(unique("b")).watch().next(forever) is None
        nc.flush(forever)

"""A sink whose rows come back to it is found, and others are not."""

from __future__ import annotations

import pytest
from tests.conftest import MakeServer

from jetspark.blocking import connect
from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError
from jetspark.spark.pipelines.stream_conflicts import check_no_loop
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.source_streams import fetch_creation_time
from jetspark.spark.stream_sink.options import SinkOptions, parse_sink_options


def source(**options: str) -> SourceOptions:
    return parse_options({"stream": "A", **options} if "streamPattern" not in options else options)


def sink(stream: str, **options: str) -> SinkOptions:
    return parse_sink_options({"stream": stream, **options})


def nowhere(connection: ConnectOptions, stream: str) -> str:
    return ""


@pytest.mark.parametrize(
    ("writes", "reads"),
    [
        (sink("A"), source()),
        (sink("A", servers="nats://h1,nats://h2"), source(servers="nats://h2,nats://h3")),
        (sink("A"), source(streamPattern="A|B")),
        (sink("A", subject="a.out"), source(subjects="a.*")),
        (parse_sink_options({"bucket": "b"}), parse_options({"bucket": "b"})),
    ],
)
def test_a_sink_that_writes_what_is_read_for_it_is_refused(
    writes: SinkOptions, reads: SourceOptions
) -> None:
    what, chosen = ("bucket", "keys") if reads.bucket else ("stream", "subjects")
    says = f"which is read for it again: its rows .* another {what}, or give the source '{chosen}'"
    with pytest.raises(ConfigError, match=says):
        check_no_loop("s", {"s": writes}, {"s": [reads]}, nowhere)


@pytest.mark.parametrize(
    ("writes", "reads"),
    [
        (sink("B"), source()),
        (sink("A", servers="nats://h1"), source(servers="nats://h2")),
        (sink("A", user="u", password="p"), source(user="v", password="p")),
        (sink("A", jetstreamDomain="d"), source()),
        (sink("A", subject="a.out"), source(subjects="a.in")),
        (sink("A"), source(subjects="a.in")),
        (sink("AB"), source(streamPattern="A")),
    ],
)
def test_a_sink_that_writes_something_else_is_not(
    writes: SinkOptions, reads: SourceOptions
) -> None:
    check_no_loop("s", {"s": writes}, {"s": [reads]}, nowhere)


def test_a_way_back_through_another_sink_is_found_and_a_chain_is_none() -> None:
    writes = {"one": sink("B"), "two": sink("A")}
    reads = {"one": [source()], "two": [source(stream="B")]}
    with pytest.raises(ConfigError, match="read for it again, by way of the sink two: "):
        check_no_loop("one", writes, reads, nowhere)
    check_no_loop("one", writes, reads | {"two": [source(stream="C")]}, nowhere)
    check_no_loop("one", {**writes, "two": sink("C")}, reads, nowhere)


def test_a_stream_is_recognised_under_another_address_and_for_another_user(
    make_server: MakeServer,
) -> None:
    server, another = (
        make_server("jetstream {}\nauthorization { users = [{user: u, password: p}] }\n" + more)
        for more in ("no_auth_user: u", "")
    )
    for one in (server, another):
        with connect(f"nats://u:p@127.0.0.1:{one.port}") as nc:
            nc.jetstream().create_stream(name="A", subjects=["a"])
    here = f"nats://127.0.0.1:{server.port}"
    user = {"user": "u", "password": "p"}
    reads = source(servers=here)
    for options in ({"servers": f"nats://localhost:{server.port}"}, {"servers": here, **user}):
        with pytest.raises(ConfigError, match="come back without an end"):
            check_no_loop("s", {"s": sink("A", **options)}, {"s": [reads]}, fetch_creation_time)
    elsewhere = sink("A", servers=f"nats://127.0.0.1:{another.port}", **user)
    check_no_loop("s", {"s": elsewhere}, {"s": [reads]}, fetch_creation_time)
    missing = sink("B", servers=f"nats://localhost:{server.port}")
    check_no_loop(
        "s", {"s": missing}, {"s": [source(stream="B", servers=here)]}, fetch_creation_time
    )

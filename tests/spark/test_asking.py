"""What the driver asks of streams outlives a server's restart, and tells mistakes at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.support.frame_proxy import FrameProxy
from tests.support.streams import Admin, numbered

from jetspark.errors import AuthError, RequestTimeoutError, ServerRefusedError, StreamNotFoundError
from jetspark.links.leaders import confirmed_facts
from jetspark.links.link_pool import pool
from jetspark.links.stream_api import StreamAPI
from jetspark.server import NatsServer
from jetspark.spark.data_source import JetStreamDataSource
from jetspark.spark.source import source_streams
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.source_streams import fetch_source_facts
from jetspark.spark.source.stream_reader import JetStreamStreamReader


def _filled(server: NatsServer) -> dict[str, str]:
    with Admin(server.url) as admin:
        admin.create("S", "s")
        admin.fill(numbered("s", 3))
    return {"servers": server.url, "stream": "S", "readTimeout": "20"}


def test_a_stream_of_a_pattern_may_go_while_its_leader_is_proven(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its facts and the proof, also two of them, one after the other."""
    options = parse_options({"servers": nats_server.url, "streamPattern": "N.*"})
    going = ["N2", "N4"]
    with Admin(nats_server.url) as admin:
        for number in range(5):
            admin.create(f"N{number}", f"n{number}")

        def proof(api: Any, names: Any) -> Any:
            if going:
                admin.call(f"STREAM.DELETE.{going.pop()}")
            return confirmed_facts(api, names)

        monkeypatch.setattr(source_streams, "confirmed_facts", proof)
        assert list(fetch_source_facts(options, running=True, linearizable=True)) == [
            "N0",
            "N1",
            "N3",
        ]
        named = parse_options({"servers": nats_server.url, "streams": "N0,N1"})
        going.append("N1")
        with pytest.raises(StreamNotFoundError):
            fetch_source_facts(named, linearizable=True)


def test_a_question_goes_on_after_a_restart_and_waits_for_a_server_that_is_down(
    nats_server: NatsServer,
) -> None:
    options = parse_options(_filled(nats_server))
    fetch_source_facts(options)
    nats_server.restart()
    assert fetch_source_facts(options)["S"].last_seq == 3
    nats_server.stop()
    starting = threading.Timer(0.5, nats_server.start)
    starting.start()
    try:
        assert fetch_source_facts(options)["S"].last_seq == 3
    finally:
        starting.join()


def test_a_question_waits_no_longer_than_the_read_timeout(nats_server: NatsServer) -> None:
    options = parse_options({**_filled(nats_server), "readTimeout": "0.3"})
    fetch_source_facts(options)
    nats_server.stop()
    with pytest.raises(ServerRefusedError):
        for _ in range(2):  # the first may only find out that its link is gone
            fetch_source_facts(options)


def test_first_question_to_a_stopped_server_raises_at_once(nats_server: NatsServer) -> None:
    options = parse_options(_filled(nats_server))
    nats_server.stop()
    began = time.monotonic()
    with pytest.raises(ServerRefusedError):
        fetch_source_facts(options)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("answer", [1, 2])
async def test_a_link_that_is_cut_is_no_wrong_address(nats_server: NatsServer, answer: int) -> None:
    filled = _filled(nats_server)
    async with FrameProxy(nats_server.port) as proxy:
        fault = proxy.arm(answer, "cut", wanted=lambda frame: b"stream_info_response" in frame)
        options = parse_options({**filled, "servers": f"nats://127.0.0.1:{proxy.port}"})
        for _ in range(2):
            facts = await asyncio.to_thread(fetch_source_facts, options, linearizable=True)
            assert facts["S"].last_seq == 3
            pool.close()
    assert fault.hit is not None


def test_a_link_that_is_silent_is_no_wrong_address(nats_server: NatsServer) -> None:
    asked: list[object] = []

    def question(api: StreamAPI) -> int:
        asked.append(api.link)
        if len(asked) < 3:
            raise RequestTimeoutError("JetStream did not answer.")
        return api.stream("S").last_seq

    assert source_streams.leaders(parse_options(_filled(nats_server))).call(question) == 3
    assert len(set(asked)) == 3


def test_a_query_waits_for_a_server_that_its_process_has_never_reached(
    nats_server: NatsServer,
) -> None:
    options = _filled(nats_server)
    nats_server.stop()
    reader = JetStreamStreamReader(parse_options({**options, "startingOffsets": "earliest"}))
    writer = JetStreamDataSource({"servers": nats_server.url, "stream": "S", "subject": "s"})
    columns = StructType([StructField("data", BinaryType())])
    with ThreadPoolExecutor(2) as pool:
        planned = pool.submit(reader.initialOffset)
        made = pool.submit(writer.streamWriter, columns, False)
        nats_server.start()
        assert planned.result()["streams"]["S"]["next"] == 1
        assert made.result()._target.subjects == ("s",)


def test_credentials_that_were_revoked_are_reported_at_once(
    make_server: Callable[..., NatsServer], tmp_path: Path
) -> None:
    conf = tmp_path / "nats.conf"
    conf.write_text("")
    server = make_server(config=conf, jetstream=True, host="127.0.0.1", port=0)
    options = parse_options(_filled(server))
    fetch_source_facts(options)
    conf.write_text("authorization { user: a, password: b }")
    server.restart()
    with pytest.raises(AuthError):
        fetch_source_facts(options)

"""Faults of servers and of the network between them and Spark; the query outlives each."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from tests.chaos.campaign import Kind, Run
from tests.chaos.outcome import Outcome
from tests.chaos.proxy import Proxy
from tests.chaos.reading_scene import Published, Scene, eventually
from tests.support.certificates import make_certificates
from tests.support.cluster import Cluster
from tests.support.streams import Admin

from jetspark.bulk.links import connect
from jetspark.connection.options import make_options
from jetspark.errors import JetsparkError
from jetspark.server import NatsServer

STREAM = "ORDERS"
CONF = "nats.conf"
_SPEED = 0.4
"""Seconds that a slow link takes for one batch, so that faults come while it is under way."""


@contextmanager
def one_server(
    run: Run,
    conf: str = "",
    streams: tuple[str, ...] = (STREAM,),
    *,
    publish_as: Mapping[str, Any] | None = None,
    read_as: Mapping[str, str] | None = None,
    **config: Any,
) -> Iterator[tuple[NatsServer, Proxy, Scene]]:
    """A server of its own, a proxy in front of it, streams for some batches, a query.

    `publish_as` and `read_as`: further options of the connections; `config`: of the streams.
    """
    file = run.folder / CONF
    file.write_text(conf, "utf-8")
    with (
        NatsServer(jetstream=True, port=0, host="127.0.0.1", config=file) as server,
        Proxy(server.port) as proxy,
    ):
        published = Published(server.url, **(publish_as or {}))
        scene = Scene(run, published, list(streams), proxy.url)
        for stream in streams:
            published.create(stream, **config)
        scene.fill()
        if run.rng.random() < 0.5:
            proxy.slow(int(scene.bytes_per_batch / _SPEED))
        scene.query.options |= read_as or {}
        scene.query.start()
        try:
            yield server, proxy, scene
        finally:
            scene.query.stop()


@contextmanager
def feeding(scene: Scene) -> Iterator[None]:
    """Meanwhile somebody publishes."""
    thread = threading.Thread(target=scene.fill, args=(1,))
    thread.start()
    try:
        yield
    finally:
        thread.join()


# -- one server ----------------------------------------------------------------------------------


def _ending(how: Callable[[NatsServer], None]) -> Kind:
    def kind(run: Run) -> Outcome:
        with one_server(run) as (server, _, scene):

            def fault() -> None:
                how(server)
                time.sleep(run.rng.random() * 0.5)
                server.start()

            for _ in range(run.rng.randrange(1, 4)):
                with feeding(scene):
                    scene.strike(fault)
            return scene.outcome()

    return kind


def full(run: Run) -> Outcome:
    """The stream, or the server's storage, is full: publishing is refused, reading goes on."""
    by_stream = run.rng.random() < 0.5
    conf = "" if by_stream else "jetstream { max_file_store: 3MB }"
    limit: dict[str, Any] = {"max_bytes": 3_000_000, "discard": "new"} if by_stream else {}
    with one_server(run, conf, **limit) as (_, _, scene):
        scene.moment()
        scene.hits += scene.published.fill_up(STREAM)
        return scene.outcome("by the stream" if by_stream else "by the server")


def large_message(run: Run) -> Outcome:
    """Messages of up to 8 MB among small ones, with Arrow batches of 1 MB."""
    with one_server(run, "max_payload: 10MB", max_msg_size=9_000_000) as (server, _, scene):
        scene.query.options["maxBytesPerBatch"] = "1000000"

        def fault() -> None:
            for _ in range(run.rng.randrange(1, 4)):
                scene.published.fill(STREAM, 1, run.rng.randrange(1_000_000, 8_000_000))
                scene.published.fill(STREAM, 50, 100)

        scene.strike(fault)
        if run.rng.random() < 0.5:
            scene.strike(partial(_crash, server))
        return scene.outcome()


def _crash(server: NatsServer) -> None:
    server.kill()
    server.start()


def several_streams(run: Run) -> Outcome:
    """Three streams in one query; the server is killed."""
    with one_server(run, streams=("A", "B", "C")) as (server, _, scene):
        for _ in range(2):
            scene.published.fill(run.rng.choice("ABC"), scene.batch * 2, scene.size)
            scene.strike(partial(_crash, server))
        return scene.outcome()


_USERS = """authorization {{ users: [
  {{ user: spark, password: "{}" }}, {{ user: publisher, password: p }} ] }}
"""


def work_queue(run: Run) -> Outcome:
    """A work queue with the query as its sole reader, which removes what is read; kills."""
    with one_server(
        run, read_as={"soleReader": "true"}, retention="workqueue", allow_direct=True
    ) as (server, proxy, scene):
        scene.strike(partial(_crash, server))
        scene.strike(proxy.cut)
        return scene.outcome()


def credentials_revoked(run: Run) -> Outcome:
    """The password is changed under the query, which stops with one clear error; and back."""

    def change(server: NatsServer, password: str) -> None:
        (run.folder / CONF).write_text(_USERS.format(password), "utf-8")
        os.kill(server.pid, signal.SIGHUP)
        eventually(lambda: _logs_in(server, password), "the new password")

    with one_server(
        run,
        _USERS.format("right"),
        publish_as={"user": "publisher", "password": "p"},
        read_as={"user": "spark", "password": "right"},
    ) as (server, _, scene):
        for _ in range(run.rng.randrange(1, 3)):
            scene.moment()
            change(server, "wrong")
            scene.query.wait_until_stopped(re.compile("refused these credentials"))
            scene.hits += 1
            change(server, "right")
            scene.goes_on()
        return scene.outcome()


def _logs_in(server: NatsServer, password: str) -> bool:
    try:
        connect(make_options(server.url, user="spark", password=password)).close()
    except JetsparkError:
        return False
    return True


# -- the network ---------------------------------------------------------------------------------


def network_cut(run: Run) -> Outcome:
    """All connections are reset, several times."""
    with one_server(run) as (_, proxy, scene):
        for _ in range(run.rng.randrange(2, 5)):
            scene.strike(proxy.cut)
        return scene.outcome()


def network_refused(run: Run) -> Outcome:
    """Connections are reset and new ones refused, for a while."""
    with one_server(run) as (_, proxy, scene):

        def fault() -> None:
            proxy.refuse()
            time.sleep(run.rng.random() * 3)
            proxy.heal()

        for _ in range(run.rng.randrange(1, 3)):
            scene.strike(fault)
        return scene.outcome()


def network_half_open(run: Run) -> Outcome:
    """Connections stay open and carry nothing any more."""
    with one_server(run) as (_, proxy, scene):

        def fault() -> None:
            proxy.half_open()
            time.sleep(run.rng.random() * 3)
            proxy.heal()

        scene.strike(fault)
        return scene.outcome()


def slow_server(run: Run) -> Outcome:
    """The server's link becomes slow, and slower, and is cut when it is slowest."""
    with one_server(run) as (_, proxy, scene):

        def fault() -> None:
            for seconds in (1.0, 2.0):
                proxy.slow(int(scene.bytes_per_batch / seconds))
                scene.goes_on()
            proxy.cut()
            proxy.slow(None)

        scene.strike(fault)
        return scene.outcome()


_FRAMING: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    # (what is looked for, in what it is changed): the verb, the length, the end of a line.
    (rb"\r\nH?MSG \$JS", lambda found: found.replace(b"MSG", b"MXG")),
    (rb"\r\nH?MSG [^\r\n]* \d+\r\n", lambda found: found[:-3] + b"x\r\n"),
    (rb"\r\nH?MSG [^\r\n]* \d+\r\n", lambda found: found[:-3] + b"\r\n"),
    (rb"\r\nH?MSG [^\r\n]* \d+\r\n", lambda found: found[:-2] + b"0\r\n"),
    (rb"\r\nH?MSG [^\r\n]* \d+\r\n", lambda found: found[:-2] + b"??"),
    (rb"\r\nMSG ", lambda found: b"\r\nHMSG "),
    (rb"\r\nHMSG ", lambda found: b"\r\nMSG "),
    (rb"\r\n(?=H?MSG )", lambda found: b"\r\n\r\n"),
    (rb"\r\n(?=H?MSG )", lambda found: b"\r\n-ERR 'made up'\r\n"),
)


def malformed_frame(run: Run) -> Outcome:
    """A frame from the server is not as the protocol wants it: verb, length, end of line."""
    with one_server(run) as (_, proxy, scene):
        for _ in range(run.rng.randrange(2, 5)):
            _spoil_once(scene, proxy, _replacing(*run.rng.choice(_FRAMING)))
        return scene.outcome()


def _replacing(pattern: bytes, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: re.sub(pattern, lambda found: change(found[0]), data, count=1)


def flipped_bit(run: Run) -> Outcome:
    """One bit of a TLS connection is flipped: whatever it belonged to, the connection ends."""
    certificates = make_certificates(run.folder)

    def flip(data: bytes) -> bytes:
        at = run.rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << run.rng.randrange(8)]) + data[at + 1 :]

    with one_server(
        run,
        certificates.server_config(),
        publish_as={"tls_ca_file": str(certificates.ca)},
        read_as={"tlsCaFile": str(certificates.ca)},
    ) as (_, proxy, scene):
        for _ in range(run.rng.randrange(2, 5)):
            _spoil_once(scene, proxy, flip)
        return scene.outcome()


def _spoil_once(scene: Scene, proxy: Proxy, spoil: Callable[[bytes], bytes]) -> None:
    scene.moment()
    before = proxy.corrupted
    proxy.corrupt(spoil)
    scene.goes_on()
    scene.goes_on()
    proxy.corrupt(bytes)  # if it has found nothing to spoil
    scene.hits += proxy.corrupted - before


# -- three servers -------------------------------------------------------------------------------


@contextmanager
def three_servers(run: Run) -> Iterator[tuple[Cluster, Scene]]:
    """The campaign's cluster, a stream with three replicas for some batches, a query."""
    cluster = run.shared.once("nats cluster", lambda: Cluster(3, name="chaos"))
    cluster.wait_until_ready()
    stream = f"S{run.number}"
    published = Published(cluster.urls)
    scene = Scene(run, published, [stream], ",".join(cluster.urls))
    published.create(stream, num_replicas=3)
    scene.fill()
    scene.query.start()
    try:
        yield cluster, scene
    finally:
        scene.query.stop()
        published.delete(stream)


def leader_of(cluster: Cluster, stream: str) -> NatsServer:
    """The server that leads the stream, as the first one says that answers."""
    for server in cluster.servers:
        with suppress(JetsparkError), Admin(server.url) as admin:
            name = admin.call(f"STREAM.INFO.{stream}")["cluster"]["leader"]
            return cluster.servers[int(name.rpartition("n")[2]) - 1]
    raise LookupError(f"nobody knows the leader of {stream}")


def leader_killed(run: Run) -> Outcome:
    """The stream's leader is killed, and started again a little later."""
    with three_servers(run) as (cluster, scene):

        def fault() -> None:
            leader = leader_of(cluster, scene.streams[0])
            leader.kill()
            time.sleep(run.rng.random() * 2)
            leader.start()

        for _ in range(run.rng.randrange(1, 3)):
            scene.strike(fault)
        return scene.outcome()


def leader_paused(run: Run) -> Outcome:
    """The stream's leader is frozen for longer than the others wait for it."""
    with three_servers(run) as (cluster, scene):

        def fault() -> None:
            leader = leader_of(cluster, scene.streams[0])
            leader.pause()
            time.sleep(1 + run.rng.random() * 6)
            leader.resume()

        scene.strike(fault)
        return scene.outcome()


KINDS: dict[str, Kind] = {
    "server killed": _ending(NatsServer.kill),
    "server stopped": _ending(NatsServer.stop),
    "storage full": full,
    "large messages": large_message,
    "several streams, server killed": several_streams,
    "work queue, server killed": work_queue,
    "credentials revoked": credentials_revoked,
    "connections cut": network_cut,
    "connections refused": network_refused,
    "connections half-open": network_half_open,
    "slow link": slow_server,
    "malformed frame": malformed_frame,
    "bit flipped under TLS": flipped_bit,
    "leader of three killed": leader_killed,
    "leader of three paused": leader_paused,
}

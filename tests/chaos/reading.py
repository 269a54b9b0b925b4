"""The campaign of reading.

Each run is a streaming query from JetStream into Parquet while something breaks. What counts is
the table afterwards: every message that a server has acknowledged, once, and in order.

Drivers that die at any step are in `source_options`, executors and slow tasks in `writing`.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.chaos import faults, reading_loss
from tests.chaos.campaign import Figures, Kind, Kinds, Run, run_kinds
from tests.chaos.faults import Fault
from tests.chaos.outcome import Outcome
from tests.chaos.reading_scene import CONF, STREAM, Scene, eventually, one_server, three_servers
from tests.chaos.spark import Process, below, kill
from tests.support.certificates import make_certificates

from jetspark.connection.options import make_options
from jetspark.errors import JetsparkError
from jetspark.links.link import connect


def suffering(
    fault: Fault,
    times: tuple[int, int] = (1, 1),
    lasts: tuple[float, float] = (0.0, 0.0),
    where: Callable[[Run], AbstractContextManager[Scene]] = one_server,
) -> Kind:
    """Some times the same fault."""

    def kind(run: Run) -> Outcome:
        with where(run) as scene:
            for _ in range(run.rng.randint(*times)):
                scene.suffer(fault, *lasts)
            return scene.outcome()

    return kind


# -- one server ----------------------------------------------------------------------------------


def _ending(fault: Fault) -> Kind:
    """The server ends and is started again, while somebody publishes."""

    def kind(run: Run) -> Outcome:
        with one_server(run) as scene:
            for _ in range(run.rng.randint(1, 3)):
                feeding = threading.Thread(target=scene.fill, args=(1,))
                feeding.start()
                try:
                    scene.suffer(fault, 0, 0.5)
                finally:
                    feeding.join()
            return scene.outcome()

    return kind


def full(run: Run) -> Outcome:
    """The stream, or the server's storage, is full: publishing is refused, reading goes on."""
    by_stream = run.rng.random() < 0.5
    conf = "" if by_stream else "jetstream { max_file_store: 3MB }"
    limit: dict[str, Any] = {"max_bytes": 3_000_000, "discard": "new"} if by_stream else {}
    with one_server(run, conf, **limit) as scene:
        scene.moment()
        scene.hits += scene.published.fill_up(STREAM)
        return scene.outcome("by the stream" if by_stream else "by the server")


def large_message(run: Run) -> Outcome:
    """Messages of up to 8 MB among small ones, with Arrow batches of 1 MB."""
    with one_server(run, "max_payload: 10MB", max_msg_size=9_000_000) as scene:
        scene.query.options["maxBytesPerBatch"] = "1000000"

        def fill() -> None:
            for _ in range(run.rng.randrange(1, 4)):
                scene.published.fill(STREAM, 1, run.rng.randrange(1_000_000, 8_000_000))
                scene.published.fill(STREAM, 50, 100)

        scene.strike(fill)
        if run.rng.random() < 0.5:
            scene.suffer(faults.server_killed)
        return scene.outcome()


def several_streams(run: Run) -> Outcome:
    """Three streams in one query; the server is killed."""
    with one_server(run, streams=("A", "B", "C")) as scene:
        for _ in range(2):
            scene.published.fill(run.rng.choice("ABC"), scene.batch * 2, scene.size)
            scene.suffer(faults.server_killed)
        return scene.outcome()


def work_queue(run: Run) -> Outcome:
    """A work queue with the query as its sole reader, which removes what is read; kills."""
    queue: dict[str, Any] = {"retention": "workqueue", "allow_direct": True}
    with one_server(run, read_as={"soleReader": "true"}, **queue) as scene:
        scene.suffer(faults.server_killed)
        scene.suffer(faults.network_cut)
        return scene.outcome()


_USERS = """authorization {{ users: [
  {{ user: spark, password: "{}" }}, {{ user: publisher, password: p }} ] }}
"""


def credentials_revoked(run: Run) -> Outcome:
    """The password is changed under the query, which stops with one clear error; and back."""

    def change(password: str) -> None:
        (run.folder / CONF).write_text(_USERS.format(password), "utf-8")
        os.kill(scene.servers[0].pid, signal.SIGHUP)
        eventually(lambda: _logs_in(scene.servers[0].url, password), "the new password")

    with one_server(
        run,
        _USERS.format("right"),
        publish_as={"user": "publisher", "password": "p"},
        read_as={"user": "spark", "password": "right"},
    ) as scene:
        for _ in range(run.rng.randrange(1, 3)):
            scene.moment()
            change("wrong")
            scene.query.wait_until_stopped(re.compile("refused these credentials"))
            scene.hits += 1
            change("right")
            scene.goes_on()
        return scene.outcome()


def _logs_in(url: str, password: str) -> bool:
    try:
        connect(make_options(url, user="spark", password=password)).close()
    except JetsparkError:
        return False
    return True


# -- the network ---------------------------------------------------------------------------------


def slow_server(run: Run) -> Outcome:
    """The server's link becomes slow, and slower, and is cut when it is slowest."""
    with one_server(run) as scene:

        def slow() -> None:
            for seconds in (1.0, 2.0):
                scene.proxy.slow(int(scene.bytes_per_batch / seconds))
                scene.goes_on()
            scene.proxy.cut()
            scene.proxy.slow(None)

        scene.strike(slow)
        return scene.outcome()


_HEAD = rb"\r\nH?MSG [^\r\n]* \d+\r\n"
_FRAMING: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    # (what is looked for, in what it is changed): the verb, the length, the end of a line.
    (rb"\r\nH?MSG \$JS", lambda found: found.replace(b"MSG", b"MXG")),
    (_HEAD, lambda found: found[:-3] + b"x\r\n"),
    (_HEAD, lambda found: found[:-3] + b"\r\n"),
    (_HEAD, lambda found: found[:-2] + b"0\r\n"),
    (_HEAD, lambda found: found[:-2] + b"??"),
    (rb"\r\nMSG ", lambda found: b"\r\nHMSG "),
    (rb"\r\nHMSG ", lambda found: b"\r\nMSG "),
    (rb"\r\n(?=H?MSG )", lambda found: b"\r\n\r\n"),
    (rb"\r\n(?=H?MSG )", lambda found: b"\r\n-ERR 'made up'\r\n"),
)


def malformed_frame(run: Run) -> Outcome:
    """A frame from the server is not as the protocol wants it: verb, length, end of line."""

    def spoil(data: bytes) -> bytes:
        pattern, change = run.rng.choice(_FRAMING)
        return re.sub(pattern, lambda found: change(found[0]), data, count=1)

    with one_server(run) as scene:
        return _spoilt(scene, spoil)


def flipped_bit(run: Run) -> Outcome:
    """One bit of a TLS connection is flipped: whatever it belonged to, the connection ends."""
    certificates = make_certificates(run.folder)

    def flip(data: bytes) -> bytes:
        at = run.rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << run.rng.randrange(8)]) + data[at + 1 :]

    ca = str(certificates.ca)
    with one_server(
        run, certificates.server_config(), publish_as={"tls_ca_file": ca}, read_as={"tlsCaFile": ca}
    ) as scene:
        return _spoilt(scene, flip)


def _spoilt(scene: Scene, spoil: Callable[[bytes], bytes]) -> Outcome:
    for _ in range(scene.rng.randrange(2, 5)):
        scene.moment()
        before = scene.proxy.corrupted
        scene.proxy.corrupt(spoil)
        scene.goes_on()
        scene.goes_on()
        scene.proxy.corrupt(bytes)  # if it has found nothing to spoil
        scene.hits += scene.proxy.corrupted - before
    return scene.outcome()


# -- Spark: the processes that read and plan die -------------------------------------------------


def _processes(scene: Scene) -> list[Process]:
    """Below the JVM."""
    scene.query.keep_up()
    gateway: Any = scene.query.spark.sparkContext._gateway
    return below(gateway.proc.pid)


@contextmanager
def worker_killed(scene: Scene) -> Iterator[None]:
    """Of the Python processes that read: one, all, or the daemon that forks them."""

    def workers() -> list[Process]:
        if not scene.left:
            scene.fill(1)  # the batch was over too soon
        return [one for one in _processes(scene) if one.command.strip().endswith("pyspark.worker")]

    eventually(lambda: len(workers()) > 1, "a Python worker")
    found = workers()
    daemons = {one.parent for one in found} & {one.pid for one in found}
    leaves = [one.pid for one in found if one.pid not in daemons]
    kill(*scene.rng.choice([leaves[:1], leaves, list(daemons)]))
    yield


@contextmanager
def planner_killed(scene: Scene) -> Iterator[None]:
    """The Python process that plans the batches; the query ends and is started again."""

    def strike() -> int:
        every = _processes(scene)
        return kill(*(one.pid for one in every if "python_streaming_source_runner" in one.command))

    eventually(lambda: strike() > 0, "somebody who plans")
    yield


KINDS: Kinds = {
    "server killed": _ending(faults.server_killed),
    "server stopped": _ending(faults.server_stopped),
    "storage full": full,
    "large messages": large_message,
    "several streams, server killed": several_streams,
    "work queue, server killed": work_queue,
    "credentials revoked": credentials_revoked,
    "connections cut": suffering(faults.network_cut, (2, 4)),
    "connections refused": suffering(faults.network_refused, (1, 2), (0, 3)),
    "connections half-open": suffering(faults.half_open, lasts=(0, 3)),
    "slow link": slow_server,
    "malformed frame": malformed_frame,
    "bit flipped under TLS": flipped_bit,
    "leader of three killed": suffering(faults.leader_killed, (1, 2), (0, 2), three_servers),
    "leader of three paused": suffering(faults.leader_paused, (1, 1), (1, 7), three_servers),
    "Python worker killed": suffering(worker_killed, (2, 3)),
    "planning process killed": suffering(planner_killed, (1, 2)),
    **reading_loss.KINDS,
}


def run(runs: int = 200, seed: int = 0, first: int = 0, only: str = "") -> Figures:
    return run_kinds(KINDS, runs, seed, first, only)

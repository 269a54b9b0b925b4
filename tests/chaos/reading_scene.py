"""What every faulted run of reading is made of: streams, a query into Parquet, the verdict.

The query runs in the campaign's Spark session, in small batches, through a proxy when the fault is
one of the network. What a run publishes is remembered with the sequence that the server has
acknowledged. A query that ends with an error which a fault may cause is started again from its
checkpoint, as an operator would; the note of the run says how often.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from tests.chaos.campaign import Run
from tests.chaos.faults import Fault, Site
from tests.chaos.outcome import Findings, Outcome
from tests.chaos.proxy import Proxy
from tests.chaos.spark import spark_of
from tests.chaos.table import Message, compare, newest, next_sequences, payload_of, rows
from tests.support.cluster import Cluster

from jetspark import blocking
from jetspark.errors import APIError
from jetspark.server import NatsServer
from jetspark.spark.failures import explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STREAM = "ORDERS"
CONF = "nats.conf"
WITHIN = 240.0
"""Seconds within which a query goes on after a fault, or ends because of one."""
_SPEED = 0.4
"""Seconds that a slow link takes for one batch, so that faults come while it is under way."""
_LOOK_EVERY = 0.01
_MOST_STARTS = 12


def eventually(condition: Callable[[], bool], what: str, within: float = WITHIN) -> None:
    """Returns when it holds. Raises TimeoutError."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(_LOOK_EVERY)


# -- what is published ---------------------------------------------------------------------------


class Published:
    """Streams of one run, and every message that a server has acknowledged."""

    def __init__(self, urls: str | list[str], **connecting: Any) -> None:
        self._urls, self._connecting = urls, connecting
        self.messages: list[Message] = []

    def create(self, stream: str, **config: Any) -> None:
        """A stream with one subject, its name."""
        with self.jetstream() as js:
            js.create_stream(name=stream, subjects=[stream], **config)

    def fill(self, stream: str, count: int, size: int = 200, generation: int = 0) -> None:
        """So many messages, behind those that are there."""
        before = sum(message.stream == stream for message in self.messages)
        with self.jetstream() as js, js.publisher(500) as publisher:
            sent = []
            for number in range(before, before + count):
                identity = f"{stream}/{generation}/{number}"
                answer = publisher.publish_async(
                    stream, payload_of(identity, size), msg_id=identity
                )
                sent.append((identity, answer))
            self.messages += [
                Message(stream, answer.result(WITHIN).seq, identity) for identity, answer in sent
            ]

    def fill_up(self, stream: str) -> int:
        """Publish until the server refuses; the number of refusals, 1."""
        number = len(self.messages)
        with self.jetstream() as js:
            while True:
                identity = f"{stream}/0/{number}"
                try:
                    ack = js.publish(stream, payload_of(identity, 20_000))
                except APIError:
                    return 1
                self.messages.append(Message(stream, ack.seq, identity))
                number += 1

    def delete(self, stream: str) -> None:
        """The stream, and what is known of it."""
        with self.jetstream() as js:
            js.delete_stream(stream)
        self.messages = [message for message in self.messages if message.stream != stream]

    def held(self, stream: str) -> set[int]:
        """The sequences that the stream has now, in the leader's words."""
        with self.jetstream() as js:
            state = js.stream(stream).info(deleted_details=True).state
        gone = set(state.deleted or ())
        return {seq for seq in range(state.first_seq, state.last_seq + 1) if seq not in gone}

    def ends(self) -> dict[str, int]:
        """The sequence behind the last message, by stream."""
        behind: dict[str, int] = {}
        for message in self.messages:
            behind[message.stream] = max(behind.get(message.stream, 0), message.seq + 1)
        return behind

    @contextmanager
    def jetstream(self) -> Iterator[blocking.JetStream]:
        """JetStream, behind a connection of its own."""
        options = {"reconnect_wait": 0.05, "max_reconnect_attempts": -1, **self._connecting}
        with blocking.connect(self._urls, **options) as nc:
            yield nc.jetstream(timeout=20)


# -- the query -----------------------------------------------------------------------------------


class Query:
    """A streaming query from `streams` into `folder`/table."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
        self.folder = folder
        self.table, self.checkpoint = folder / "table", folder / "checkpoint"
        self.spark = spark
        self.options = {"startingOffsets": "earliest", "readTimeout": "30", **options}
        self.starts = 0
        self.errors: list[str] = []
        """What ended it, one sentence each."""
        self._query: StreamingQuery | None = None

    def start(self, **options: str) -> None:
        self.options |= options
        self.starts += 1
        if self.starts > _MOST_STARTS:
            raise RuntimeError(f"started {_MOST_STARTS} times in vain: {self.errors[-1]}")
        self._query = (
            self.spark.readStream.format("jetstream")
            .options(**self.options)
            .load()
            .writeStream.format("parquet")
            .option("path", str(self.table))
            .option("checkpointLocation", str(self.checkpoint))
            .start()
        )

    @property
    def committed(self) -> int:
        """The number of the last batch that Spark has committed; -1 for none."""
        return newest(self.checkpoint / "commits")

    def position(self) -> dict[str, int]:
        """The next sequence behind the committed batches, by stream."""
        return dict(next_sequences(self.checkpoint, self.committed))

    def ended(self) -> bool:
        """Whether it has ended by itself; why stands in `errors` then."""
        if self._query is None:
            return True
        if self._query.isActive:
            return False
        try:
            self._query.awaitTermination(5)
            self.errors.append("it ended without an error")
        except PySparkException as error:
            self.errors.append(str(explain(error)))
        self._query = None
        return True

    def keep_up(self) -> None:
        """Start it again when it has ended."""
        if self.ended():
            self.start()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
        self._query = None

    def wait_for_batch(self, number: int, within: float = WITHIN) -> None:
        """Returns when it is committed; there has to be something to read for it."""

        def reached() -> bool:
            self.keep_up()
            return self.committed >= number

        eventually(reached, f"batch {number}", within)

    def has_read(self, ends: dict[str, int]) -> bool:
        """Whether the committed batches reach these ends."""
        position = self.position()
        return all(position.get(stream, 0) >= end for stream, end in ends.items())

    def wait_until_read(self, ends: dict[str, int], within: float = WITHIN) -> None:
        """Returns when it has."""

        def reached() -> bool:
            self.keep_up()
            return self.has_read(ends)

        eventually(reached, f"reading up to {ends}, now {self.position()}", within)

    def wait_until_stopped(
        self, says: re.Pattern[str], ends: dict[str, int] | None = None, within: float = WITHIN
    ) -> str:
        """Returns what has ended it, when that `says` so, or "" when it has read everything.

        It is started again after another end, for which Spark on a busy machine has its reasons.
        """

        def settled() -> bool:
            if ends and self.has_read(ends):
                return True
            if not self.ended():
                return False
            if says.search(self.errors[-1]):
                return True
            self.start()
            return False

        eventually(settled, f"the query's end, after {self.errors}", within)
        return self.errors[-1] if self._query is None else ""


class Scene(Site):
    """One run with faults that a query outlives: strike, see it go on, judge the table.

    `published` publishes past the proxy; `batch` is the number of sequences in a micro-batch.
    """

    def __init__(
        self,
        run: Run,
        servers: Sequence[NatsServer],
        published: Published,
        streams: Sequence[str],
        proxy: Proxy | None = None,
    ) -> None:
        super().__init__(run.rng, servers, streams, proxy)
        self.run, self.published = run, published
        self.batch = run.rng.randrange(400, 1600)
        self.size = run.rng.randrange(100, 600)
        """Bytes of a payload."""
        self.recovery = 0.0
        self.hits = 0
        self.query = Query(
            spark_of(run),
            run.folder,
            {
                "servers": proxy.url if proxy else ",".join(one.url for one in servers),
                "streams": ",".join(streams),
                "maxOffsetsPerTrigger": str(self.batch),
                "minPartitions": str(run.rng.randrange(1, 4)),
            },
        )

    def fill(self, batches: float = 2) -> None:
        """Enough for so many batches, divided among the streams."""
        for stream in self.streams:
            count = int(self.batch * batches / len(self.streams)) + 1
            self.published.fill(stream, count, self.size)

    @property
    def bytes_per_batch(self) -> int:
        """About what the server sends for one batch."""
        return self.batch * (self.size + 150)

    @property
    def left(self) -> int:
        """Messages that are not in the table yet."""
        position = self.query.position()
        return sum(
            max(end - max(position.get(stream, 1), 1), 0)
            for stream, end in self.published.ends().items()
        )

    def moment(self) -> None:
        """Returns some time in a batch: planning, reading, writing or committing it."""
        if self.left < 1.3 * self.batch:
            self.fill(1.3)
        self.query.wait_for_batch(self.query.committed + 1)
        time.sleep(self.rng.random() * 0.6)

    def strike(self, act: Callable[[], object]) -> None:
        """Once: a fault, whose end is its return, and the batch after it."""
        self.moment()
        act()
        self.hits += 1
        self.goes_on()

    def suffer(self, fault: Fault, low: float = 0.0, high: float = 0.0) -> None:
        """Strike with a fault that lasts for so many seconds."""

        def act() -> None:
            with fault(self):
                self.pause(low, high)

        self.strike(act)

    def goes_on(self) -> None:
        """Returns when a batch more is committed."""
        began, before = time.monotonic(), self.query.committed
        # In this order: were the last messages committed between the two, no batch would come.
        if not self.left:
            self.fill(1)
        self.query.wait_for_batch(before + 1)
        self.recovery = max(self.recovery, time.monotonic() - began)

    def outcome(self, note: str = "") -> Outcome:
        """Read to the end and look."""
        self.query.wait_until_read(self.published.ends())
        self.query.stop()
        findings = compare(rows(self.query.table), self.published.messages)
        return outcome(
            self.hits, self.query, findings, len(self.published.messages), self.recovery, note
        )


def outcome(
    faults: int,
    query: Query,
    findings: Findings,
    expected: int,
    recovery: float = 0.0,
    note: str = "",
) -> Outcome:
    """The verdict, with what was told on the way."""
    told = [note, findings.examples]
    if query.errors:
        told.append(f"{len(query.errors)} ends of the query, the last: {query.errors[-1][:160]}")
    note = "; ".join(filter(None, told))
    return findings.outcome(faults, expected, recovery=round(recovery, 2), note=note)


@contextmanager
def one_server(
    run: Run,
    conf: str = "",
    streams: Sequence[str] = (STREAM,),
    *,
    publish_as: Mapping[str, Any] | None = None,
    read_as: Mapping[str, str] | None = None,
    **config: Any,
) -> Iterator[Scene]:
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
        scene = Scene(run, [server], published, streams, proxy)
        for stream in streams:
            published.create(stream, **config)
        scene.fill()
        if run.rng.random() < 0.5:
            proxy.slow(int(scene.bytes_per_batch / _SPEED))
        scene.query.options |= read_as or {}
        scene.query.start()
        try:
            yield scene
        finally:
            scene.query.stop()


@contextmanager
def three_servers(run: Run) -> Iterator[Scene]:
    """The campaign's cluster, a stream with three replicas for some batches, a query."""
    cluster = run.shared.once("nats cluster", lambda: Cluster(3, name="chaos"))
    cluster.wait_until_ready()
    stream = f"S{run.number}"
    published = Published(cluster.urls)
    scene = Scene(run, cluster.servers, published, [stream])
    published.create(stream, num_replicas=3)
    scene.fill()
    scene.query.start()
    try:
        yield scene
    finally:
        scene.query.stop()
        published.delete(stream)

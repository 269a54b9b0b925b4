"""One faulted run of writing: servers, files, the query with its restarts, and what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from tests.chaos import outcome
from tests.chaos.campaign import Kind, Run
from tests.chaos.faults import Fault, Site
from tests.chaos.outcome import Findings, Outcome
from tests.chaos.proxy import Proxy
from tests.chaos.spark import spark_of
from tests.chaos.writing_job import AT_LEAST, EXACTLY, LONGEST_QUERY, Attempt, Job, write_file
from tests.chaos.writing_steps import ONE_BATCH, PASSES, Gate
from tests.support.cluster import Cluster
from tests.support.streams import Admin

from jetspark.errors import JetsparkError
from jetspark.server import NatsServer
from jetspark.stream_writes.ledger import ledger_stream

NANOSECONDS = 1_000_000_000
_WINDOW = 1800 * NANOSECONDS  # longer than the longest run on the slowest machine
_LOOK_EVERY = 0.02  # seconds
_ATTEMPTS = 8
REACHED_WITHIN = 240.0  # a session's first query takes its time
_READ_WITHIN = 60.0
_AT_ONCE = 500


class Started(Protocol):
    """A query or a batch write under way, wherever its driver is."""

    @property
    def done(self) -> bool: ...
    def wait(self, timeout: float = ...) -> str | None: ...


class Scene(Site):
    """`expected`: the ids that have to be in the job's stream at last."""

    def __init__(
        self, run: Run, servers: list[NatsServer], job: Job, proxy: Proxy | None, login: str
    ) -> None:
        streams = [job.stream]
        if job.guarantee == EXACTLY:
            streams.append(ledger_stream(job.stream))
        super().__init__(run.rng, servers, streams, proxy)
        self.run, self.job, self.login = run, job, login
        self.gate = Gate(job.gate)
        self.at_gate = 0
        """The process that stands there."""
        self.expected: list[str] = []
        self.faults = 0
        self.errors: list[str] = []
        """What attempts failed with."""
        self.recovery = 0.0
        self.allowed_repeats = job.guarantee == AT_LEAST
        self._healed: float | None = None
        self._stored_then = 0

    # -- before --------------------------------------------------------------------------------

    def files(self, count: int, rows: int) -> None:
        """Input files of so many rows each."""
        for number in range(len(list(self.job.input.glob("*.json"))), count):
            self.expected += write_file(self.job, number, rows)

    def change(self, **fields: Any) -> None:
        """Change the job for the next attempt."""
        self.job = replace(self.job, **fields)

    # -- the servers ---------------------------------------------------------------------------

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """On the first server that runs, around the proxy."""
        server = next(server for server in self.servers if server.running)
        with Admin(self._url(server)) as admin:
            yield admin

    def _url(self, server: NatsServer) -> str:
        return server.url.replace("nats://", f"nats://{self.login}")

    def lose(self, loss: Callable[[Admin, str], None]) -> None:
        with self.admin() as admin:
            loss(admin, self.job.stream)

    # -- while it runs -------------------------------------------------------------------------

    def start(self) -> Started:
        """In the session of this process."""
        return Attempt(spark_of(self.run), self.job)

    def set_gate(self, steps: Sequence[str]) -> str:
        """Stop at one of the steps, somewhere in the run."""
        step = self.rng.choice(steps)
        passes = ONE_BATCH if self.job.transaction else PASSES
        self.gate.set(step, self.rng.randrange(passes[step]))
        return step

    def reached(self, attempt: Started) -> int:
        """Wait until a process stands at the gate; its pid. Counts as a fault."""
        deadline = time.monotonic() + REACHED_WITHIN
        while (pid := self.gate.reached()) is None:
            if attempt.done:
                raise RuntimeError(f"the query ended before its fault: {attempt.wait(0)}")
            if time.monotonic() > deadline:
                raise TimeoutError("the step was never reached")
            time.sleep(_LOOK_EVERY)
        self.faults += 1
        self.at_gate = pid
        return pid

    def healed(self) -> None:
        """The fault is over: from now to the next proof of progress counts as recovery."""
        self._healed = time.monotonic()
        self._stored_then = self._stored()

    def finish(
        self, attempt: Started | None = None, start: Callable[[], Started] | None = None
    ) -> None:
        """Until all is written; an attempt that fails is followed by another one."""
        start = start or self.start
        for _ in range(_ATTEMPTS):
            attempt = attempt or start()
            deadline = time.monotonic() + LONGEST_QUERY
            while not attempt.done and time.monotonic() < deadline:
                self._look()
                time.sleep(_LOOK_EVERY)
            error = attempt.wait(0.1)
            self._look()
            if error is None:
                if self._healed is not None:  # nothing was left to prove it with
                    self.recovery = max(self.recovery, time.monotonic() - self._healed)
                return
            self.errors.append(error)
            attempt = None
        raise RuntimeError(f"{_ATTEMPTS} attempts failed, the last one with: {self.errors[-1]}")

    def refused(self, words: str, attempt: Started | None = None) -> None:
        """The attempt must fail with a sentence that holds the words."""
        error = (attempt or self.start()).wait()
        if error is None or words not in error:
            raise RuntimeError(f"it should have failed with {words!r}, and did with {error!r}")
        self.errors.append(error)

    def _stored(self) -> int:
        return len(list((self.job.checkpoint / "commits").glob("[0-9]*")))

    def _look(self) -> None:
        if self._healed is not None and self._stored() > self._stored_then:
            self.recovery = max(self.recovery, time.monotonic() - self._healed)
            self._healed = None

    # -- after ---------------------------------------------------------------------------------

    def finding(self) -> Findings:
        """What the oracle says now."""
        urls = [self._url(server) for server in self.servers]
        return compare(read(urls, self.job.stream), self.job.stream, self.expected)

    def outcome(self, note: str = "", *, stopped: bool = False) -> Outcome:
        """`stopped`: the query had to stop, so rows may be missing; none may be wrong."""
        found = self.finding()
        notes = [note]
        if self.errors:
            last = self.errors[-1].splitlines()[0][:160]
            notes.append(f"{len(self.errors)} failed attempts, the last: {last}")
        if self.allowed_repeats and found.repeated:
            notes.append(f"{found.repeated} repeats, which are allowed")
        ordered = self.job.guarantee == EXACTLY and not self.job.partitions
        counted = replace(
            found,
            missing=0 if stopped else found.missing,
            repeated=0 if self.allowed_repeats else found.repeated,
            out_of_order=found.out_of_order if ordered else 0,
        )
        expected = found.found if stopped else len(self.expected)
        note = "; ".join(filter(None, notes))
        return counted.outcome(self.faults, expected, recovery=self.recovery, note=note)


@contextmanager
def scene(
    run: Run,
    *,
    guarantee: str = EXACTLY,
    replicas: int = 1,
    proxied: bool = False,
    files: int = 6,
    server: Callable[[Path], NatsServer] = lambda _: NatsServer(),
    stream: Mapping[str, Any] | None = None,
    login: str = "",
    **job: Any,
) -> Iterator[Scene]:
    """A stream to write to, on a server of its own or on the three that are shared, and files.

    `login`: name and password as a URL has them, with a @ behind.
    """
    name = f"RUN{run.number}"
    with ExitStack() as stack:
        if replicas > 1:
            cluster = run.shared.once("cluster", lambda: Cluster(3, name="chaos"))
            cluster.wait_until_ready()
            servers = cluster.servers
        else:
            servers = [stack.enter_context(server(run.folder))]
        proxy = stack.enter_context(Proxy(servers[0].port)) if proxied else None
        url = proxy.url if proxy else ",".join(one.url for one in servers)
        made = Job(str(run.folder), url, name, guarantee, **job)
        if guarantee == EXACTLY:
            made = replace(made, options={"prepareStream": "true", **made.options})
        if login:
            user, password = login.rstrip("@").split(":")
            made = replace(made, options={"user": user, "password": password, **made.options})
        shown = Scene(run, servers, made, proxy, login)
        with shown.admin() as admin:
            config = {"num_replicas": replicas, "duplicate_window": _WINDOW, **(stream or {})}
            admin.create(name, f"{name}.>", **config)
        if replicas > 1:
            stack.callback(_tidy, shown)
        shown.files(files, run.rng.randint(1800, 2600))
        yield shown


def _tidy(shown: Scene) -> None:
    """Leave the shared servers as they were found."""
    for server in shown.servers:
        if server.running:
            server.resume()
        server.start()
    with shown.admin() as admin:
        for stream in shown.streams:
            with suppress(AssertionError, JetsparkError):
                admin.call(f"STREAM.DELETE.{stream}")


def at_step(
    fault: Fault, steps: Sequence[str], *, lasts: tuple[float, float] = (0.05, 0.6), **of_scene: Any
) -> Kind:
    """Runs in which the fault comes while a process stands at one of the steps."""

    def act(run: Run) -> Outcome:
        with scene(run, **of_scene) as here:
            step = here.set_gate(steps)
            attempt = here.start()
            here.reached(attempt)
            with fault(here):
                here.gate.open()
                here.pause(*lasts)
            here.healed()
            here.finish(attempt)
            return here.outcome(f"at {step}")

    return act


# -- the oracle: what somebody else's client reads, held against what had to be written ----------


def read(servers: Sequence[str], stream: str) -> list[tuple[str, str]]:
    """Subject and id of every message of the stream, markers left out, in order."""
    return asyncio.run(asyncio.wait_for(_read(servers, stream), _READ_WITHIN))


async def _read(servers: Sequence[str], stream: str) -> list[tuple[str, str]]:
    client = await nats.connect(list(servers), max_reconnect_attempts=5)
    try:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(stream)).state
        found: list[tuple[str, str]] = []
        if not state.messages:
            return found
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        reader = await jetstream.pull_subscribe(">", stream=stream, config=config)
        seq = 0
        while seq < state.last_seq:  # a replica may be behind: ask until it has the last one
            for message in await reader.fetch(_AT_ONCE, timeout=20):
                seq = message.metadata.sequence.stream
                if not message.subject.startswith("_spark."):
                    found.append((message.subject, message.data.partition(b" ")[0].decode()))
        return found
    finally:
        await client.close()


def compare(found: Sequence[tuple[str, str]], stream: str, expected: Collection[str]) -> Findings:
    """`expected`: the ids that had to be written, each under the subject of its file.

    Out of order are rows before which a later one of the same file is stored.
    """
    wanted = {(f"{stream}.{one[:3]}", one) for one in expected}
    return outcome.compare(found, wanted, order=lambda row: row)

"""Every frame once: each position of each call's frames is spoiled in each way, and judged.

With `--calls` it is what the source and the sink of Spark ask a server: done, and the answer lost;
not done, and no answer; late; an error in place of the answer. With `--leaf` the frames are those
between a leaf node and its hub.

A run is good when its result is right or a typed error came, in time, and nothing is left behind:
no request in the tables, no subscription, no task; the connection works, and what the server keeps
for the run ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any, Final, TypeAlias, cast

from tests.frames import reading, spark, writing
from tests.frames.scene import PATIENCE, Scene, within
from tests.support import campaign
from tests.support.frame_proxy import KINDS, OF_ANSWERS, OF_QUESTIONS, FrameProxy, Kind
from tests.support.leaf import HubAndLeaf
from tests.support.ports import free_port

import jetspark
from jetspark.connection.events import ConnectionStatus
from jetspark.errors import JetsparkError
from jetspark.full_client import Client
from jetspark.server import NatsServer

Script: TypeAlias = Callable[[Scene], Awaitable[None]]

SCRIPTS: Final[dict[str, Script]] = {
    script.__name__: script for script in (*reading.SCRIPTS, *writing.SCRIPTS)
}
"""What a client does, and what is read and written in bulk."""
OF_SPARK: Final[dict[str, Script]] = {script.__name__: script for script in spark.SCRIPTS}

CALLS: Final = (
    *("bulk_range", "bulk_direct", "snapshot", "bulk_publish", "exactly_once"),
    *OF_SPARK,
)
"""What the source and the sink of Spark ask a server."""
WAYS: Final[tuple[Kind, ...]] = ("drop", "late", "cut", *OF_QUESTIONS, *OF_ANSWERS)
"""Done and not heard of, also late; not done; done, and said to have failed."""

LIMIT: Final = 60.0
"""Seconds for a whole run; what each call may take is in the scripts."""

_NOWHERE: Final = 10**9
_EMPTY_WITHIN: Final = 5.0

_run: contextvars.ContextVar[int] = contextvars.ContextVar("run", default=0)
_tasks: defaultdict[int, weakref.WeakSet[asyncio.Task[Any]]] = defaultdict(weakref.WeakSet)
_numbers = count(1)


@dataclass(frozen=True)
class Outcome:
    script: str
    kind: str
    position: int
    frames: int
    """Seen in all."""
    frame: str
    """The beginning of the one that was spoiled; empty when it did not come."""
    seconds: float
    told: str = ""
    """The typed error that the caller got."""
    wrong: str = ""

    def __str__(self) -> str:
        result = self.wrong or (f"told: {self.told}" if self.told else "right")
        where = f"{self.script} {self.kind} {self.position}/{self.frames}"
        return f"{where} [{self.frame}] {self.seconds:.1f} s: {result}"


@dataclass
class Figures(campaign.Figures):
    calls: Counter[str] = field(default_factory=Counter)
    frames_hit: int = 0
    right: int = 0
    typed_errors: int = 0
    longest: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.calls[outcome.script] += 1
        self.frames_hit += bool(outcome.frame)
        self.longest = max(self.longest, outcome.seconds)
        if outcome.wrong:
            self.wrong.append(str(outcome))
        elif outcome.told:
            self.typed_errors += 1
        else:
            self.right += 1
        self.count_run()


class Place:
    """Where clients connect: a server, or a leaf node whose link to the hub is the proxy."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.domain: str | None = None

    @contextlib.asynccontextmanager
    async def proxy(self) -> AsyncIterator[tuple[FrameProxy, str]]:
        """A proxy for one run, and where to connect."""
        async with FrameProxy(self.server.port) as proxy:
            yield proxy, proxy.url

    def wanted(self, name: str) -> Callable[[bytes], bool]:
        return lambda _: True

    def alone(self, kind: Kind) -> bool:
        """Whether such a run disturbs others."""
        return False


class LeafPlace(Place):
    """The clients' server is a leaf node; streams are in the hub."""

    def __init__(self, hub: NatsServer, leaf: NatsServer, proxy: FrameProxy) -> None:
        super().__init__(hub)
        self.leaf = leaf
        self.link = proxy
        self.domain = "hub"

    @contextlib.asynccontextmanager
    async def proxy(self) -> AsyncIterator[tuple[FrameProxy, str]]:
        # The fault belongs to the run, the link to all: each run arms a proxy of its own, whose
        # faults the link looks through.
        one = FrameProxy(self.leaf.port)
        one._listener.close()
        self.link.also.append(one)
        try:
            yield one, self.leaf.url
        finally:
            self.link.also.remove(one)

    def wanted(self, name: str) -> Callable[[bytes], bool]:
        mark = name.encode()
        return lambda frame: mark in frame.partition(b"\r\n")[0]

    def alone(self, kind: Kind) -> bool:
        return kind in ("stalled", "cut", "torn")


@contextlib.asynccontextmanager
async def one_server() -> AsyncIterator[Place]:
    with NatsServer(name="frames") as server:
        yield Place(server)


@contextlib.asynccontextmanager
async def a_leaf_node() -> AsyncIterator[LeafPlace]:
    port = free_port()
    async with FrameProxy(port) as proxy:
        both = HubAndLeaf(port=port, through=proxy.port)
        await asyncio.to_thread(both.__enter__)
        try:
            yield LeafPlace(both.hub, both.leaf, proxy)
        finally:
            await asyncio.to_thread(both.__exit__, None, None, None)


async def _run_one(place: Place, script: str, kind: Kind, position: int) -> Outcome:
    number = next(_numbers)
    context = contextvars.copy_context()
    context.run(_run.set, number)
    task = asyncio.get_running_loop().create_task(
        _play(place, script, kind, position, number), context=context
    )
    return await task


async def _play(place: Place, script: str, kind: Kind, position: int, number: int) -> Outcome:
    name = f"F{number}x{random.getrandbits(32):08x}"
    reported: list[JetsparkError] = []
    told = wrong = ""
    start = time.monotonic()
    async with (
        place.proxy() as (proxy, url),
        jetspark.connect(place.server.url, first_connect="wait") as beside,
    ):
        nc = await jetspark.connect(
            url,
            first_connect="wait",  # no frame is disturbed yet; the machine may be busy
            reconnect_wait=0.05,
            reconnect_jitter=0.02,
            request_timeout=PATIENCE,
            inbox_prefix=f"_INBOX_{name}",
            jetstream_domain=place.domain,
            error_callback=reported.append,
        )
        scene = Scene(
            name=name,
            position=position,
            kind=kind,
            proxy=proxy,
            nc=nc,
            near=beside.jetstream(timeout=20),
            url=url,
            domain=place.domain,
            wanted=place.wanted(name),
            reported=reported,
        )
        try:
            async with within(LIMIT, "the run"):
                start = time.monotonic()
                try:
                    await (SCRIPTS | OF_SPARK)[script](scene)
                except JetsparkError as error:
                    told = type(error).__name__
                seconds = time.monotonic() - start
                proxy.fault = None
                wrong = await _left_behind(scene, number)
        except Exception as error:
            seconds = time.monotonic() - start
            wrong = (str(error) if isinstance(error, AssertionError) else "") or repr(error)
        finally:
            proxy.fault = None
            await nc.close()
            await scene.clean()
    fault = scene.fault
    frame = "" if fault is None or fault.hit is None else _beginning(fault.hit, name)
    seen = 0 if fault is None else fault.seen
    _tasks.pop(number, None)
    return Outcome(script, kind, position, seen, frame, seconds, told, wrong)


async def _left_behind(scene: Scene, number: int) -> str:
    """What is still there that should not be, a while after the end."""
    nc = scene.nc
    if not _closed(nc):
        for attempt in range(5):
            try:
                await scene.js.account_info()
                break
            except JetsparkError as error:
                if attempt == 4:
                    return f"the connection does not work: {error!r}"
    deadline = time.monotonic() + _EMPTY_WITHIN
    while left := _in_tables(scene, number):
        if time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.02)
    for stream in (scene.name, f"KV_{scene.name}", f"OBJ_{scene.name}"):
        with contextlib.suppress(JetsparkError):
            async for info in scene.near.stream(stream).consumers():
                config = info.config
                if not config.durable_name and not config.inactive_threshold:
                    return f"consumer {info.name} stays on the server"
    return ""


def _closed(nc: Client) -> bool:
    return nc.status is ConnectionStatus.CLOSED


def _in_tables(scene: Scene, number: int) -> str:
    nc = scene.nc
    if requests := len(nc.requests):
        return f"{requests} requests are in the table"
    subjects = [route.subject for route in nc._link.routes]
    if len(subjects) > (0 if _closed(nc) else 1):  # the inbox of requests
        return f"subscriptions stay: {subjects}"
    names = [
        f"{task.get_name()} {task.get_coro()}"
        for task in _tasks[number]
        if not task.done() and "/jetspark/" in _file(task) and "supervisor" not in _file(task)
    ]
    return f"tasks stay: {names}" if names else ""


def _file(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return "" if code is None else str(code.co_filename)


def _beginning(frame: bytes, name: str) -> str:
    head, _, rest = frame.partition(b"\r\n")
    status = rest.partition(b"\r\n")[0] if rest.startswith(b"NATS/1.0 ") else b""
    text = " ".join([*head.decode("latin-1").split()[:-1][:4], status.decode("latin-1")])
    return text.replace(name, "…")[:100].strip()


def _factory(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    task = asyncio.Task(coro, loop=loop, **options)
    context = options.get("context")
    number = _run.get() if context is None else context.get(_run, 0)
    if number:
        _tasks[number].add(task)
    return task


async def positions(place: Place, scripts: Sequence[str], kind: Kind = "drop") -> dict[str, int]:
    """How many such frames there are without a fault. AssertionError when that is not right."""
    outcomes = await asyncio.gather(
        *(_run_one(place, script, kind, _NOWHERE) for script in scripts)
    )
    for outcome in outcomes:
        assert not outcome.wrong, f"without a fault: {outcome}"
        assert not outcome.told, f"without a fault: {outcome}"
    return {outcome.script: outcome.frames for outcome in outcomes}


async def run_on(
    place: Place,
    runs: int,
    seed: int,
    scripts: Sequence[str] = tuple(SCRIPTS),
    kinds: Sequence[Kind] = KINDS,
    *,
    position: int = 0,
    parallel: int = 12,
) -> Figures:
    """So many positions, in an order by `seed`; all of them once before any comes again."""
    asyncio.get_running_loop().set_task_factory(_factory)  # type: ignore[arg-type]
    if position:
        cases = [(script, kind, position) for kind in kinds for script in scripts]
    else:
        all_answers = await positions(place, scripts)
        there = {
            kind: await positions(place, scripts, kind)
            if kind in (*OF_QUESTIONS, *OF_ANSWERS)
            else all_answers
            for kind in kinds
        }
        cases = [
            (script, kind, at)
            for kind, last in there.items()
            for script in scripts
            for at in range(1, last[script] + 1)
        ]
    rng = random.Random(seed)
    todo: list[tuple[str, Kind, int]] = []
    while len(todo) < runs:
        rng.shuffle(cases)
        todo += cases
    todo = todo[:runs]
    figures = Figures()

    async def work(queue: list[tuple[str, Kind, int]]) -> None:
        while queue:
            figures.add(await _run_one(place, *queue.pop()))

    together = [case for case in todo if not place.alone(case[1])]
    one_by_one = [case for case in todo if place.alone(case[1])]
    await asyncio.gather(*(work(together) for _ in range(parallel)))
    await work(one_by_one)
    return figures


async def run(
    runs: int = 1500,
    seed: int = 0,
    calls: bool = False,
    leaf: bool = False,
    only: str = "",
    kind: Annotated[str, ("", *KINDS, *OF_QUESTIONS, *OF_ANSWERS)] = "",
    position: int = 0,
    parallel: int = 12,
) -> Figures:
    """Of the calls whose names have `only`, so many at a time; 1,500 is each position once."""
    scripts = campaign.those_named(only, CALLS if calls else SCRIPTS)
    kinds = [cast("Kind", kind)] if kind else WAYS if calls else KINDS
    async with a_leaf_node() if leaf else one_server() as place:
        return await run_on(place, runs, seed, scripts, kinds, position=position, parallel=parallel)

"""Every await is cancelled.

Each awaitable call of the client, JetStream, buckets and object stores is cancelled where it waits
for the first time, then for the second, and so on until it ends by itself; once while it waits, and
once just when what it waits for has come. After each time the client works, nothing of the call is
left in its tables or among the tasks, nothing was logged, reported or never retrieved. Consumers
that are left on the server are such as the server removes by itself.

`--only NAME` tries one call alone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.soak.cancelling_calls import CALLS, Call, Scene
from tests.support import campaign

from jetspark import Client, ConnectionStatus, JetsparkError
from jetspark.server import NatsServer

SETTLED_WITHIN = 15.0
"""Seconds until nothing of a cancelled call is left: cleaning up may ask the server."""
LONGEST = 60.0
"""Seconds that a cancelled call may go on: longer is a hang."""
WAYS = ("while it waits", "when it has come")


class Steps:
    """How often a call has waited."""

    count = 0


@types.coroutine
def cancelled_at(
    call: Coroutine[Any, Any, object], step: int, way: str, steps: Steps
) -> Generator[Any, Any, object]:
    """Runs the call; its task is cancelled where it waits for the `step`th time."""
    task = asyncio.current_task()
    assert task is not None
    inner = call.__await__()
    send: Callable[[], Any] = lambda: inner.send(None)  # noqa: E731
    while True:
        try:
            waited_for = send()
        except StopIteration as end:
            return end.value
        steps.count += 1
        if steps.count == step:
            if way == WAYS[0] or waited_for is None:
                task.cancel()
            else:
                # Behind the task's own callback it would be too late: this is called before it.
                waited_for.add_done_callback(lambda _: task.cancel())
        try:
            yield waited_for
        except BaseException as error:
            send = lambda error=error: inner.throw(error)  # type: ignore[misc]  # noqa: E731
        else:
            send = lambda: inner.send(None)  # noqa: E731


@dataclass
class Figures(campaign.Figures):
    cancelled: int = 0
    by_call: Counter[str] = field(default_factory=Counter)


class Watch(logging.Handler):
    """What is logged, reported, or noticed by the interpreter and the event loop."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(f"logged: {record.getMessage()}")

    def reported(self, error: JetsparkError) -> None:
        self.found.append(f"reported: {error!r}")

    def take(self) -> list[str]:
        found, self.found = self.found, []
        return found

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(
            lambda _, context: self.found.append(f"event loop: {context.get('message')}")
        )
        hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        loggers = [logging.getLogger(name) for name in ("jetspark", "asyncio")]
        for logger in loggers:
            logger.addHandler(self)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = self._warned
            try:
                yield
            finally:
                gc.collect()
                for logger in loggers:
                    logger.removeHandler(self)
                sys.unraisablehook = hook
                loop.set_exception_handler(None)

    def _unraisable(self, what: Any) -> None:
        self.found.append(f"unraisable: {what.exc_value!r} in {what.object!r}")

    def _warned(self, message: Warning | str, *_: Any, **__: Any) -> None:
        self.found.append(f"warned: {message}")


def tables(nc: Client) -> dict[str, object]:
    """What grows with calls that are under way."""
    link = nc._link
    return {
        "requests": len(nc.requests),
        "subscriptions at the server": sorted(route.subject for route in link.routes),
        "subscriptions": len(nc._subscriptions),
        "waiting for room": len(link.outbox._room),
        "event streams": len(nc._notices._streams),
        "tasks": len(asyncio.all_tasks()),
    }


async def settled(nc: Client, before: dict[str, object]) -> str | None:
    """None when all is as it was; what is not, in the end."""
    deadline = time.monotonic() + SETTLED_WITHIN
    while (now := tables(nc)) != before:
        if time.monotonic() > deadline:
            wrong = {name: (before[name], now[name]) for name in now if now[name] != before[name]}
            names = sorted(task.get_name() + repr(task.get_coro()) for task in asyncio.all_tasks())
            return f"left behind: {wrong}, tasks {names}"
        await asyncio.sleep(0.002)
    return None


async def works(scene: Scene) -> str | None:
    """None when the client does what a client does."""
    nc = scene.nc
    if nc.status is not ConnectionStatus.CONNECTED:
        return f"the client is {nc.status}"
    try:
        async with asyncio.timeout(30):
            token = b"%d" % scene.number()
            reply = await nc.request(scene.echo, token)
            await nc.publish(scene.own.subject, token)
            message = await scene.own.next(30)
            while message.data != token:
                message = await scene.own.next(30)
    except (JetsparkError, TimeoutError) as error:
        return f"the client does not work: {error!r}"
    return None if reply.data == token else f"another reply: {reply.data!r} for {token!r}"


async def run_one(scene: Scene, call: Call, step: int, way: str) -> tuple[bool, str | None]:
    """Whether it was cancelled, and what was wrong."""
    steps = Steps()
    before = tables(scene.nc)
    async with call.prepared(scene) as coroutine:
        task = asyncio.create_task(_awaited(cancelled_at(coroutine, step, way, steps)))
        done, _ = await asyncio.wait({task}, timeout=LONGEST)
        if not done:
            task.cancel()
            return True, f"went on for {LONGEST:g} s"
        wrong = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, call.expected):
            wrong = f"raised {error!r}"
        # Its traceback, and what hangs on it.
        error = None
        del task, done
    cancelled = steps.count >= step
    gone = await settled(scene.nc, before)
    return cancelled, wrong or gone or await works(scene)


async def _awaited(call: Any) -> object:
    return await call


async def run(runs: int = 5000, seed: int = 1, only: str = "") -> Figures:
    """A run is a call, cancelled at its next step, until it is not: from the first step on."""
    figures, watch = Figures(), Watch()
    chosen = random.Random(seed)
    calls = campaign.those_named(only, CALLS, lambda call: call.name)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(NatsServer())
        await stack.enter_async_context(watch.watching())
        scene = await stack.enter_async_context(Scene.on(server.url, watch.reported))
        places = {call.name: (1, 0) for call in calls}
        for number in range(runs):
            if number % len(calls) == 0:
                chosen.shuffle(calls)
            call = calls[number % len(calls)]
            step, way = places[call.name]
            cancelled, wrong = await run_one(scene, call, step, WAYS[way])
            figures.count_run()
            figures.cancelled += cancelled
            figures.by_call[call.name] += cancelled
            if figures.runs % 20 == 0 or wrong:
                gc.collect()
            found = watch.take()
            for what in [wrong] * bool(wrong) + [one for one in found if not call.may(one)]:
                figures.wrong.append(f"run {number}: {call.name}, step {step}, {WAYS[way]}: {what}")
            if wrong and scene.nc.status is not ConnectionStatus.CONNECTED:
                break
            # Deeper by jumps, so that long calls come to their end too.
            deeper = step + 1 if step < 12 else step + chosen.randint(1, 1 + step // 3)
            places[call.name] = (deeper, way) if cancelled else (1, 1 - way)
        figures.wrong += await scene.left_on_the_server()
    figures.wrong += watch.take()
    return figures

"""A stopped server ends no deadline later.

The server is stopped (SIGSTOP), and publishes fill the buffers of the socket and of the client.
Then every public call that has a timeout is made, with the asyncio and the blocking client, once
with full buffers and once with empty ones. Each must raise an error of the client, or return,
within 1.5 times its timeout.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support import campaign

import jetspark
from jetspark import blocking
from jetspark.errors import JetsparkError
from jetspark.server import NatsServer

LONGEST = 1.5
"""Times its timeout that a call may last."""


@dataclass
class Figures(campaign.Figures):
    """How long the calls lasted, by the share of their timeouts."""

    calls: int = 0
    longest: float = 0.0

    def ended(self, call: str, share: float) -> None:
        """A call ended after this share of its timeout."""
        self.calls += 1
        self.longest = max(self.longest, share)
        if share > LONGEST:
            self.wrong.append(f"{call}: {share:.2f} times its timeout")


class Prepared:
    """What there is before the server stops; each needs its own, as a link is used up."""

    def __init__(self, nc: Any, timeout: float) -> None:
        self.nc = nc
        self.js = nc.jetstream(timeout=timeout)
        self.made: dict[str, Any] = {}


CALLS: dict[str, Callable[[Prepared, float], Any]] = {
    "request": lambda p, t: p.nc.request("nobody", b"", timeout=t),
    "request_msg": lambda p, t: p.nc.request_msg(p.made["message"], timeout=t),
    "request_many": lambda p, t: p.nc.request_many("nobody", b"", timeout=t).all(),
    "flush": lambda p, t: p.nc.flush(t),
    "rtt": lambda p, t: p.nc.rtt(t),
    "publish": lambda p, t: p.js.publish("s.a", b"", timeout=t),
    "increment": lambda p, t: p.js.increment("s.a", timeout=t),
    "account_info": lambda p, t: p.js.account_info(),
    "stream_info": lambda p, t: p.js.stream("S").info(),
    "streams": lambda p, t: p.js.streams().all(),
    "create_stream": lambda p, t: p.js.create_stream(name="NEW", subjects=["new"]),
    "get_msg": lambda p, t: p.js.stream("S").get(1),
    "consumer info": lambda p, t: p.made["consumer"].info(),
    "fetch": lambda p, t: p.made["consumer"].fetch(5, timeout=t),
    "consumer next": lambda p, t: p.made["consumer"].next(timeout=t),
    "ack_sync": lambda p, t: p.made["delivered"].ack_sync(timeout=t),
    "get": lambda p, t: p.made["bucket"].get("k"),
    "put": lambda p, t: p.made["bucket"].put("k", b""),
    "create": lambda p, t: p.made["bucket"].create("n", b""),
    "delete": lambda p, t: p.made["bucket"].delete("k"),
    "purge": lambda p, t: p.made["bucket"].purge("k"),
    "update": lambda p, t: p.made["bucket"].update("k", b"", 1),
    "status": lambda p, t: p.made["bucket"].status(),
    "keys": lambda p, t: p.made["bucket"].keys().all(),
    "history": lambda p, t: p.made["bucket"].history().all(),
    "watch next": lambda p, t: p.made["bucket"].watch().next(t),
    "ordered next": lambda p, t: p.js.stream("S").ordered().next(t),
    "subscription next": lambda p, t: p.nc.subscribe("nothing").next(t),
    "events next": lambda p, t: p.js.events().next(t),
    "subscription drain": lambda p, t: p.nc.subscribe("nothing").drain(t),
    "consume drain": lambda p, t: p.made["consumer"].consume().drain(t),
    "lock": lambda p, t: p.made["bucket"].lock("l").acquire(t),
    "services": lambda p, t: p.nc.services().request("nobody", timeout=t),
    "pings": lambda p, t: p.nc.services().ping(timeout=t).all(),
    "atomic_batch": lambda p, t: _batch(p.js.atomic_batch(timeout=t)),
    "publisher flush": lambda p, t: p.made["publisher"].flush(),
    "service stop": lambda p, t: p.made["service"].stop(t),
    "barrier": lambda p, t: p.nc.barrier(t),
    "drain": lambda p, t: p.nc.drain(t),
}


def _batch(batch: Any) -> Any:
    if hasattr(batch, "__enter__"):
        with batch:
            batch.publish("s.a")
        return None

    async def add() -> None:
        async with batch:
            await batch.publish("s.a")

    return add()


async def _prepare(nc: Any, timeout: float, call: Callable[..., Any]) -> Prepared:
    """`call` awaits a result if it must be; in a thread for the blocking client."""
    prepared = Prepared(nc, timeout)
    js, made = prepared.js, prepared.made
    made["message"] = jetspark.PreparedMessage("nobody", b"")
    made["consumer"] = await call(lambda: js.stream("S").consumer("c"))
    made["bucket"] = await call(lambda: js.bucket("B"))
    made["delivered"] = await call(lambda: made["consumer"].next(timeout=5))
    made["publisher"] = await call(lambda: js.publisher(timeout=timeout, raise_failures=False))
    enter = "__aenter__" if hasattr(made["publisher"], "__aenter__") else "__enter__"
    await call(getattr(made["publisher"], enter))
    made["service"] = await call(lambda: nc.add_service("s", "1.0.0"))
    return prepared


async def _in_loop(make: Callable[[], Any]) -> Any:
    made = make()
    return await made if inspect.isawaitable(made) else made


async def _in_thread(make: Callable[[], Any]) -> Any:
    ended: Future[Any] = Future()
    ended.set_running_or_notify_cancel()

    def work() -> None:
        try:
            ended.set_result(make())
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(ended)


def _fill(nc: Any) -> None:
    """Publish until the socket and the buffers of the client take no more."""
    with suppress(JetsparkError):
        for _ in range(10_000):
            nc.publish_nowait("unheard", bytes(60_000))


async def _measured(
    figures: Figures, what: str, name: str, prepared: Prepared, timeout: float, call: Any
) -> None:
    begun = time.monotonic()
    try:
        async with asyncio.timeout(4 * timeout + 4):
            await call(lambda: CALLS[name](prepared, timeout))
    except JetsparkError:
        pass
    except TimeoutError:
        figures.wrong.append(f"{what} {name} had not ended")
    figures.ended(f"{what} {name}", (time.monotonic() - begun) / timeout)


async def run_on(server: NatsServer, figures: Figures, timeout: float, calls: list[str]) -> None:
    """One run on a server, with some calls."""
    url = server.url
    options: dict[str, Any] = {"request_timeout": timeout, "ping_interval": 3600}
    async with jetspark.connect(url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s.*"], storage="memory")
        await js.stream("S").create_consumer(name="c", ack_wait=3600, max_ack_pending=-1)
        await (await js.create_bucket("B", storage="memory")).put("k", b"")
        for _ in range(4 * len(calls)):
            await js.publish("s.a")
    for full in (False, True):
        jobs = []
        clients: list[tuple[Any, Any]] = []
        for name in calls:
            own = await jetspark.connect(url, **options)
            other = await asyncio.to_thread(blocking.connect, url, **options)
            both: list[tuple[Any, Any]] = [(own, _in_loop), (other, _in_thread)]
            for nc, call in both:
                prepared = await _prepare(nc, timeout, call)
                how = "asyncio" if call is _in_loop else "blocking"
                what = f"{how}, {'full' if full else 'empty'}:"
                jobs.append(_measured(figures, what, name, prepared, timeout, call))
                clients.append((nc, call))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            if full:
                for nc, call in clients:
                    await call(lambda nc=nc: _fill(nc))
                await asyncio.sleep(0.2)
            for begin in range(0, len(jobs), 40):
                await asyncio.gather(*jobs[begin : begin + 40])
        finally:
            os.kill(server.pid, signal.SIGCONT)
        for nc, call in clients:
            with suppress(JetsparkError):
                await call(nc.close)
    figures.count_run()


async def run(runs: int = 1, seed: int = 0, timeout: float = 2.0) -> Figures:
    """A run is all calls, in an order by the seed."""
    figures, rng = Figures(), Random(seed)
    for _ in range(runs):
        with NatsServer() as server:
            await run_on(server, figures, timeout, rng.sample([*CALLS], len(CALLS)))
    return figures

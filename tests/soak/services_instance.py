"""One instance of the service of `tests.soak.services`: `URL asyncio|blocking`.

Says "ready", stops in good order at SIGTERM, and ends at once with its standard input.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time

from tests.support.instances import end_with_parent

import jetspark
from jetspark import blocking
from jetspark.blocking.services import Request as BlockingRequest
from jetspark.services import Request

_LONGEST = 0.008  # seconds in the handler


async def _asyncio(url: str) -> None:
    async with jetspark.connect(url) as nc:
        service = await nc.add_service("soak", "1.0.0")

        async def echo(request: Request) -> None:
            await asyncio.sleep(random.random() * _LONGEST)
            await request.respond(request.data)

        await service.add_endpoint("echo", echo, subject="soak.echo", concurrency=20)
        loop = asyncio.get_running_loop()
        stopping: list[asyncio.Task[None]] = []
        loop.add_signal_handler(
            signal.SIGTERM, lambda: stopping.append(loop.create_task(service.stop()))
        )
        print("ready", flush=True)
        await service.wait_stopped()
        await asyncio.gather(*stopping)


def _blocking(url: str) -> None:
    def echo(request: BlockingRequest) -> None:
        time.sleep(random.random() * _LONGEST)
        request.respond(request.data)

    def interrupt(*_: object) -> None:
        raise SystemExit(0)

    with blocking.connect(url) as nc, nc.add_service("soak", "1.0.0") as service:
        service.add_endpoint("echo", echo, subject="soak.echo", concurrency=20)
        signal.signal(signal.SIGTERM, interrupt)
        print("ready", flush=True)
        service.wait_stopped()


if __name__ == "__main__":
    end_with_parent()
    if sys.argv[2] == "blocking":
        _blocking(sys.argv[1])
    else:
        asyncio.run(_asyncio(sys.argv[1]))

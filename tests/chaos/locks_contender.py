"""One contender of `tests.chaos.locks`: `URL NAME LEASE`.

A careful one asks for the token before each write; a careless one remembers it, and writes on
whatever happens to its lock, until the resource refuses.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

from tests.chaos.locks import BUCKET, KEY
from tests.support.instances import end_with_parent

import jetspark
from jetspark.errors import LockLostError

_WRITES = 20


async def _contend(url: str, name: str, lease: float) -> None:
    careful = name.startswith("careful")
    async with jetspark.connect(url, ping_interval=2) as nc:
        bucket = await nc.jetstream().bucket(BUCKET)

        async def tell(what: str, token: int) -> bool:
            reply = await nc.request(f"resource.{what}", json.dumps([token, name]).encode())
            return reply.data == b"1"

        print("ready", flush=True)
        while True:
            try:
                async with bucket.lock(KEY, lease=lease, holder=name) as lock:
                    token = lock.token
                    await tell("acquired", token)
                    for _ in range(_WRITES):
                        if not await tell("write", lock.token if careful else token):
                            break
                        await asyncio.sleep(random.random() * 0.02)
            except LockLostError:
                pass
            except jetspark.RequestTimeoutError:  # it stood still while it asked
                pass


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(_contend(sys.argv[1], sys.argv[2], float(sys.argv[3])))

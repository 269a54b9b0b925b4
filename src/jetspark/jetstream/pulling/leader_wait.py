"""Waiting between two pull requests while the consumer has no leader.

A consumer without a leader gives 503, and so does one that does not exist; the API knows which it
is. It is asked only then, with a short timeout: a server that shuts down may drop the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jetspark.errors import ConnectionClosedError, JetsparkError
from jetspark.wire import js_api
from jetspark.wire.status import NO_RESPONDERS

if TYPE_CHECKING:
    from jetspark.jetstream.api import Api

RETRY_WAIT = 0.25
"""Seconds between two requests while the consumer has no leader, or after a refusal."""

_API_WAIT = 1.0
"""Seconds for the API to answer before the next pull request."""


async def wait_for_leader(
    api: Api, names: Mapping[str, str], status: int | None
) -> JetsparkError | None:
    """Return None after RETRY_WAIT or later, or at once the API's error about the consumer.

    `status`: the code that ended the request. `names`: stream and consumer.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + RETRY_WAIT
    if status == NO_RESPONDERS:
        try:
            async with asyncio.timeout(_API_WAIT):
                await api.call(js_api.CONSUMER_INFO, **names)
        except ConnectionClosedError as error:
            return error  # a lost connection is a TimeoutError too
        except TimeoutError:
            pass  # no leader to answer either
        except JetsparkError as error:
            return error
    await asyncio.sleep(max(until - loop.time(), 0))
    return None


async def wait_for_leader_or(
    end: asyncio.Future[None],
    deadline: float,
    api: Api,
    names: Mapping[str, str],
    status: int | None,
) -> JetsparkError | None:
    """`wait_for_leader`, or None as soon as `end` is done. Raises TimeoutError at the deadline."""
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(wait_for_leader(api, names, status))
    either: set[asyncio.Future[Any]] = {waiting, end}
    left = deadline - loop.time()
    try:
        done, _ = await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise TimeoutError
        return waiting.result() if waiting.done() else None
    finally:
        waiting.cancel()

"""A request whose reply is read inside of its hook, which so is told of an error in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jetspark.client.client import Client
from jetspark.client.messages import Message
from jetspark.client.request_calls import RequestCalls
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.headers import HeadersLike

T = TypeVar("T")


async def request_and_read(
    client: Client,
    subject: str,
    payload: Payload,
    read: Callable[[Message], T],
    *,
    timeout: Seconds | None,
    headers: HeadersLike | None,
) -> T:
    """What `read` makes of the reply of `Client.request`; raises as both."""

    async def ask(sent: HeadersLike | None) -> T:
        # Not the client's own `request`, which would call the hook.
        plain = RequestCalls.request
        return read(await plain(client, subject, payload, timeout=timeout, headers=sent))

    return await client.hooking.asked(subject, payload, headers, ask)

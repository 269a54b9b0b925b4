"""A request whose reply is read inside of its hook, which so is told of an error in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jetspark.client.client import Client
from jetspark.client.messages import Message
from jetspark.client.request_calls import plain_request
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
        return read(await plain_request(client, subject, payload, timeout, sent))

    hooked = client.publishing.hooked
    if hooked is None:
        return await ask(headers)
    return await hooked.asked(subject, payload, headers, ask)

"""The NATS client for scripts, notebooks and threads: the names of `jetspark`, without `await`.

::

    from jetspark.blocking import connect

    with connect("nats://127.0.0.1:4222") as nc, nc.subscribe("orders.*") as orders:
        for message in orders: ...

Options, events, errors, headers and documents are the same classes as in `jetspark`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from jetspark.blocking.client import (
    ErrorCallback,
    EventCallback,
    EventStream,
    Message,
    Replies,
    Subscription,
)
from jetspark.blocking.full_client import Client
from jetspark.blocking.jetstream import JetStream
from jetspark.client.hooks import HooksLike
from jetspark.connection.options import ConnectionOptions, make_options

__all__ = [
    "Client",
    "EventStream",
    "JetStream",
    "Message",
    "Replies",
    "Subscription",
    "connect",
]


def connect(
    servers: str | Iterable[str] | None = None,
    *,
    hooks: HooksLike | None = None,
    event_callback: EventCallback | None = None,
    error_callback: ErrorCallback | None = None,
    **options: Unpack[ConnectionOptions],
) -> Client:
    """Connect to NATS: `nc = connect(...)`, or `with connect(...) as nc`.

    `servers`: one URL or several, default nats://127.0.0.1:4222. `options`: the fields of
    ConnectOptions. `hooks`: objects called for messages and events (see `Hooks`). `event_callback`
    is called with changes of the connection, `error_callback` with errors that no call can raise,
    both in a thread of their own. Raises ConfigError for an unknown option or a wrong value, and
    the errors of `Client.connect`.
    """
    connect_options = make_options(servers, **options)
    client = Client(
        connect_options, hooks=hooks, event_callback=event_callback, error_callback=error_callback
    )
    return client.__enter__()

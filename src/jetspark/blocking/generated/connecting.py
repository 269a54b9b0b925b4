# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: connecting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jetspark.blocking.events import ErrorCallback, EventCallback
from jetspark.blocking.full_client import Client
from jetspark.connection.options import make_options


def connect(
    servers: str | Iterable[str] | None = None,
    *,
    event_callback: EventCallback | None = None,
    error_callback: ErrorCallback | None = None,
    **options: Any,
) -> Client:
    """Connect to NATS: `nc = connect(...)`, or `with connect(...) as nc`.

    `servers`: one URL or several, nats://127.0.0.1:4222 by default. `options`: the fields of
    ConnectOptions; an unknown name raises ConfigError. `event_callback` is told of changes of the
    connection, `error_callback` of errors that no call can raise; both are called in a thread of
    their own. See `Client.connect` for the errors of connecting.
    """
    client = Client(
        make_options(servers, **options),
        event_callback=event_callback,
        error_callback=error_callback,
    )
    client.connect()
    return client

"""The user's client: `connect`, and one object with JetStream, buckets, object stores and services.

The result of `connect` can be awaited for a connected client, or entered with `async with`, which
also closes the client. Options are checked at once, before any I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import cached_property
from typing import Any, Unpack

from jetspark.backup.restore import RestoreCalls
from jetspark.backup.save import BackupCalls
from jetspark.client.callbacks import ErrorCallback, EventCallback
from jetspark.client.hooks import HooksLike
from jetspark.connection.options import ConnectionOptions, ConnectOptions, make_options
from jetspark.dead_letters.dead_letters import DeadLetterCalls
from jetspark.groups.group import GroupCalls
from jetspark.identity.callout import CalloutCalls
from jetspark.kv.bucket import BucketCalls
from jetspark.objects.store import ObjectStoreCalls
from jetspark.registry.client import RegistryCalls
from jetspark.services.service import ServiceCalls
from jetspark.system.system import SystemCalls
from jetspark.timestamps import Seconds
from jetspark.tracing.calls import TraceCalls


class JetStream(
    GroupCalls, BucketCalls, ObjectStoreCalls, DeadLetterCalls, BackupCalls, RestoreCalls
):
    """JetStream of a client, as returned by `Client.jetstream`.

    Its calls are those of `JetStreamContext` (streams, messages, publishing, consumers and the
    like), and those of Key-Value buckets, object stores, dead letters, consumer groups and backups.

    Every API call raises BadNameError before anything is sent; JetStreamNotEnabledError when
    nobody answers for JetStream, JetStreamNotEnabledForAccountError; APIError when the server
    refuses for a reason without a class of its own, JetStreamError for an unreadable answer;
    RequestTimeoutError, ConnectionClosedError, PermissionsError, MaxPayloadError, and
    OutboundBufferError during an outage.

    Example:
        ```python
        js = nc.jetstream(timeout=10)
        await js.create_stream(name="INVOICES", subjects=["invoices.>"], storage="memory")
        ack = await js.publish("invoices.eu", b"42 EUR")
        print(ack.stream, ack.seq)  # INVOICES 1
        ```
    """


class Client(ServiceCalls, TraceCalls, CalloutCalls, SystemCalls, RegistryCalls):
    """A connection to NATS; see `jetspark.client.client`.

    Example:
        ```python
        nc = await jetspark.connect("nats://127.0.0.1:4222")
        await nc.publish("orders.eu", b"42 apples")
        print((await nc.jetstream().publish("orders.us", b"7 pears")).stream)  # ORDERS
        await nc.drain()
        ```
    """

    def jetstream(
        self,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> JetStream:
        """JetStream over this connection; there may be several, with different options.

        `timeout`: seconds for each API call and ack. `domain`: a JetStream domain, such as one
        behind a leaf node. `api_prefix`: the whole prefix instead of "$JS.API", for an API imported
        from another account. Without them, the connection's options `jetstream_domain` and
        `jetstream_api_prefix` apply. `trace`: log each API request and answer to "jetspark.trace"
        at level DEBUG, without messages and secrets. Sends nothing. Raises ConfigError for both
        domain and api_prefix, BadNameError, BadSubjectError.

        Example:
            ```python
            js = nc.jetstream(timeout=10)
            hub = nc.jetstream(domain="hub")  # of another domain
            ```
        """
        return JetStream(self, timeout=timeout, domain=domain, api_prefix=api_prefix, trace=trace)


class Connecting(Coroutine[Any, Any, Client]):
    """The result of `connect`: `nc = await it`, or `async with it as nc`, once.

    It is a coroutine, so that `asyncio.create_task` and `asyncio.wait_for` accept it.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._client: Client | None = None

    @cached_property
    def _coroutine(self) -> Coroutine[Any, Any, Client]:
        return self._connect()

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    def send(self, value: Any) -> Any:
        """See `Coroutine.send`."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """See `Coroutine.throw`."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """See `Coroutine.close`."""
        if "_begun" in vars(self):
            self._coroutine.close()

    async def _connect(self) -> Client:
        client = self._make()
        await client.connect()
        return client

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()


def connect(
    servers: str | Iterable[str] | None = None,
    *,
    hooks: HooksLike | None = None,
    event_callback: EventCallback | None = None,
    error_callback: ErrorCallback | None = None,
    **options: Unpack[ConnectionOptions],
) -> Connecting:
    """Connect to NATS: `await connect(...)` or `async with connect(...) as nc`.

    `servers`: one URL or several, default nats://127.0.0.1:4222. `options`: the fields of
    ConnectOptions. `hooks`: objects called for messages and events (see `Hooks`). `event_callback`
    is called with each change of the connection, `error_callback` with errors that no call can
    raise; both may be async. Raises ConfigError for an unknown option or a wrong value; connecting
    raises the errors of `Client.connect`.

    Example:
        ```python
        async with jetspark.connect("nats://127.0.0.1:4222", name="orders") as nc:
            await nc.publish("orders.eu", b"42 apples")
            print(nc.status)  # connected
        ```
    """
    connect_options: ConnectOptions = make_options(servers, **options)
    return Connecting(
        lambda: Client(
            connect_options,
            hooks=hooks,
            event_callback=event_callback,
            error_callback=error_callback,
        )
    )

# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""Core NATS without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jetspark.blocking.by_hand.client import (
    BaseClient,
    BaseSubscription,
    Message,
    MessageCallback,
    Replies,
    judging,
)
from jetspark.blocking.docstrings import twin_of
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.client.client import Client as AsyncClient
from jetspark.client.subscription import Subscription as AsyncSubscription
from jetspark.connection.transports import TLSState
from jetspark.errors import JetsparkError
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import HeadersLike

__all__ = ["Client", "Subscription"]


@twin_of(AsyncSubscription)
class Subscription(BaseSubscription):
    """The result of `Client.subscribe`: iterate it, or give it a callback."""

    _inner: AsyncSubscription

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._inner.active

    @property
    def subject(self) -> str:
        """The subject of the subscription."""
        return self._inner.subject

    @property
    def queue(self) -> str | None:
        """The queue group."""
        return self._inner.queue

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped


@twin_of(AsyncClient)
class Client(BaseClient):
    """One connection to a NATS deployment: created in a running event loop, then connected."""

    _inner: AsyncClient

    @property
    def last_error(self) -> JetsparkError | None:
        """The last asynchronous error; a successful (re)connect clears it."""
        return self._inner.last_error

    @property
    def server_info(self) -> ServerInfo | None:
        """INFO of the current server, or of the last one while there is no link."""
        return self._inner.server_info

    @property
    def current_server(self) -> str | None:
        """URL of the current server, without credentials; None without a link."""
        return self._inner.current_server

    @property
    def tls(self) -> TLSState | None:
        """Version, cipher and the server's certificate of the link; None without TLS or a link."""
        return self._inner.tls

    @property
    def servers(self) -> list[str]:
        """URLs of all servers in the pool, including those that the cluster advertised."""
        return self._inner.servers

    @property
    def max_payload(self) -> int:
        """Largest message that the server accepts: bytes of headers and payload."""
        return self._inner.max_payload

    def report(self, error: JetsparkError) -> None:
        """To last_error, the log and the error callback: for errors that no call can raise."""
        self._thread.call(self._inner.report, error)

    def set_servers(self, servers: str | Iterable[str]) -> None:
        """Replace the servers to connect to, discovered ones too, from the next attempt on."""
        self._thread.call(self._inner.set_servers, servers)

    def force_reconnect(self) -> None:
        """Leave this server for the next one; returns when the new link is up."""
        self._thread.run(self._inner.force_reconnect)

    def rtt(self, timeout: Seconds | None = None) -> float:
        """Seconds of one round trip to the server."""
        return self._thread.run(self._inner.rtt, timeout)

    def request_many(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
        max_msgs: int = 0,
        stall: Seconds | None = None,
        sentinel: bool | Callable[[Message], bool] = False,
    ) -> Replies:
        """Publish and gather replies: `for` over the result, or make it a list."""
        return Replies(
            self._caller,
            self._inner.request_many(
                subject,
                payload,
                timeout=timeout,
                headers=headers,
                max_msgs=max_msgs,
                stall=stall,
                sentinel=judging(self._caller, sentinel),
            ),
        )

    def subscribe(
        self,
        subject: str,
        *,
        queue: str | None = None,
        callback: MessageCallback | None = None,
        max_msgs: int = 0,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> Subscription:
        """Subscribe; iterate the result, or give a callback (a plain function, called in a thread
        of its own).
        """
        return Subscription(
            self._caller,
            lambda forward: self._inner.subscribe(
                subject,
                queue=queue,
                callback=forward,
                max_msgs=max_msgs,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            ),
            callback,
        )

"""HTTP connections that end at a time, whatever the server does.

A timeout of a socket is one for each read, so a server that sends a byte now and then, or an answer
that only says to wait, keeps its client for ever.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any, Self
from urllib.request import BaseHandler, HTTPHandler, HTTPSHandler, Request

from jetspark.connection.locks import new_lock


class Deadline:
    """Ends the connections of one request when its time is over.

    `with Deadline(5) as deadline:` raises TimeoutError if the block used a connection that was
    ended.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_over = False
        self._sockets: list[socket.socket] = []
        self._lock = new_lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for connection in sockets:
            connection.close()
        if self.is_over and (error is None or isinstance(error, (OSError, HTTPException))):
            raise TimeoutError(f"timed out: no whole answer within {self.seconds:g} s") from error

    def connection(self, host: str, **options: Any) -> WatchedConnection:
        """Create a connection that ends in time; with a `context` through TLS."""
        kind = WatchedTLSConnection if "context" in options else WatchedConnection
        connection: WatchedConnection = kind(host, **options)
        connection.deadline = self
        return connection

    def handlers(self, context: ssl.SSLContext) -> tuple[BaseHandler, BaseHandler]:
        """Return handlers of urllib for connections that end in time."""
        return _PlainHandler(self), _TLSHandler(self, context)

    def watch(self, connected: socket.socket) -> None:
        """End this connection, too, when the time is over."""
        # A second descriptor, since TLS takes the socket over while it shakes hands.
        duplicate = socket.socket(fileno=os.dup(connected.fileno()))
        with self._lock:
            self._sockets.append(duplicate)
            if self.is_over:
                _shut_down(duplicate)

    def _end(self) -> None:
        """End all connections: the time is over."""
        with self._lock:
            self.is_over = True
            for connection in self._sockets:
                _shut_down(connection)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side was faster
        connection.shutdown(socket.SHUT_RDWR)


class WatchedConnection(HTTPConnection):
    """A connection that its deadline ends."""

    deadline: Deadline

    def connect(self) -> None:
        """Connect, and watch the socket before TLS begins."""
        super().connect()
        self.deadline.watch(self.sock)

    def reuse(self, deadline: Deadline) -> None:
        """Use the connection for another request."""
        self.deadline = deadline
        if self.sock is not None:
            deadline.watch(self.sock)


class WatchedTLSConnection(HTTPSConnection, WatchedConnection):
    """A watched connection through TLS."""


class _PlainHandler(HTTPHandler):
    """Opens http:// on watched connections."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._deadline.connection, req)


class _TLSHandler(HTTPSHandler):
    """Opens https:// on watched connections."""

    def __init__(self, deadline: Deadline, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._deadline = deadline
        self._own_context = context

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._deadline.connection, req, context=self._own_context)

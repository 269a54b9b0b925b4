"""Opens the socket to a server, directly or through a proxy: `bulk.sockets` for asyncio.

`opening` has what both share: the addresses of a host name, and the user's own dialer.
"""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from typing import Any

from jetspark.connection.opening import Attempts, call_dialer, reason_of
from jetspark.connection.options import ConnectOptions
from jetspark.connection.proxy import Proxy, ask_proxy, following
from jetspark.connection.urls import ServerURL
from jetspark.errors import ServerRefusedError


async def open_socket(options: ConnectOptions, server: ServerURL) -> socket.socket:
    """A connected non-blocking socket whose peer is the server.

    Raises OSError, UnicodeError for a name that no host can have, ServerRefusedError of a proxy,
    JetsparkError for a dialer that fails.
    """
    proxy = options.proxy_server
    if proxy is None:
        return await _connected(options, server.host, server.port)
    try:
        sock = await _connected(options, proxy.host, proxy.port)
    except TimeoutError:
        raise
    except (OSError, UnicodeError) as error:
        raise ServerRefusedError(
            f"No proxy at {proxy}: {reason_of(error)}.", server=str(server)
        ) from error
    try:
        await _through(sock, proxy, server)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connected(options: ConnectOptions, host: str, port: int) -> socket.socket:
    if options.dialer is not None:
        return await _dialled(options, host, port)
    loop = asyncio.get_running_loop()
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )  # an address: no look-up, so no thread
    except socket.gaierror:
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await loop.run_in_executor(None, look_up)
    attempts = Attempts(options, found)
    for sock, address, seconds in attempts:
        with attempts.connecting(sock):
            sock.setblocking(False)
            async with asyncio.timeout(seconds):
                await _connect(sock, address)
            return sock
    raise attempts.failure


async def _connect(sock: socket.socket, address: Any) -> None:
    """As `sock_connect` of asyncio's own loops. Raises OSError.

    uvloop's looks up addresses, too, in libuv's threads. A child that is forked afterwards does not
    have these threads, but libuv joins them at its exit: a segmentation fault.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.BaseEventLoop):
        await loop.sock_connect(sock, address)
        return
    try:
        sock.connect(address)
    except BlockingIOError:
        connected = asyncio.Event()
        loop.add_writer(sock, connected.set)
        try:
            await connected.wait()
        finally:
            loop.remove_writer(sock)
        if failure := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(failure, os.strerror(failure)) from None


async def _dialled(options: ConnectOptions, host: str, port: int) -> socket.socket:
    """In a thread, since the user's callable may block."""
    assert options.dialer is not None  # noqa: S101
    dialling = asyncio.ensure_future(asyncio.to_thread(call_dialer, options, host, port))
    try:
        sock = await asyncio.shield(dialling)
    except asyncio.CancelledError:
        dialling.add_done_callback(_close_late)
        raise
    sock.setblocking(False)
    return sock


def _close_late(dialling: asyncio.Future[socket.socket]) -> None:
    if not dialling.cancelled() and dialling.exception() is None:
        dialling.result().close()


async def _through(sock: socket.socket, proxy: Proxy, server: ServerURL) -> None:
    loop = asyncio.get_running_loop()
    steps = ask_proxy(proxy, server)
    step = following(steps)
    while step is not None:
        if isinstance(step, bytes):
            await loop.sock_sendall(sock, step)
            step = following(steps)
        else:
            step = following(steps, await loop.sock_recv(sock, step))

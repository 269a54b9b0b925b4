"""Opens the socket to a server, directly or through a proxy: `bulk.sockets` for asyncio.

A host name may have several addresses (ADR-11): they are tried in random order, unless `randomize`
is off, and share the time of the attempt. A callable of the user's own, `dialer`, replaces this.
"""

from __future__ import annotations

import asyncio
import random
import socket
from functools import partial

from jetspark.connection.dialer import call_dialer
from jetspark.connection.options import ConnectOptions
from jetspark.connection.proxy import Proxy, ask_proxy, hung_up
from jetspark.connection.transport import reason_of
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
    if options.randomize:
        random.shuffle(found)
    end = loop.time() + options.connect_timeout
    failure: OSError = OSError("the name has no address")
    for left, (family, kind, protocol, _, address) in zip(
        range(len(found), 0, -1), found, strict=True
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(max(0.0, end - loop.time()) / left):
                await loop.sock_connect(sock, address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:  # TimeoutError, too
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure


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
    step = next(steps)
    while True:
        answer = b""
        if isinstance(step, bytes):
            await loop.sock_sendall(sock, step)
        else:
            while len(answer) < step:
                if not (more := await loop.sock_recv(sock, step - len(answer))):
                    raise hung_up(proxy, server)
                answer += more
        try:
            step = steps.send(answer)
        except StopIteration:
            return

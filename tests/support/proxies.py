"""Small proxies on the loopback, HTTP CONNECT and SOCKS5, for clients of any kind."""

from __future__ import annotations

import base64
import socket
import struct
import threading
from typing import Self


class Proxy:
    """Accepts in a thread; each connection has two more. `asked`: the addresses asked for.

    `login`: the user and password that it asks for. `names`: where a host name leads, since the
    proxy looks up names. `refusal`: what it answers instead of connecting.
    """

    scheme = ""

    def __init__(
        self,
        *,
        login: tuple[str, str] | None = None,
        names: dict[str, int] | None = None,
        refusal: bytes | None = None,
    ) -> None:
        self.login = login
        self.names = names or {}
        self.refusal = refusal
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def url_with(self, user: str, password: str) -> str:
        return f"{self.scheme}://{user}:{password}@127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections."""
        for sock in tuple(self._sockets):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended already

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._sockets.add(client)
        with client:
            try:
                if (server := self._shake_hands(client)) is not None:
                    self._sockets.add(server)
                    with server:
                        self._carry(client, server)
            except OSError:
                pass

    def _shake_hands(self, client: socket.socket) -> socket.socket | None:
        raise NotImplementedError

    def _connected(self, host: str, port: int) -> socket.socket:
        self.asked.append(f"{host}:{port}")
        return socket.create_connection(("127.0.0.1", self.names.get(host, port)))

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        def copy(source: socket.socket, target: socket.socket) -> None:
            try:
                while chunk := source.recv(1 << 16):
                    target.sendall(chunk)
                target.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        up = threading.Thread(target=copy, args=(client, server), daemon=True)
        up.start()
        copy(server, client)
        up.join()


class HttpProxy(Proxy):
    """HTTP CONNECT. The answer and the server's INFO may come in one segment."""

    scheme = "http"

    def _shake_hands(self, client: socket.socket) -> socket.socket | None:
        request = b""
        while b"\r\n\r\n" not in request:
            if not (more := client.recv(4096)):
                return None
            request += more
        lines = request.decode().split("\r\n")
        if self.refusal is not None:
            client.sendall(self.refusal)
            return None
        if self.login is not None:
            wanted = base64.b64encode(":".join(self.login).encode()).decode()
            if f"Proxy-Authorization: Basic {wanted}" not in lines:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return None
        host, _, port = lines[0].split(" ")[1].rpartition(":")
        server = self._connected(host.strip("[]"), int(port))
        client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        return server


class SocksProxy(Proxy):
    """SOCKS5 with or without a login."""

    scheme = "socks5"

    def _shake_hands(self, client: socket.socket) -> socket.socket | None:
        _, count = _exactly(client, 2)
        methods = _exactly(client, count)
        wanted = 0 if self.login is None else 2
        if wanted not in methods:
            client.sendall(b"\x05\xff")
            return None
        client.sendall(bytes([5, wanted]))
        if self.login is not None:
            _exactly(client, 1)
            given = tuple(_exactly(client, _exactly(client, 1)[0]).decode() for _ in range(2))
            client.sendall(b"\x01\x00" if given == self.login else b"\x01\x01")
            if given != self.login:
                return None
        kind = _exactly(client, 4)[3]
        if kind == 3:
            host = _exactly(client, _exactly(client, 1)[0]).decode()
        elif kind == 1:
            host = socket.inet_ntop(socket.AF_INET, _exactly(client, 4))
        else:
            host = socket.inet_ntop(socket.AF_INET6, _exactly(client, 16))
        (port,) = struct.unpack("!H", _exactly(client, 2))
        if self.refusal is not None:
            client.sendall(self.refusal)
            return None
        server = self._connected(host, port)
        client.sendall(b"\x05\x00\x00\x03\x05proxy\x00\x00")  # its own name, which nobody needs
        return server


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (more := sock.recv(count - len(data))):
            raise ConnectionResetError
        data += more
    return data

"""How a stand-in asks the preloader for a process: what both sides send over their socket.

The stand-in sends its own arguments, environment and folder, with the descriptors of its standard
streams. The preloader's child answers with its process id, waits for the stand-in's word, and at
its end sends its exit code.
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass

GO = b"g"

_LENGTH = 4
_NUMBER = 4


@dataclass(frozen=True)
class Request:
    """The process that is wanted."""

    arguments: list[str]
    """The name of a module, and the module's arguments."""
    environment: dict[str, str]
    folder: str


def send_request(connection: socket.socket, request: Request) -> None:
    """With the descriptors 0, 1 and 2 of this process."""
    data = json.dumps(asdict(request)).encode()
    socket.send_fds(connection, [len(data).to_bytes(_LENGTH, "big")], [0, 1, 2])
    connection.sendall(data)


def receive_request(connection: socket.socket) -> tuple[Request, list[int]]:
    """The request and the stand-in's descriptors. Raises OSError."""
    header, descriptors, _, _ = socket.recv_fds(connection, _LENGTH, 3)
    if len(header) < _LENGTH or len(descriptors) != 3:
        raise OSError("not a request")
    data = receive_exactly(connection, int.from_bytes(header, "big"))
    return Request(**json.loads(data)), descriptors


def send_number(connection: socket.socket, number: int) -> None:
    """A process id or an exit code."""
    connection.sendall(number.to_bytes(_NUMBER, "big", signed=True))


def receive_number(connection: socket.socket) -> int:
    """Raises OSError when the other side has gone."""
    return int.from_bytes(receive_exactly(connection, _NUMBER), "big", signed=True)


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Raises OSError when the other side has gone before."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise OSError("the other side has gone")
        data += more
    return data

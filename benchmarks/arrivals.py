"""When messages arrive in a sink, told by each kind of sink in its own way.

Times are those of the machine's monotonic clock, which all processes share, in nanoseconds. A
message is known by its number, with which its payload begins.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_LOOK_SECONDS = 0.001


class Arrivals:
    """The first arrival of each message."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        self._changed = threading.Condition()
        self.failure: Callable[[], object] = lambda: None
        """Why nothing comes any more."""

    def add(self, numbers: Iterable[int], when: int) -> None:
        with self._changed:
            for number in numbers:
                self._times.setdefault(number, when)
            self._changed.notify_all()

    def wait(self, numbers: Iterable[int], timeout: float = 60.0) -> dict[int, int]:
        """The times of all of these. Raises AssertionError for messages that do not come."""
        wanted = list(numbers)
        with self._changed:
            if not self._changed.wait_for(
                lambda: all(number in self._times for number in reversed(wanted)), timeout
            ):
                why = self.failure() or ""
                raise AssertionError(f"a message did not arrive within {timeout:g} s: {why}")
            return {number: self._times[number] for number in wanted}


def number_of(payload: bytes | bytearray) -> int:
    return int(bytes(payload).split(b" ", 1)[0])


@contextmanager
def by_datagram(arrivals: Arrivals, path: Path) -> Iterator[None]:
    """Told by another process with `tell`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))

        def receive() -> None:
            while data := receiver.recv(100):
                number, when = data.split()
                arrivals.add([int(number)], int(when))

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        try:
            yield
        finally:
            tell(path, b"")
            thread.join()


def tell(path: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, str(path))


@contextmanager
def in_table(arrivals: Arrivals, folder: Path) -> Iterator[None]:
    """Rows of files that Spark's own log of the table has: from then on Spark reads them."""
    import pyarrow.parquet as pq

    log = folder / "_spark_metadata"
    logs: set[str] = set()
    files: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        for entry in [one for one in log.iterdir() if one.name[0] != "." and one.name not in logs]:
            when = time.monotonic_ns()
            lines = entry.read_text().splitlines()[1:]
            for path in [urlsplit(json.loads(line)["path"]).path for line in lines]:
                if path not in files:
                    files.add(path)
                    data = pq.read_table(unquote(path), columns=["data"]).column("data")
                    arrivals.add([number_of(one.as_py()) for one in data], when)
            logs.add(entry.name)

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            with suppress(FileNotFoundError, IndexError, ValueError):  # not there, or not whole yet
                look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def in_stream(arrivals: Arrivals, url: str, stream: str) -> Iterator[None]:
    """Messages of a stream, as an ordered consumer gets them."""
    from jetspark.blocking import connect

    with connect(url) as nc:
        messages: Any = nc.jetstream().stream(stream).ordered()

        def receive() -> None:
            with suppress(Exception):  # closed
                for msg in messages:
                    when = time.monotonic_ns()
                    with suppress(ValueError):  # a marker of exactly once
                        arrivals.add([number_of(msg.data)], when)

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        yield
    thread.join(10)

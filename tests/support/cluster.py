"""A JetStream cluster on the loopback."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self

from tests.support.ports import free_port
from tests.support.raw_client import RawClient

from jetspark.server import NatsServer

_LOOK_EVERY = 0.05  # seconds
_READY_WITHIN = 60.0  # seconds


class Cluster:
    """Servers with routes to each other; `servers[i]` may be killed, paused and restarted.

    Entering returns when there is a meta leader and a stream with `size` replicas can be made.
    Without `jetstream` the servers start faster.
    """

    def __init__(
        self, size: int = 3, *, name: str = "C1", jetstream: bool = True, extra: Sequence[str] = ()
    ) -> None:
        self._jetstream = jetstream
        ports = [free_port() for _ in range(size)]
        self.servers = [
            NatsServer(
                name=f"{name}-n{number + 1}",
                port=0,
                host="127.0.0.1",
                jetstream=jetstream,
                extra=[
                    *("--cluster_name", name),
                    *("--cluster", f"nats://127.0.0.1:{port}"),
                    *("--routes", ",".join(self._routes_of(number, ports))),
                    *extra,
                ],
            )
            for number, port in enumerate(ports)
        ]
        self._exit = ExitStack()

    def _routes_of(self, number: int, ports: list[int]) -> list[str]:
        """Whom a server dials."""
        return [f"nats://127.0.0.1:{port}" for port in ports]

    @property
    def urls(self) -> list[str]:
        """The client URLs of all servers, running or not."""
        return [server.url for server in self.servers]

    def start(self) -> Self:
        for server in self.servers:
            self._exit.callback(server.close)
        try:
            with ThreadPoolExecutor(len(self.servers)) as pool:
                list(pool.map(NatsServer.start, self.servers))
            if self._jetstream:
                self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        self._exit.close()

    def wait_until_ready(self, replicas: int | None = None) -> None:
        """Returns when a stream with so many replicas (default: one a server) can be made.

        Call it again after killing or restarting servers.
        """
        replicas = replicas or len(self.servers)
        deadline = time.monotonic() + _READY_WITHIN
        failure: object = None
        while time.monotonic() < deadline:
            try:
                if (failure := self._try_a_stream(replicas)) is None:
                    return
            except (OSError, ValueError) as error:
                failure = error
            time.sleep(_LOOK_EVERY)
        raise TimeoutError(f"the cluster was not ready after {_READY_WITHIN} s: {failure}")

    def _try_a_stream(self, replicas: int) -> object:
        name = "ready_probe"
        url = next(server.url for server in self.servers if server.running)
        # Without a meta leader requests are dropped in silence: better asked again than waited for.
        with RawClient(url, timeout=0.25) as client:
            client.api("INFO")
        with RawClient(url, timeout=2.0) as client:
            stream = {"name": name, "subjects": [name], "num_replicas": replicas}
            created = client.api(f"STREAM.CREATE.{name}", {**stream, "storage": "memory"})
            error = created.get("error")
            if error is None:
                error = client.api(f"STREAM.DELETE.{name}").get("error")
        return error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

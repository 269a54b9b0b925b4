"""A hub and a leaf node on the loopback, each with a JetStream domain of its own."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.ports import free_port
from tests.support.raw_client import RawClient

from jetspark.server import NatsServer

_LOOK_EVERY = 0.02  # seconds
_READY_WITHIN = 20.0


class HubAndLeaf:
    """Two servers: `hub`, with the domain "hub", and `leaf`, with the domain "leaf".

    A client of either reaches the other's JetStream by that one's domain. Entering returns when
    it does. Each may be stopped and started again; `wait_until_linked` returns when they have met.
    """

    def __init__(
        self, *, hub_binary: Path | None = None, port: int | None = None, through: int | None = None
    ) -> None:
        """`port`: where the hub listens for leaf nodes. `through`: that of a proxy in between."""
        self._exit = ExitStack()
        folder = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="leaf-")))
        port = port or free_port()
        listen, url = f"127.0.0.1:{port}", f"nats-leaf://127.0.0.1:{through or port}"
        # A proxy has to see frames.
        plain = "" if through is None else "compression: off"
        of_hub = f'listen: "{listen}", no_advertise: true\n {plain}'
        of_leaf = f'reconnect: 1, remotes: [{{ url: "{url}"\n {plain} }}]'
        self.hub = self._server(folder, "hub", of_hub, hub_binary)
        self.leaf = self._server(folder, "leaf", of_leaf)

    def _server(
        self, folder: Path, domain: str, leafnodes: str, binary: Path | None = None
    ) -> NatsServer:
        file = folder / f"{domain}.conf"
        file.write_text(f"jetstream {{ domain: {domain} }}\nleafnodes {{ {leafnodes} }}\n", "utf-8")
        server = NatsServer(
            port=0, host="127.0.0.1", jetstream=True, name=domain, config=file, binary=binary
        )
        self._exit.callback(server.close)
        return server

    def wait_until_linked(self) -> None:
        """Returns when each side's API answers to a client of the other."""
        deadline = time.monotonic() + _READY_WITHIN
        for server, domain in ((self.hub, "leaf"), (self.leaf, "hub")):
            while not self._answers(server, domain):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{server.url} does not reach {domain}: {server.log}")
                time.sleep(_LOOK_EVERY)

    def _answers(self, server: NatsServer, domain: str) -> bool:
        try:
            with RawClient(server.url, timeout=1.0) as client:
                return b'"memory"' in client.request(f"$JS.{domain}.API.INFO")
        except OSError:
            return False

    def __enter__(self) -> Self:
        try:
            self.hub.start()
            self.leaf.start()
            self.wait_until_linked()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

"""A cluster whose routes can be cut between one server and the others, while clients reach all."""

from __future__ import annotations

from typing import Final, Self

from tests.chaos.proxy import Proxy
from tests.support.cluster import Cluster

from jetspark.server import NatsServer

_NOBODY: Final = "127.0.0.1:1"


class PartedCluster(Cluster):
    """Of two servers the later one dials the earlier one, through a proxy; nobody else does.

    Where a server dials nobody there is a port that nobody has.
    """

    def __init__(self, size: int = 3) -> None:
        self._routes: dict[frozenset[int], Proxy] = {}
        # What servers tell each other of their addresses leads nowhere.
        super().__init__(size, name="P", extra=("--cluster_advertise", _NOBODY))

    def _routes_of(self, number: int, ports: list[int]) -> list[str]:
        # As many routes as servers, or it expects fewer of them.
        urls = [f"nats://127.0.0.1:{port}" for port in range(1, len(ports) + 1)]
        for other in range(number):
            proxy = self._routes[frozenset((number, other))] = Proxy(ports[other])
            urls[other] = proxy.url
        return urls

    def start(self) -> Self:
        for proxy in self._routes.values():
            self._exit.enter_context(proxy)
        return super().start()

    def cut_off(self, server: NatsServer) -> None:
        """From the others, until `join`."""
        for proxy in self._of(server):
            proxy.refuse()

    def join(self, server: NatsServer) -> None:
        """The network is well again."""
        for proxy in self._of(server):
            proxy.heal()

    def _of(self, server: NatsServer) -> list[Proxy]:
        number = self.servers.index(server)
        return [proxy for pair, proxy in self._routes.items() if number in pair]

"""Faults of servers and of the network before them, which campaigns share.

A fault is a context manager: entering does the harm, leaving makes it good again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from tests.chaos.proxy import Proxy
from tests.support.streams import Admin

from jetspark.errors import JetsparkError
from jetspark.server import NatsServer

Fault = Callable[[Any], AbstractContextManager[object]]
"""Strikes a site, or what a campaign has made of one."""


class Site:
    """Where faults strike: servers, a proxy before the first one, streams that are led there."""

    def __init__(
        self,
        rng: random.Random,
        servers: Sequence[NatsServer],
        streams: Sequence[str],
        proxy: Proxy | None = None,
    ) -> None:
        self.rng, self.servers, self.streams = rng, servers, streams
        self._proxy = proxy

    @property
    def proxy(self) -> Proxy:
        assert self._proxy is not None
        return self._proxy

    def leader(self) -> NatsServer:
        """The server that leads one of the streams, as the first one says that answers."""
        stream = self.rng.choice(self.streams)
        for server in self.servers:
            with suppress(JetsparkError), Admin(server.url) as admin:
                name = admin.call(f"STREAM.INFO.{stream}")["cluster"]["leader"]
                return next(one for one in self.servers if one._name == name)
        raise LookupError(f"nobody knows the leader of {stream}")

    def pause(self, low: float, high: float) -> None:
        time.sleep(self.rng.uniform(low, high))


# -- servers -------------------------------------------------------------------------------------


@contextmanager
def server_killed(site: Site) -> Iterator[None]:
    """kill -9, back after a while."""
    site.servers[0].kill()
    yield
    site.servers[0].start()


@contextmanager
def server_stopped(site: Site) -> Iterator[None]:
    """In good order, back after a while."""
    site.servers[0].stop()
    yield
    site.servers[0].start()


@contextmanager
def leader_killed(site: Site) -> Iterator[None]:
    """kill -9 of a stream's leader."""
    leader = site.leader()
    leader.kill()
    yield
    leader.start()


@contextmanager
def leader_paused(site: Site) -> Iterator[None]:
    """SIGSTOP: its connections stay, the others choose another leader; then it comes back."""
    leader = site.leader()
    leader.pause()
    yield
    leader.resume()


@contextmanager
def leaders_changed(site: Site) -> Iterator[None]:
    """Leaders step down all the while."""
    stop = threading.Event()
    server = next(server for server in site.servers if server.running)

    def unseat() -> None:
        with Admin(server.url) as admin:
            while not stop.wait(0.25):
                for stream in site.streams:
                    admin.link.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", 10)

    thread = threading.Thread(target=unseat)
    thread.start()
    yield
    stop.set()
    thread.join()


# -- the network ---------------------------------------------------------------------------------


@contextmanager
def network_cut(site: Site) -> Iterator[None]:
    """All connections are reset; new ones are welcome."""
    site.proxy.cut()
    yield


@contextmanager
def network_refused(site: Site) -> Iterator[None]:
    """All connections are reset, and nobody may connect."""
    site.proxy.refuse()
    yield
    site.proxy.heal()


@contextmanager
def half_open(site: Site) -> Iterator[None]:
    """Nothing is carried and nothing is closed; connections of that time stay dead."""
    site.proxy.half_open()
    yield
    site.proxy.heal()

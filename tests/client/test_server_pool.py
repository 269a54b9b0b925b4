"""Which server is tried next: discovered servers, the user's choice, a pool that is replaced."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.conftest import Connect, next_of
from tests.conftest import MakeServer
from tests.support.cluster import Cluster

import jetspark.blocking
from jetspark import Disconnected, JetsparkError, PoolServer, Reconnected
from jetspark.errors import ConfigError, ConnectionClosedError


async def test_discovered_servers_are_ignored_on_request(
    connect: Connect, nats_cluster: Cluster
) -> None:
    given = nats_cluster.urls[0]
    nc = await connect(given)
    await nc.flush()
    assert len(nc.servers) == 3
    alone = await connect(given, ignore_discovered_servers=True)
    await alone.flush()
    assert alone.server_info is not None
    assert alone.server_info.connect_urls
    assert alone.servers == [given]


async def test_choose_server_decides_the_first_and_every_later_attempt(
    connect: Connect, make_server: MakeServer
) -> None:
    servers = [make_server() for _ in range(3)]
    urls = [server.url for server in servers]
    wanted = [urls[2], urls[1]]
    offers: list[tuple[PoolServer, ...]] = []

    def choose(offered: tuple[PoolServer, ...]) -> PoolServer | None:
        offers.append(offered)
        return next((each for each in offered if each.url == wanted[0]), None)

    nc = await connect(urls, choose_server=choose)
    assert nc.current_server == urls[2]
    assert {each.url for each in offers[0]} == set(urls)
    assert not any(each.discovered or each.failures or each.wait for each in offers[0])
    wanted.pop(0)
    events = nc.events()
    servers[2].kill()
    assert await next_of(events, Reconnected) == Reconnected(urls[1])


async def test_choose_server_that_raises_or_chooses_badly_is_reported_and_the_usual_one_tried(
    connect: Connect, make_server: MakeServer
) -> None:
    stranger = PoolServer("nats://elsewhere:4222", False, 0, 0.0)
    for answer in (ZeroDivisionError("mine"), stranger):

        def choose(_: tuple[PoolServer, ...], answer: Any = answer) -> PoolServer:
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

        errors: list[JetsparkError] = []
        nc = await connect(make_server().url, choose_server=choose, error_callback=errors.append)
        assert nc.is_connected
        await nc.flush()
        assert [str(error).split(" raised")[0] for error in errors] == ["choose_server"]


async def test_set_servers_keeps_the_link(connect: Connect, make_server: MakeServer) -> None:
    first, second = make_server(), make_server()
    nc = await connect(first.url)
    nc.set_servers([second.url])
    assert nc.servers == [second.url]
    assert nc.current_server == first.url
    await nc.force_reconnect()
    assert nc.current_server == second.url
    for wrong in ("", "nats://", [second.url, "ws://127.0.0.1:80"]):
        with pytest.raises(ConfigError):
            nc.set_servers(wrong)
    assert nc.servers == [second.url]
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        nc.set_servers(first.url)


async def test_set_servers_is_used_at_once_while_reconnecting(
    connect: Connect, make_server: MakeServer
) -> None:
    first, second = make_server(), make_server()
    nc = await connect(first.url, reconnect_wait=3600)
    events = nc.events()
    first.kill()
    await next_of(events, Disconnected)
    nc.set_servers(second.url)
    assert await next_of(events, Reconnected) == Reconnected(second.url)


def test_blocking_set_servers_replaces_the_pool(make_server: MakeServer) -> None:
    first, second = make_server(), make_server()
    with jetspark.blocking.connect(first.url, reconnect_wait=0.05) as nc:
        nc.set_servers(second.url)
        nc.force_reconnect()
        assert nc.current_server == second.url
        with pytest.raises(ConfigError):
            nc.set_servers("nats://")

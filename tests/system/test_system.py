"""Servers and accounts, seen from the system account of a cluster and of one server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import jetspark.errors as errors
from jetspark import blocking
from jetspark.acl import Roles
from jetspark.full_client import connect
from jetspark.system import ServerFilter, System
from jetspark.system.documents import Varz
from jetspark.system.system import read_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.conftest import MakeServer
    from tests.support.cluster import Cluster

    from jetspark.server import NatsServer

CONFIG = """
server_tags: [ "zone:a" ]
accounts {
  APP: { jetstream: enabled, users: [ { user: app, password: app } ] }
  SYS: { users: [ { user: sys, password: sys } , { user: mon, password: mon PERMISSIONS } ] }
}
system_account: SYS
"""


@pytest.fixture
def server(make_server: MakeServer) -> NatsServer:
    block = Roles().system_monitor().to_config()
    return make_server(CONFIG.replace("PERMISSIONS", f", {block}"), name="one")


@asynccontextmanager
async def a_system(server: NatsServer, user: str = "sys") -> AsyncIterator[System]:
    async with connect(server.url, user=user, password=user) as nc:
        yield nc.system(timeout=20, stall=0.5)


async def test_every_question_has_a_typed_answer(server: NatsServer) -> None:
    async with (
        connect(server.url, user="app", password="app", name="an app") as app,
        a_system(server, "mon") as system,
    ):
        js = app.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        await js.publish("s", b"x")
        app.subscribe("watched")
        await app.flush()
        (found,) = await system.ping().all()
        assert (found.server.name, found.server.jetstream) == ("one", True)
        assert found.data.connections >= 2
        id = found.server.id
        (varz,) = await system.varz(server=id).all()
        assert (varz.data.server_id, varz.data.port) == (id, int(server.url.rpartition(":")[2]))
        assert varz.data.system_account == "SYS"
        assert varz.data.start is not None
        assert (await system.healthz(details=True).all())[0].data.ok
        (connz,) = await system.connz(account="APP", subscriptions=True).all()
        (connection,) = connz.data.connections
        assert (connection.name, connection.account) == ("an app", "APP")
        assert "watched" in connection.subscriptions_list
        (connz,) = await system.connz(cid=connection.cid, auth=True).all()
        assert [one.authorized_user for one in connz.data.connections] == ["app"]
        (subsz,) = await system.subsz(account="APP", subscriptions=True, test="watched").all()
        assert [one.subject for one in subsz.data.subscriptions_list] == ["watched"]
        (jsz,) = await system.jsz(account="APP", streams=True, config=True).all()
        assert (jsz.data.streams, jsz.data.messages) == (1, 1)
        (detail,) = jsz.data.account_details
        assert detail["stream_detail"][0]["name"] == "S"
        (accountz,) = await system.accountz().all()
        assert set(accountz.data.accounts) >= {"APP", "SYS"}
        (accountz,) = await system.accountz(account="APP").all()
        assert accountz.data.account_detail is not None
        assert accountz.data.account_detail.client_connections == 1
        assert (await system.routez().all())[0].data.num_routes == 0
        assert (await system.gatewayz().all())[0].data.outbound_gateways == {}
        assert (await system.leafz().all())[0].data.leafnodes == 0
        (info,) = await system.account_info("APP").all()
        assert (info.data.account_name, info.data.jetstream_enabled) == ("APP", True)
        (connz,) = await system.account_connz("APP").all()
        assert connz.data.num_connections == 1
        (account_jsz,) = await system.account_jsz("APP", streams=True).all()
        assert account_jsz.data.stream_detail[0]["name"] == "S"
        (subsz,) = await system.account_subsz("APP", test="watched").all()
        assert [one.subject for one in subsz.data.subscriptions_list] == ["watched"]
        (statz,) = await system.account_statz("APP").all()
        assert [(one.acc, one.conns) for one in statz.data.account_statz] == [("APP", 1)]


async def test_servers_are_chosen_by_id_and_by_filter(server: NatsServer) -> None:
    async with a_system(server) as system:
        for fits in (
            ServerFilter(name="on"),
            ServerFilter(name="one", exact_match=True),
            ServerFilter(tags=("zone:a",)),
        ):
            assert len(await system.varz(only=fits).all()) == 1
    async with connect(server.url, user="sys", password="sys") as nc:
        hurried = nc.system(timeout=0.5)
        assert await hurried.varz(only=ServerFilter(name="two")).all() == []
        with pytest.raises(errors.NoRespondersError):
            await hurried.varz(server="NOBODY").all()
        with pytest.raises(errors.ConfigError, match="either server or only"):
            hurried.varz(server="N", only=ServerFilter())
        with pytest.raises(errors.ConfigError, match=r"state is .open., .closed. or "):
            hurried.connz(state="half")
        for listing in (
            *(system.connz, system.jsz, system.accountz, system.leafz, system.raftz),
            *(system.healthz, system.subsz),
        ):
            with pytest.raises(errors.ConfigError, match="empty text"):
                listing(account="")
        with pytest.raises(errors.ConfigError, match="empty text"):
            system.varz(only=ServerFilter(name=""))
        with pytest.raises(errors.ConfigError, match="cid must be at least 1"):
            system.connz(cid=0)
        with pytest.raises(errors.ConfigError, match="needs its account"):
            hurried.healthz(stream="S")


async def test_closed_connections_are_listed(server: NatsServer) -> None:
    async with connect(server.url, user="app", password="app", name="gone"):
        pass
    async with a_system(server) as system:
        (connz,) = await system.connz(state="closed", sort="stop").all()
        (closed,) = [one for one in connz.data.connections if one.name == "gone"]
        assert closed.reason == "Client Closed"
        assert closed.stop is not None


async def test_an_answer_that_is_an_error_is_raised(server: NatsServer) -> None:
    async with a_system(server) as system:
        with pytest.raises(errors.SystemRequestError, match="one answers") as caught:
            await system.account_info("NOSUCH").all()
        assert caught.value.server == "one"
        (health,) = await system.healthz(account="APP", stream="NOSUCH").all()
        assert not health.data.ok


async def test_a_user_of_another_account_is_told(server: NatsServer) -> None:
    async with a_system(server, "app") as system:
        with pytest.raises(errors.NoRespondersError):
            await system.varz().all()


async def test_role_system_monitor_changes_nothing(server: NatsServer) -> None:
    reported: list[errors.JetsparkError] = []
    async with connect(
        server.url, user="mon", password="mon", error_callback=reported.append
    ) as nc:
        for subject in ("SERVER.PING.RELOAD", "SERVER.N.KICK", "SERVER.N.LDM", "CLAIMS.UPDATE"):
            await nc.publish(f"$SYS.REQ.{subject}")
        await nc.flush()
    assert [type(error) for error in reported] == [errors.PermissionsError] * 4


async def test_all_servers_of_a_cluster_answer(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    file = tmp_path / "system.conf"
    file.write_text(CONFIG.replace("PERMISSIONS", "") + "no_auth_user: app", "utf-8")
    cluster = make_cluster(3, extra=("-c", str(file)))
    async with connect(cluster.urls, user="sys", password="sys") as nc:
        system = nc.system(timeout=20, stall=2)
        found = await system.varz().all()
        assert len({one.server.id for one in found}) == 3
        assert len({one.data.server_name for one in found}) == 3
        (one,) = await system.varz(server=found[2].server.id).all()
        assert one.server.name == found[2].server.name
        (leading,) = await system.jsz(leader_only=True).all()
        assert leading.data.meta_cluster is not None
        assert leading.data.meta_cluster["leader"] == leading.server.name


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"\xff", b'{"server": 5}', b'{"server": {"name": "a", "id": "b"}}']
)
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    with pytest.raises(errors.JetStreamError):
        read_answer(Varz, data)


def test_blocking_system_answers_the_same(server: NatsServer) -> None:
    with blocking.connect(server.url, user="sys", password="sys") as nc:
        system = nc.system(timeout=20, stall=0.5)
        (found,) = system.varz().all()
        assert found.data.server_name == "one"
        assert [one.server.name for one in system.ping()] == ["one"]

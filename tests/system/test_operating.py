"""Calls of the system account that change a server, or the cluster of JetStream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.jetstream.eventually import eventually
from tests.support.server_lines import server_of

import jetspark.errors as errors
from jetspark import LameDuck, blocking
from jetspark.full_client import connect
from jetspark.server import NatsServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import NeedsServer
    from tests.support.cluster import Cluster

    from jetspark import ServerInfo
    from jetspark.full_client import Client
    from jetspark.system import RaftGroup, System

CONFIG = """
accounts {
  APP: { jetstream: enabled, users: [ { user: app, password: app } ] }
  SYS: { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write(tmp_path / "server.conf", CONFIG)


def write(file: Path, text: str) -> Path:
    file.write_text(text, "utf-8")
    return file


def info_of(client: Client | blocking.Client) -> ServerInfo:
    """The server's greeting: its id, and the client's number there."""
    assert client.server_info is not None
    return client.server_info


@pytest.fixture
def server(config: Path) -> Iterator[NatsServer]:
    with NatsServer(config=config, port=0, jetstream=True) as server:
        yield server


async def test_a_server_reads_its_configuration_again(server: NatsServer, config: Path) -> None:
    async with connect(server.url, user="sys", password="sys") as nc:
        system, id = nc.system(timeout=20), info_of(nc).server_id
        with pytest.raises(errors.AuthError):
            async with connect(server.url, user="new", password="new", reconnect=False):
                pass
        write(config, CONFIG.replace("user: app, password: app", "user: new, password: new"))
        await system.reload(id)
        async with connect(server.url, user="new", password="new"):
            pass
        write(config, CONFIG + "nonsense: {")
        with pytest.raises(errors.SystemRequestError):
            await system.reload(id)
        with pytest.raises(errors.NoRespondersError):
            await system.reload("NOBODY")


async def test_clients_are_told_to_move_and_are_thrown_out(server: NatsServer) -> None:
    events: list[object] = []
    async with (
        connect(server.url, user="sys", password="sys") as nc,
        connect(server.url, user="app", password="app", event_callback=events.append) as app,
    ):
        system, id = nc.system(timeout=20), info_of(nc).server_id
        cid = info_of(app).client_id
        await system.send_lame_duck(id, cid)
        await eventually(lambda: any(isinstance(event, LameDuck) for event in events))
        await system.kick_client(id, cid)
        await eventually(lambda: info_of(app).client_id != cid)
        for call in (system.kick_client, system.send_lame_duck):
            with pytest.raises(errors.SystemRequestError, match="no such client"):
                await call(id, 999_999)
            with pytest.raises(errors.ConfigError, match="cid must be at least 1"):
                await call(id, 0)


async def test_an_account_is_purged(server: NatsServer) -> None:
    async with (
        connect(server.url, user="sys", password="sys") as nc,
        connect(server.url, user="app", password="app") as app,
    ):
        js = app.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        with pytest.raises(errors.RequestTimeoutError, match="system account only"):
            await app.system(timeout=0.3).purge_account("APP")
        assert await js.stream_names().all() == ["S"]
        await nc.system(timeout=20).purge_account("APP")
        assert await js.stream_names().all() == []
        for bad in ("", "a.b", "*"):
            with pytest.raises(errors.BadNameError):
                await nc.system().purge_account(bad)


async def test_only_the_system_account_may_change_a_server(server: NatsServer) -> None:
    async with connect(server.url, user="app", password="app") as app:
        system, id = app.system(timeout=0.3), info_of(app).server_id
        with pytest.raises(errors.NoRespondersError):
            await system.reload(id)
        with pytest.raises(errors.NoRespondersError):
            await system.kick_client(id, 1)


@pytest.mark.parametrize("line", ["2.9", "2.14"])
async def test_older_servers_are_told_before_anything_is_sent(line: str, config: Path) -> None:
    binary = server_of(line)
    with NatsServer(config=config, port=0, jetstream=True, binary=binary) as server:
        async with connect(server.url, user="sys", password="sys") as nc:
            system, id = nc.system(timeout=0.3), info_of(nc).server_id
            with pytest.raises(errors.UnsupportedByServerError, match=r">= 2\.15"):
                await system.evacuate_server("S")
            with pytest.raises(errors.UnsupportedByServerError, match=r">= 2\.15"):
                await system.rescue_meta(1)
            if line == "2.9":
                with pytest.raises(errors.UnsupportedByServerError, match=r">= 2\.10"):
                    system.raftz()
                for call in (system.reload(id), system.kick_client(id, 1)):
                    with pytest.raises(errors.UnsupportedByServerError, match=r">= 2\.10"):
                        await call


def test_blocking_calls_do_the_same(server: NatsServer) -> None:
    with (
        blocking.connect(server.url, user="sys", password="sys") as nc,
        blocking.connect(server.url, user="app", password="app") as app,
    ):
        system, id = nc.system(timeout=20, stall=0.5), info_of(nc).server_id
        app.jetstream().create_stream(name="S", subjects=["s"])
        (answer,) = system.raftz()
        assert answer.data.groups == {}  # not a cluster
        system.reload(id)
        system.purge_account("APP")
        assert app.jetstream().stream_names().all() == []
        with pytest.raises(errors.SystemRequestError):
            system.kick_client(id, 999_999)


# -- a cluster -----------------------------------------------------------------------------------


async def meta_groups(system: System) -> dict[str, RaftGroup]:
    """The part of each server in the group of JetStream's metadata, by the server's name."""
    answers = await system.raftz(group="_meta_").all()
    return {
        answer.server.name: answer.data.groups["_meta_"] for answer in answers if answer.data.groups
    }


async def meta_leader(system: System) -> str:
    """The name of the server that leads JetStream's metadata; waits until there is one."""
    for _ in range(150):
        groups = await meta_groups(system)
        leading = [name for name, group in groups.items() if group.state == "LEADER"]
        if len(leading) == 1:
            return leading[0]
        await asyncio.sleep(0.2)
    raise AssertionError("no leader of the metadata")


async def test_a_cluster_is_evacuated_shrunk_and_rescued(
    make_cluster: Callable[..., Cluster], config: Path, needs_server: NeedsServer
) -> None:
    needs_server("2.15")
    write(config, CONFIG + "no_auth_user: app")
    cluster = make_cluster(4, extra=("-c", str(config)))
    servers = {f"C1-n{number}": server for number, server in enumerate(cluster.servers, 1)}
    async with (
        connect(cluster.servers[0].url, user="sys", password="sys") as nc,
        connect(cluster.servers[0].url, user="app", password="app") as app,
    ):
        system, js = nc.system(timeout=10, stall=1), app.jetstream(timeout=1)

        old = await meta_leader(system)
        groups = await meta_groups(system)
        assert {(group.size, group.quorum_needed) for group in groups.values()} == {(4, 3)}
        assert {peer.name for peer in groups[old].peers.values()} == groups.keys() - {old}
        assert len({group.leader for group in groups.values()}) == 1
        assert groups[old].wal is not None
        new = next(name for name in ("C1-n1", "C1-n2") if name != old)
        await system.step_down_meta_leader(preferred=new)
        assert await meta_leader(system) == new
        with pytest.raises(errors.ClusterNoPeersError, match="not known"):
            await system.step_down_meta_leader(preferred="nobody")

        await js.create_stream(name="S", subjects=["s"], num_replicas=3)
        raft = await system.raftz(account="APP").all()
        away = next(
            answer.server.name
            for answer in raft
            if answer.data.groups and answer.server.name not in ("C1-n1", new)
        )

        async def replicas() -> set[str | None]:
            try:
                info = (await js.api_request("STREAM.INFO.S"))["cluster"]
            except errors.RequestTimeoutError:  # the stream elects a leader
                return set()
            return {info.get("leader"), *(peer["name"] for peer in info.get("replicas", ()))}

        async def has_moved() -> bool:
            names = await replicas()
            return len(names) == 3 and away not in names and None not in names

        assert away in await replicas()
        await system.evacuate_server(away)
        await eventually(has_moved, within=60)
        with pytest.raises(errors.ClusterServerNotMemberError) as unknown:
            await system.evacuate_server("nobody")
        assert unknown.value.name == "ClusterServerNotMember"

        servers[away].kill()
        await system.remove_server(away)
        assert {group.size for group in (await meta_groups(system)).values()} == {3}
        with pytest.raises(errors.ClusterServerNotMemberError):
            await system.remove_server(away)

        answers = await system.rescue_meta(1)
        assert {answer.server for answer in answers} == groups.keys() - {away}
        assert all(answer.error and "leader" in answer.error.description for answer in answers)
        with pytest.raises(errors.ConfigError, match="quorum must be at least 1"):
            await system.rescue_meta(0)

        lost = servers.keys() - {"C1-n1", away}
        for name in lost:
            servers[name].kill()
        for _ in range(150):
            (answer,) = await system.rescue_meta(1)
            if answer.error is None:
                break
            await asyncio.sleep(0.2)
        assert (answer.server, answer.prev_quorum, answer.new_quorum) == ("C1-n1", 2, 1)
        assert await meta_leader(system) == "C1-n1"
        for name in lost:
            await system.remove_server(name)
        assert (await meta_groups(system))["C1-n1"].size == 1

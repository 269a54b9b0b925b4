"""The fixtures themselves."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

from tests.conftest import MakeServer
from tests.support.certificates import Certificates
from tests.support.cluster import Cluster
from tests.support.leaf import HubAndLeaf
from tests.support.raw_client import RawClient

from jetspark.server import NatsServer


def test_two_servers_are_apart(make_server: MakeServer) -> None:
    first, second = make_server(), make_server()
    assert first.url != second.url
    assert first.store_dir != second.store_dir


def test_a_test_using_a_server_is_marked(
    nats_server: NatsServer, request: object, unique: Callable[[str], str]
) -> None:
    node = request.node  # type: ignore[attr-defined]
    assert node.get_closest_marker("server")
    name = unique("S")
    with RawClient(nats_server.url) as client:
        assert client.api(f"STREAM.CREATE.{name}", {"name": name})["config"]["name"] == name
        assert client.api("STREAM.NAMES")["streams"] == [name]


def test_configuration_text_gets_a_free_port_and_a_store_of_its_own(
    make_server: MakeServer,
) -> None:
    server = make_server("authorization { token: secret }\njetstream { domain: hub }")
    assert server.port != 4222
    with RawClient(server.url, auth_token="secret") as client:
        assert client.info["domain"] == "hub"
        assert client.api("INFO")["memory"] == 0
    assert (server.store_dir / "jetstream").is_dir()


def test_tls_server_shows_the_certificate_of_our_authority(
    make_server: MakeServer, certificates: Certificates, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.10.1")
    server = make_server(certificates.server_config(handshake_first=True))
    assert server.url.startswith("tls://")
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as link,
    ):
        assert link.recv(5) == b"INFO "


def test_cluster_survives_the_loss_of_its_leader(make_cluster: Callable[[int], Cluster]) -> None:
    cluster = make_cluster(3)
    leader = cluster.meta_leader()
    leader.kill()
    cluster.wait_until_ready(replicas=2)
    assert cluster.meta_leader() is not leader
    leader.start()
    cluster.wait_until_ready(replicas=3)


def test_hub_and_leaf_reach_each_other_by_domain(hub_and_leaf: HubAndLeaf) -> None:
    for server, other in ((hub_and_leaf.hub, "leaf"), (hub_and_leaf.leaf, "hub")):
        with RawClient(server.url) as client:
            assert client.info["domain"] != other
            assert b"account_info_response" in client.request(f"$JS.{other}.API.INFO")

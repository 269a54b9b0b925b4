"""TLS beyond the usual: the handshake first, gossiped addresses, folders, encrypted keys."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from tests.client.conftest import Connect, discovered, localhost, next_of
from tests.conftest import MakeServer, NeedsServer
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.scripted_server import ScriptedServer

import jetspark
from jetspark.connection.options import make_options
from jetspark.errors import ConfigError, ConnectionFailure, ConnectTimeoutError, TLSError
from jetspark.links.link import connect as connect_blocking
from jetspark.server import NatsServer


async def test_tls_comes_first_where_the_server_wants_it(
    make_server: MakeServer, connect: Connect, certificates: Certificates, needs_server: NeedsServer
) -> None:
    needs_server("2.10.4")
    server = make_server(certificates.server_config(handshake_first=True))
    options: dict[str, Any] = {"tls_ca_file": str(certificates.ca), "tls_first": True}
    for scheme in ("tls", "nats"):
        nc = await connect(localhost(server, scheme), **options)
        sub = nc.subscribe("a")
        await nc.publish("a", b"x" * 500_000)
        assert len((await sub.next(30)).data) == 500_000
    await nc.force_reconnect()
    with connect_blocking(make_options(localhost(server), **options)) as link:
        assert link.check()
    # Without it both sides wait for the other one's first word.
    options["tls_first"] = False
    with pytest.raises(ConnectTimeoutError):
        await connect(localhost(server), **options, connect_timeout=0.2)
    with pytest.raises(TLSError):
        await connect(localhost(server), tls_first=True)


async def test_a_refusal_of_tls_names_the_option_that_helps(
    make_server: MakeServer, connect: Connect, certificates: Certificates, needs_server: NeedsServer
) -> None:
    needs_server("2.10.4")
    ca = {"tls_ca_file": str(certificates.ca)}
    plain = make_server(certificates.server_config())
    strict = make_server(certificates.server_config(verify=True))
    first = make_server(certificates.server_config(handshake_first=True).replace(": 5", ": 1"))
    for server, options, told in (
        (plain, {}, "issuer certificate; name its authority with tls_ca_file."),
        (
            plain,
            {**ca, "tls_hostname": "x.example"},
            "certificate is not valid for 'x.example'; connect to a name of the certificate, or "
            "set tls_hostname to one.",
        ),
        (plain, {**ca, "tls_first": True}, "; tls_first is for servers with handshake_first."),
        (strict, ca, "; if the server wants a client's certificate, name it with tls_cert_file."),
        (
            first,
            ca,
            "closed the connection before it said anything: if it has handshake_first, set "
            "tls_first to true.",
        ),
    ):
        chosen: dict[str, Any] = {"connect_timeout": 30, **options}
        with pytest.raises(ConnectionFailure) as one:
            await connect(localhost(server), **chosen)
        with pytest.raises(ConnectionFailure) as other:
            await asyncio.to_thread(connect_blocking, make_options(localhost(server), **chosen))
        assert one.type is other.type
        for caught in (one, other):
            assert str(caught.value).endswith(told)
            assert "_ssl.c" not in str(caught.value)


async def test_a_server_without_tls_first_is_reported_as_such(
    make_server: MakeServer, connect: Connect, certificates: Certificates, shared_server: NatsServer
) -> None:
    ca = str(certificates.ca)
    for url in (localhost(make_server(certificates.server_config())), shared_server.url):
        for _ in range(5):  # INFO may be there before TLS begins, or not
            with pytest.raises(TLSError):
                await connect(url, tls_ca_file=ca, tls_first=True)
        with pytest.raises(TLSError):
            connect_blocking(make_options(url, tls_ca_file=ca, tls_first=True))


@pytest.mark.parametrize(
    ("early", "options"),
    [
        (b'INFO {"tls_available":true}\r\nINFO {"x":1}\r\n', {"tls": True}),
        (b"INFO {\"tls_required\":true}\r\n-ERR 'x'\r\n", {}),
    ],
)
async def test_what_comes_in_the_clear_before_tls_ends_the_link(
    scripted: ScriptedServer, early: bytes, options: dict[str, Any]
) -> None:
    _, connecting, peer = await scripted.client(**options)
    peer.send(early)
    with pytest.raises(TLSError, match="before TLS began"):
        await asyncio.wait_for(connecting, 30)


async def test_gossiped_addresses_are_verified_against_the_name_that_was_written(
    make_server: MakeServer, connect: Connect, certificates: Certificates
) -> None:
    # The second server listens on an address that its certificate does not name.
    routes = [free_port(), free_port()]
    servers = [
        make_server(
            certificates.server_config()
            + f'cluster {{ name: C, listen: "127.0.0.1:{own}", routes: ['
            + ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
            + "] }",
            jetstream=False,
            host=host,
        )
        for own, host in zip(routes, ("127.0.0.1", "127.0.0.2"), strict=True)
    ]
    ca = str(certificates.ca)
    nc = await connect(localhost(servers[0], "nats"), tls_ca_file=ca)
    other = f"tls://127.0.0.2:{servers[1].port}"
    await discovered(nc, other)
    events = nc.events()
    await asyncio.to_thread(servers[0].stop)
    await next_of(events, jetspark.Reconnected)
    assert nc.current_server == other
    await nc.flush()
    with pytest.raises(TLSError, match="match"):
        await connect(other, tls_ca_file=ca)


async def test_authorities_may_lie_in_a_folder(
    make_server: MakeServer, connect: Connect, certificates: Certificates, tmp_path: Path
) -> None:
    server = make_server(certificates.server_config())
    folder = tmp_path / "ca"
    folder.mkdir()
    shutil.copy(certificates.other_ca, folder / "other.pem")
    with pytest.raises(TLSError, match="certificate"):
        await connect(localhost(server), tls_ca_dir=str(folder))
    shutil.copy(certificates.ca, folder / "ours.CRT")
    nc = await connect(localhost(server), tls_ca_dir=str(folder))
    await nc.flush()


def test_a_folder_of_authorities_has_to_have_some(tmp_path: Path) -> None:
    options = make_options("tls://a", tls_ca_dir=str(tmp_path))
    with pytest.raises(ConfigError, match="no certificates in"):
        options.make_ssl_context()
    with pytest.raises(ConfigError, match="none: No such file"):
        make_options("tls://a", tls_ca_dir=str(tmp_path / "none")).make_ssl_context()
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(ConfigError, match="TLS files"):
        options.make_ssl_context()


async def test_an_encrypted_key_is_opened_by_its_password(
    make_server: MakeServer, connect: Connect, certificates: Certificates, tmp_path: Path
) -> None:
    server = make_server(certificates.server_config(verify=True))
    plain = serialization.load_pem_private_key(certificates.client_key.read_bytes(), None)
    encrypted = tmp_path / "key.pem"
    encrypted.write_bytes(
        plain.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"op3n"),
        )
    )
    options = {
        "tls_ca_file": str(certificates.ca),
        "tls_cert_file": str(certificates.client_cert),
        "tls_key_file": str(encrypted),
    }
    nc = await connect(localhost(server), **options, tls_key_password="op3n")
    assert "op3n" not in repr(nc.options)
    for wrong in (None, "wr0ng"):
        with pytest.raises(ConfigError, match="tls_key_password") as caught:
            await connect(localhost(server), **options, tls_key_password=wrong)
        assert "wr0ng" not in str(caught.value)
    options["tls_key_file"] = str(certificates.server_key)
    with pytest.raises(ConfigError, match="key values mismatch") as caught:
        await connect(localhost(server), **options)
    assert "password" not in str(caught.value)


def context_for(authority: trustme.CA, name: str) -> ssl.SSLContext:
    """A server's, with a certificate for this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.mark.parametrize("within", [False, True])
async def test_only_servers_named_within_tls_get_a_password(tmp_path: Path, within: bool) -> None:
    """Before TLS anyone may add a server, which has a certificate for a name of its own."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with ScriptedServer() as server, ScriptedServer() as other:
        named: dict[str, Any] = {"connect_urls": [f"localhost:{other.port}"]}
        login = {"user": "app", "password": "secret", "tls_ca_file": str(tmp_path / "ca.pem")}
        url = f"tls://127.0.0.1:{server.port}"
        client, connecting, peer = await server.client(url, **login, reconnect_wait=0.01)
        peer.send_info(tls_required=True, **({} if within else named))
        await peer.writer.start_tls(context_for(authority, "127.0.0.1"))
        assert (await peer.line()).startswith(b"CONNECT")
        await peer.expect(b"PING")
        if within:
            peer.send_info(tls_required=True, **named)
        peer.send(b"PONG\r\n")
        await connecting
        peer.close()
        stranger = await other.accept()
        stranger.send_info(tls_required=True)
        if within:
            await stranger.writer.start_tls(context_for(authority, "localhost"))
            assert (await stranger.line()).startswith(b"CONNECT")
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await stranger.writer.start_tls(context_for(authority, "localhost"))
                if await stranger.line() == b"":
                    raise ConnectionResetError
        await client.close()

"""Users, permissions and TLS against real servers."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Connect, localhost, next_of
from tests.conftest import MakeServer
from tests.support.certificates import Certificates

import jetspark
import jetspark.errors as errors
from jetspark.connection.options import make_options
from jetspark.links.link import connect as connect_blocking
from jetspark.server import NatsServer

USERS = 'authorization { users = [{user: u, password: "p@ss"}] }'


@pytest.mark.parametrize(
    ("conf", "login"), [(USERS, "u:p%40ss"), ("authorization { token: s3cr3t }", "s3cr3t")]
)
async def test_user_and_password_or_token_of_the_url_win(
    make_server: MakeServer, connect: Connect, conf: str, login: str
) -> None:
    server = make_server(conf)
    nc = await connect(f"nats://{login}@127.0.0.1:{server.port}", user="x", password="y")
    shown = repr(nc) + repr(nc.options) + str(nc.servers)
    assert not any(secret in shown for secret in ("p@ss", "p%40ss", "s3cr3t"))


async def test_missing_credentials_are_asked_for(make_server: MakeServer, connect: Connect) -> None:
    for config in (USERS, "authorization { token: secret }"):
        url = make_server(config).url
        told = (
            f"{url} wants credentials, and none were given (authorization violation): put user and "
            "password or a token into the URL, or name a context or a creds file."
        )
        with pytest.raises(errors.AuthorizationError) as caught:
            await connect(url)
        assert str(caught.value) == told
        with pytest.raises(errors.AuthorizationError) as caught:
            connect_blocking(make_options(url))
        assert str(caught.value) == told


async def test_wrong_credentials_are_reported_without_a_secret(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server(USERS)
    with pytest.raises(errors.AuthorizationError) as caught:
        await connect(server.url, user="u", password="wrong-secret")
    assert str(caught.value) == (
        f"{server.url} refused these credentials (authorization violation)."
    )
    with pytest.raises(errors.AuthorizationError):
        await connect(make_server("authorization { token: s3cr3t }").url, token="other")
    other = make_server(USERS)
    with pytest.raises(errors.NoServersError) as several:
        await connect([server.url, other.url], user="u", password="no")
    assert isinstance(several.value.__cause__, errors.AuthorizationError)


async def test_credentials_that_stop_working_end_reconnecting(
    make_server: MakeServer, connect: Connect, tmp_path: Any
) -> None:
    conf = tmp_path / "auth.conf"
    conf.write_text(USERS)
    server = make_server(config=conf, port=0, host="127.0.0.1", jetstream=False)
    nc = await connect(server.url, user="u", password="p@ss")
    stream = nc.events()
    await asyncio.to_thread(server.stop)
    conf.write_text(USERS.replace("p@ss", "new"))
    await asyncio.to_thread(server.start)
    assert isinstance((await next_of(stream, jetspark.Closed)).error, errors.AuthorizationError)


async def test_a_refused_subject_ends_that_subscription_and_not_the_connection(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server(
        "authorization { users = [{user: u, password: p, permissions: {"
        'publish: {deny: "no.*"}, subscribe: {deny: ["no.>", "shared g"]}}}] }'
    )
    reported: asyncio.Queue[errors.JetsparkError] = asyncio.Queue()
    nc = await connect(server.url, user="u", password="p", error_callback=reported.put_nowait)
    allowed = nc.subscribe("yes")
    refused = nc.subscribe("no.x")
    kept, group = nc.subscribe("shared"), nc.subscribe("shared", queue="g")
    await nc.publish("no.y", b"x")
    await nc.publish("shared", b"s")
    await nc.publish("yes", b"y")
    await nc.flush()
    assert (await allowed.next(30)).data == b"y"
    assert (await kept.next(30)).data == b"s"
    for sub, queue in ((refused, None), (group, "g")):
        with pytest.raises(errors.PermissionsError) as caught:
            await sub.next(30)
        assert caught.value.operation == "subscription"
        assert (caught.value.subject, caught.value.queue) == (sub.subject, queue)
    assert allowed.active
    assert kept.active
    seen = [await asyncio.wait_for(reported.get(), 30) for _ in range(3)]
    told = sorted((e.operation, e.subject) for e in seen if isinstance(e, errors.PermissionsError))
    assert told == [("publish", "no.y"), ("subscription", "no.x"), ("subscription", "shared")]
    assert nc.stats.reconnects == 0
    assert nc.is_connected


# -- TLS -----------------------------------------------------------------------------------------


async def test_tls_required_by_the_server_and_large_messages_through_it(
    make_server: MakeServer, connect: Connect, certificates: Certificates
) -> None:
    server = make_server(certificates.server_config())
    for url in (localhost(server), localhost(server, "nats"), f"tls://127.0.0.1:{server.port}"):
        nc = await connect(url, tls_ca_file=str(certificates.ca))
        sub = nc.subscribe("a")
        payloads = [bytes([n]) * 700_000 for n in range(5)]
        for payload in payloads:
            await nc.publish("a", payload)
        assert [(await sub.next(10)).data for _ in payloads] == payloads
        await nc.close()


async def test_the_host_name_is_verified(
    make_server: MakeServer, connect: Connect, certificates: Certificates
) -> None:
    server = make_server(certificates.server_config())
    ca = str(certificates.ca)
    with pytest.raises(errors.TLSError, match="match"):
        await connect(localhost(server), tls_ca_file=ca, tls_hostname="other.example")
    # An address that the certificate does not name.
    elsewhere = make_server(certificates.server_config(), host="127.0.0.2")
    url = f"tls://127.0.0.2:{elsewhere.port}"
    with pytest.raises(errors.TLSError, match="match"):
        await connect(url, tls_ca_file=ca)
    await connect(url, tls_ca_file=ca, tls_hostname="localhost")


async def test_a_file_that_is_not_there_is_told_before_a_server_without_tls(
    shared_server: NatsServer, connect: Connect, tmp_path: Path
) -> None:
    with pytest.raises(errors.ConfigError, match=r"none: No such file"):
        await connect(shared_server.url, tls_ca_file=str(tmp_path / "none"))


@pytest.mark.parametrize("how", ["scheme", "option", "authorities", "context"])
async def test_tls_wanted_of_a_server_without_it(
    shared_server: NatsServer, connect: Connect, certificates: Certificates, how: str
) -> None:
    with pytest.raises(errors.SecureConnectionWantedError):
        if how == "scheme":
            await connect(localhost(shared_server))
        elif how == "option":
            await connect(shared_server.url, tls=True)
        elif how == "authorities":
            await connect(shared_server.url, tls_ca_file=str(certificates.ca))
        else:
            await connect(shared_server.url, ssl_context=ssl.create_default_context())


async def test_client_certificates(
    make_server: MakeServer, connect: Connect, certificates: Certificates
) -> None:
    server = make_server(certificates.server_config(verify=True))
    ca, cert, key = (
        str(path) for path in (certificates.ca, certificates.client_cert, certificates.client_key)
    )
    nc = await connect(localhost(server), tls_ca_file=ca, tls_cert_file=cert, tls_key_file=key)
    await nc.force_reconnect()
    await nc.flush()
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(cert, key)
    await connect(localhost(server), ssl_context=context)
    with pytest.raises((errors.TLSError, jetspark.errors.BrokenSocketError)):
        await connect(localhost(server), tls_ca_file=ca)
    with pytest.raises(errors.ConfigError, match="TLS files"):
        await connect(localhost(server), tls_ca_file="no-such-file.pem")


async def test_a_tls_link_is_made_again_after_a_crash(
    make_server: MakeServer, connect: Connect, certificates: Certificates
) -> None:
    server = make_server(certificates.server_config())
    nc = await connect(localhost(server), tls_ca_file=str(certificates.ca))
    sub = nc.subscribe("a")
    await nc.flush()
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await nc.publish("a", b"x")
    assert (await sub.next(10)).data == b"x"
    await nc.close()
    with pytest.raises(errors.ConnectionClosedError):
        await nc.flush()


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        (["nats://u:hush@h:1", 5], "hush"),
        (("nats://t0ken@h:1", None), "t0ken"),
        (b"tls://u:hush@h:1", "hush"),
        ({"seed": "SAAO53FTXDL4YWYMPYKDPA45QQXVWLLS5JFVXLFJDHYVGVI7JRKB7WS4UM"}, "SAAO53FT"),
        ("SXAO53FTXDL4YWYMPYKDPA45QQXVWLLS5JFVXLFJDHYVGVI7JRKB7WS4UM" * 3, "SXAO53FT"),
    ],
)
def test_a_wrong_argument_is_shown_without_secrets(value: object, secret: str) -> None:
    assert secret not in errors.safe_repr(value)
    assert secret not in errors.safe_repr(value, 20)


def test_servers_of_the_wrong_kind_are_shown_without_passwords() -> None:
    for servers in (["nats://u:hush@h:1", 5], ("nats://u:hush@h:1", None), b"nats://u:hush@h:1"):
        with pytest.raises(errors.ConfigError, match=r"servers is ") as raised:
            make_options(servers)  # type: ignore[arg-type]
        assert "hush" not in str(raised.value)

"""Every form of credentials, several kinds together, refusals that are tried again, TLS state."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Connect
from tests.conftest import MakeServer
from tests.support.accounts import Operator, creds_text, new_key
from tests.support.certificates import Certificates

import jetspark
import jetspark.blocking
from jetspark import JetsparkError
from jetspark.connection.options import make_options
from jetspark.errors import AuthorizationError, ConfigError
from jetspark.links.link import connect as connect_bulk
from jetspark.server import NatsServer

WITHIN = 60
OPERATOR, USER = Operator(), new_key()
USERS = "authorization { users = [{user: u, password: p4ss}] }"


def everywhere(url: str, **options: Any) -> None:
    """Log in with the blocking client and a bulk link."""
    with jetspark.blocking.connect(url, **options) as nc:
        nc.flush()
        assert nc.tls is None
    link = connect_bulk(make_options(url, **options))
    assert link.check()
    link.close()


OPERATED, KEYED = OPERATOR.config(), f"authorization {{ users = [{{nkey: {USER.public}}}] }}"
TOKEN = "authorization { token: s3cret }"
JWT = OPERATOR.user(USER)
CREDS = creds_text(JWT, USER.seed)
FORMS: dict[str, list[dict[str, Any]]] = {
    USERS: [
        {"user": "u", "password": "p4ss"},
        {"user": lambda: "u", "password": lambda: "p4ss"},
        {"user": "u", "password": lambda: "p4ss"},
    ],
    TOKEN: [{"token": "s3cret"}, {"token": lambda: "s3cret"}],
    KEYED: [
        {"nkey_seed": USER.seed},
        {"nkey_seed": lambda: USER.seed},
        {"nkey_seed_file": f"# me\n {USER.seed}\r\n"},
        {"nkey": USER.public, "sign": USER.sign},
    ],
    OPERATED: [
        {"creds_file": CREDS},
        {"creds": CREDS.replace("\n", "\r\n")},
        {"creds": lambda: CREDS},
        {"jwt": JWT, "nkey_seed": USER.seed},
        {"jwt": lambda: JWT, "nkey_seed": lambda: USER.seed},
        {"jwt": JWT, "nkey_seed_file": f"{USER.seed}\n"},
        {"jwt": JWT, "sign": USER.sign},
    ],
}
"""For each server what it lets in; a file's text stands for the file."""


@pytest.mark.parametrize("conf", FORMS, ids=["user", "token", "nkey", "jwt"])
async def test_every_form_of_credentials_logs_in_everywhere_and_is_not_shown(
    make_server: MakeServer, connect: Connect, conf: str, tmp_path: Path
) -> None:
    server = make_server(conf)
    for options in FORMS[conf]:
        for name in options:
            if name.endswith("_file"):
                file = tmp_path / "secret.txt"
                file.write_text(options[name], "utf-8")
                options = options | {name: str(file)}
        nc = await connect(server.url, **options)
        await nc.flush()
        await nc.force_reconnect()
        shown = repr(nc) + repr(nc.options) + repr(make_options(**options))
        assert not any(secret in shown for secret in ("s3cret", "p4ss", USER.seed, JWT))
        await asyncio.to_thread(everywhere, server.url, **options)


async def test_the_key_of_nobody_is_refused_and_not_shown(
    make_server: MakeServer, connect: Connect
) -> None:
    server, other = make_server(KEYED), new_key()
    for options in ({"nkey_seed": other.seed}, {"nkey": other.public, "sign": other.sign}):
        with pytest.raises(AuthorizationError) as raised:
            await connect(server.url, **options)
        assert "SU" not in str(raised.value)


async def test_a_callable_is_asked_at_each_connect(
    make_server: MakeServer, connect: Connect
) -> None:
    server, asked = make_server(USERS), []

    def password() -> str:
        asked.append(1)
        return "p4ss"

    nc = await connect(server.url, user="u", password=password)
    await nc.force_reconnect()
    assert len(asked) == 2


def fails() -> str:
    raise LookupError("s3cret")


@pytest.mark.parametrize(
    ("password", "says"),
    [
        (fails, "The callable password raised LookupError."),
        (lambda: b"s3cret", "The callable password must return a str, but returned bytes."),
    ],
    ids=["raises", "bytes"],
)
async def test_a_callable_that_fails_is_one_sentence_without_its_secret(
    shared_server: NatsServer, password: Callable[[], str], says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        await jetspark.connect(shared_server.url, user="u", password=password)
    assert says in str(raised.value)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(ConfigError):
        connect_bulk(make_options(shared_server.url, user="u", password=password))


@pytest.mark.parametrize(
    "login", [{"token": "s3cret"}, {"user": "u", "password": "p4ss"}], ids=["token", "user"]
)
async def test_a_token_or_user_goes_with_a_key_and_each_server_takes_its_own(
    make_server: MakeServer, connect: Connect, login: dict[str, Any]
) -> None:
    conf = TOKEN if "token" in login else USERS
    servers = [make_server(conf), make_server(OPERATED), make_server(KEYED)]
    identities = [{"nkey_seed": USER.seed}, {"creds": CREDS}]
    for server, identity in (
        (servers[0], identities[0]),
        (servers[0], identities[1]),
        (servers[1], identities[1]),
        (servers[2], identities[0]),
    ):
        nc = await connect(server.url, **login, **identity)
        await nc.flush()
        await asyncio.to_thread(everywhere, server.url, **login, **identity)
    with pytest.raises(AuthorizationError):
        await connect(servers[2].url, **login)


# -- refusals ------------------------------------------------------------------------------------


@pytest.fixture
def passwords() -> Callable[[], str]:
    """Wrong four times, then right."""
    given = iter(["wrong"] * 4 + ["p4ss"] * 100)
    return lambda: next(given)


async def test_retry_auth_errors_tries_until_the_credentials_are_right(
    make_server: MakeServer, connect: Connect, passwords: Callable[[], str]
) -> None:
    errors: list[JetsparkError] = []
    nc = await connect(
        make_server(USERS).url,
        user="u",
        password=passwords,
        first_connect="wait",
        retry_auth_errors=True,
        error_callback=errors.append,
    )
    await nc.flush()
    assert [type(error) for error in errors] == [AuthorizationError] * 4


async def test_without_retry_auth_errors_the_second_refusal_is_the_last(
    make_server: MakeServer, connect: Connect, passwords: Callable[[], str]
) -> None:
    with pytest.raises(jetspark.NoServersError) as raised:
        await connect(make_server(USERS).url, user="u", password=passwords, first_connect="wait")
    assert isinstance(raised.value.__cause__, AuthorizationError)
    assert [passwords() for _ in range(3)] == ["wrong", "wrong", "p4ss"]


# -- TLS state -----------------------------------------------------------------------------------


async def test_tls_state_has_version_cipher_and_the_servers_certificate(
    make_server: MakeServer, connect: Connect, certificates: Certificates
) -> None:
    url = make_server(certificates.server_config()).url.replace("127.0.0.1", "localhost")
    nc = await connect(url, tls_ca_file=str(certificates.ca))
    state = nc.tls
    assert state is not None
    assert state.version.startswith("TLSv1.")
    assert "_" in state.cipher or "-" in state.cipher
    assert ("DNS", "localhost") in state.peer["subjectAltName"]
    assert ssl.DER_cert_to_PEM_cert(state.certificate).startswith("-----BEGIN CERTIFICATE")
    await nc.close()
    assert nc.tls is None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    unverified = await connect(url, ssl_context=context)
    assert unverified.tls is not None
    assert unverified.tls.certificate == state.certificate
    assert unverified.tls.peer == {}

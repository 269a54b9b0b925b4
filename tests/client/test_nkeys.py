"""NKeys and JWTs against real servers: refusals, rotation, expiry, revocation."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Connect, next_of
from tests.conftest import MakeServer
from tests.support.accounts import Operator, creds_text, new_key

import jetspark
import jetspark.errors as errors
from jetspark.server import NatsServer

OPERATOR = Operator()
USER = new_key()


@pytest.fixture
def operator_server(make_server: MakeServer) -> NatsServer:
    return make_server(OPERATOR.config())


def written(folder: Path, text: str) -> str:
    file = folder / "secret.txt"
    file.write_text(text, "utf-8")
    return str(file)


async def test_another_seed_of_a_jwt_is_refused(
    operator_server: NatsServer, connect: Connect
) -> None:
    for wrong in (
        {"jwt": OPERATOR.user(USER), "nkey_seed": new_key().seed},
        {"creds": creds_text(Operator().user(USER), USER.seed)},
        {"jwt": OPERATOR.user(USER)},
        {"nkey_seed": USER.seed},
        {},
    ):
        with pytest.raises(errors.AuthorizationError):
            await connect(operator_server.url, **wrong)


async def test_a_bearer_jwt_needs_no_seed(operator_server: NatsServer, connect: Connect) -> None:
    bearer = OPERATOR.user(USER, bearer_token=True)
    await connect(operator_server.url, jwt=bearer)
    await connect(operator_server.url, creds=bearer)


async def test_server_without_keys_lets_us_in(shared_server: NatsServer, connect: Connect) -> None:
    await connect(shared_server.url, nkey_seed=USER.seed)
    await connect(shared_server.url, creds=creds_text(OPERATOR.user(USER), USER.seed))


async def test_credentials_in_url_take_precedence_over_nkeys(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server("authorization { users = [{user: u, password: p}] }")
    await connect(f"nats://u:p@127.0.0.1:{server.port}", creds_file="is-not-read")


async def test_an_expired_jwt_has_its_own_error(
    operator_server: NatsServer, connect: Connect
) -> None:
    expired = creds_text(OPERATOR.user(USER, expires=int(time.time()) - 1), USER.seed)
    with pytest.raises(errors.AuthExpiredError) as caught:
        await connect(operator_server.url, creds=expired)
    assert caught.value.server == operator_server.url


async def test_rotated_credentials_are_used_when_the_old_ones_expire(
    operator_server: NatsServer, connect: Connect, tmp_path: Path
) -> None:
    file = tmp_path / "my.creds"
    file.write_text(creds_text(OPERATOR.user(USER, expires=int(time.time()) + 2), USER.seed))
    nc = await connect(operator_server.url, creds_file=str(file))
    events = nc.events()
    sub = nc.subscribe("a")
    other = new_key()
    file.write_text(creds_text(OPERATOR.user(other), other.seed))
    lost = await next_of(events, jetspark.Disconnected)
    assert isinstance(lost.error, errors.AuthExpiredError)
    await next_of(events, jetspark.Reconnected)
    await nc.publish("a", b"x")
    assert (await sub.next(30)).data == b"x"


async def test_credentials_may_be_rotated_after_one_refusal(
    operator_server: NatsServer, connect: Connect, tmp_path: Path
) -> None:
    """The second refusal in a row would be the end; new credentials come before it."""
    good = creds_text(OPERATOR.user(USER), USER.seed)
    late = creds_text(OPERATOR.user(USER, expires=int(time.time()) - 1), USER.seed)
    foreign = creds_text(Operator().user(USER), USER.seed)
    file = written(tmp_path, good)
    refused: list[errors.AuthError] = []

    def rotate(error: jetspark.JetsparkError) -> None:
        assert isinstance(error, errors.AuthError)
        refused.append(error)
        written(tmp_path, good)

    nc = await connect(operator_server.url, creds_file=file, error_callback=rotate)
    for bad in (late, foreign, late):
        written(tmp_path, bad)
        await nc.force_reconnect()
    assert [type(error) for error in refused] == [
        errors.AuthExpiredError,
        errors.AuthorizationError,
        errors.AuthExpiredError,
    ]


async def test_expired_credentials_that_are_not_rotated_end_the_connection(
    operator_server: NatsServer, connect: Connect
) -> None:
    jwt = OPERATOR.user(USER, expires=int(time.time()) + 2)
    reported: list[jetspark.JetsparkError] = []
    nc = await connect(
        operator_server.url,
        jwt=jwt,
        nkey_seed=USER.seed,
        error_callback=reported.append,
        reconnect_wait=0.3,
    )
    async with asyncio.timeout(60):
        seen = [event async for event in nc.events()]
    assert {type(error) for error in reported} == {errors.AuthExpiredError}
    # Two refused attempts would do; but within the second of the expiry the server may accept
    # the JWT and end that link at once, which begins the count anew.
    assert len(reported) < 12
    assert isinstance(seen[-1], jetspark.Closed)
    assert isinstance(seen[-1].error, errors.AuthExpiredError)


async def test_expired_account_has_its_own_error(make_server: MakeServer, connect: Connect) -> None:
    server = make_server(OPERATOR.config(expires=int(time.time()) + 3))
    nc = await connect(server.url, jwt=OPERATOR.user(USER), sign=USER.sign)
    lost = await next_of(nc.events(), jetspark.Disconnected)
    assert isinstance(lost.error, errors.AccountAuthExpiredError)


async def test_a_revoked_user_is_reported(
    make_server: MakeServer, connect: Connect, tmp_path: Path
) -> None:
    conf = tmp_path / "operator.conf"
    conf.write_text(OPERATOR.config())
    server = make_server(config=conf, port=0, host="127.0.0.1", jetstream=True)
    nc = await connect(server.url, jwt=OPERATOR.user(USER), sign=USER.sign)
    events = nc.events()
    conf.write_text(OPERATOR.config(revoked=USER.public))
    os.kill(server.pid, signal.SIGHUP)
    async with asyncio.timeout(60):
        seen = [event async for event in events]
    assert isinstance(seen[0], jetspark.Disconnected)
    assert isinstance(seen[0].error, errors.AuthRevokedError)
    assert isinstance(seen[-1], jetspark.Closed)
    assert isinstance(seen[-1].error, errors.AuthError)


async def test_a_file_that_is_gone_for_a_while_does_not_end_the_connection(
    make_server: MakeServer, connect: Connect, tmp_path: Path
) -> None:
    server = make_server(f"authorization {{ users = [{{nkey: {USER.public}}}] }}")
    seed = written(tmp_path, USER.seed)
    reported: asyncio.Queue[jetspark.JetsparkError] = asyncio.Queue()
    nc = await connect(
        server.url, nkey_seed_file=seed, error_callback=reported.put_nowait, reconnect_wait=0.02
    )
    os.unlink(seed)
    moving = asyncio.create_task(nc.force_reconnect())
    while not isinstance(error := await asyncio.wait_for(reported.get(), 30), errors.ConfigError):
        pass
    assert "nkey_seed_file" in str(error)
    written(tmp_path, USER.seed)
    await asyncio.wait_for(moving, 30)
    await nc.flush()


@pytest.mark.parametrize(
    ("sign", "sentence"),
    [
        (lambda nonce: 1 / 0, "The signing callable raised ZeroDivisionError"),
        (lambda nonce: "text", "64 bytes of an Ed25519 signature, but returned str"),
        (lambda nonce: b"short", "64 bytes"),
    ],
)
async def test_a_signing_callable_that_fails_is_reported(
    operator_server: NatsServer, connect: Connect, sign: Any, sentence: str
) -> None:
    with pytest.raises(errors.ConfigError, match=sentence):
        await connect(operator_server.url, jwt=OPERATOR.user(USER), sign=sign)

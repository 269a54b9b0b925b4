"""The option `first_connect`: a server that is not there yet when a client connects."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.client.conftest import Connect
from tests.conftest import MakeServer, Unique
from tests.support.ports import free_port

import jetspark
import jetspark.blocking
import jetspark.errors as errors
from jetspark import Closed, Connected, ConnectionStatus, JetsparkError

WITHIN = 60


class Seen:
    """What callbacks got, as events to wait for."""

    def __init__(self) -> None:
        self.failed = asyncio.Event()
        self.errors: list[JetsparkError] = []
        self.events: asyncio.Queue[Any] = asyncio.Queue()

    def error(self, error: JetsparkError) -> None:
        self.errors.append(error)
        self.failed.set()

    @property
    def callbacks(self) -> dict[str, Any]:
        return {"error_callback": self.error, "event_callback": self.events.put_nowait}

    async def event(self) -> Any:
        return await asyncio.wait_for(self.events.get(), WITHIN)


async def test_first_connect_wait_returns_when_the_server_has_started(
    connect: Connect, make_server: MakeServer
) -> None:
    port, seen = free_port(), Seen()
    connecting = asyncio.ensure_future(
        connect(
            f"nats://127.0.0.1:{port}",
            first_connect="wait",
            reconnect=False,  # is about later links only
            max_reconnect_attempts=-1,
            **seen.callbacks,
        )
    )
    await asyncio.wait_for(seen.failed.wait(), WITHIN)
    assert not connecting.done()
    assert isinstance(seen.errors[0], errors.ServerRefusedError)
    make_server(port=port)
    nc = await asyncio.wait_for(connecting, WITHIN)
    assert nc.is_connected
    assert nc.last_error is None
    assert await seen.event() == Connected(f"nats://127.0.0.1:{port}")


async def test_first_connect_background_returns_at_once_and_sends_what_was_buffered(
    connect: Connect, make_server: MakeServer
) -> None:
    port, seen = free_port(), Seen()
    nc = await connect(
        f"nats://127.0.0.1:{port}",
        first_connect="background",
        max_reconnect_attempts=-1,
        **seen.callbacks,
    )
    assert nc.status is ConnectionStatus.CONNECTING
    assert not nc.is_connected
    sub = nc.subscribe("early")
    await nc.publish("early", b"bird")
    with pytest.raises(errors.ConnectionClosedError, match=r"\(connecting\)"):
        await nc.rtt()
    with pytest.raises(errors.RequestTimeoutError, match=r"within 0\.01 s"):
        await nc.flush(0.01)
    flushing = asyncio.create_task(nc.flush(WITHIN))
    await asyncio.wait_for(seen.failed.wait(), WITHIN)
    make_server(port=port)
    await flushing
    assert sub.pending_msgs or (await sub.next(WITHIN)).data == b"bird"
    assert isinstance(await seen.event(), Connected)


async def test_first_connect_background_closes_when_no_server_is_left(connect: Connect) -> None:
    seen = Seen()
    nc = await connect(
        f"nats://127.0.0.1:{free_port()}",
        first_connect="background",
        max_reconnect_attempts=1,
        **seen.callbacks,
    )
    closed = await seen.event()
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, errors.NoServersError)
    assert isinstance(closed.error.__cause__, errors.ServerRefusedError)
    assert len(seen.errors) == 2
    with pytest.raises(errors.ConnectionClosedError):
        nc.publish_nowait("a")


async def test_first_connect_wait_raises_when_no_server_is_left(connect: Connect) -> None:
    port = free_port()
    with pytest.raises(errors.NoServersError, match=f"the last one .*:{port}") as raised:
        await connect(f"nats://127.0.0.1:{port}", first_connect="wait", max_reconnect_attempts=2)
    assert isinstance(raised.value.__cause__, errors.ServerRefusedError)


async def test_first_connect_says_that_the_credentials_are_wrong(
    connect: Connect, make_server: MakeServer
) -> None:
    server, seen = make_server('authorization {user: "u", password: "right"}'), Seen()
    url = f"nats://u:not-this@127.0.0.1:{server.port}"
    nc = await connect(url, first_connect="background", **seen.callbacks)
    closed = await seen.event()
    assert closed.error is nc.last_error
    assert isinstance(closed.error, errors.NoServersError)
    assert "refused these credentials" in str(closed.error)
    assert "not-this" not in str(closed.error)


@pytest.mark.parametrize("how", ["wait", "background"])
async def test_first_connect_ends_for_files_that_no_server_can_mend(
    connect: Connect, make_server: MakeServer, how: str
) -> None:
    seen = Seen()
    connecting = connect(
        make_server().url,
        first_connect=how,
        creds_file="/nowhere/at.all",
        max_reconnect_attempts=-1,
        **seen.callbacks,
    )
    if how == "wait":
        with pytest.raises(errors.ConfigError, match="creds_file"):
            await connecting
    else:
        await connecting
    assert isinstance((await seen.event()).error, errors.ConfigError)


async def test_first_connect_background_can_be_closed_without_a_server(connect: Connect) -> None:
    nc = await connect(
        f"nats://127.0.0.1:{free_port()}", first_connect="background", max_reconnect_attempts=-1
    )
    await nc.close()
    assert nc.status is ConnectionStatus.CLOSED
    assert nc.last_error is None


async def test_first_connect_takes_no_other_word() -> None:
    with pytest.raises(errors.ConfigError, match="first_connect"):
        jetspark.connect("nats://127.0.0.1:1", first_connect="later")  # type: ignore[arg-type]


def test_blocking_first_connect_in_the_background(make_server: MakeServer, unique: Unique) -> None:
    port = free_port()
    began = time.monotonic()
    with jetspark.blocking.connect(
        f"nats://127.0.0.1:{port}",
        first_connect="background",
        max_reconnect_attempts=-1,
        reconnect_wait=0.05,
    ) as nc:
        assert time.monotonic() - began < WITHIN
        assert nc.status is ConnectionStatus.CONNECTING
        sub = nc.subscribe("early")
        nc.publish("early", b"bird")
        make_server(port=port)
        assert sub.next(WITHIN).data == b"bird"

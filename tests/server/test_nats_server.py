"""The life of a NatsServer: its port, its store, its ends."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeServer
from tests.support.ports import free_port
from tests.support.processes import first_line, is_alive, python, wait_until_gone
from tests.support.raw_client import RawClient

from jetspark.errors import EmbeddedServerError
from jetspark.server import NatsServer

pytestmark = pytest.mark.server


def store_one(server: NatsServer) -> None:
    with RawClient(server.url) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert b'"seq":1' in client.request("s", b"kept")


def stored(server: NatsServer) -> int:
    with RawClient(server.url) as client:
        info = client.api("STREAM.INFO.S")
    count: int = info["state"]["messages"] if "state" in info else -1
    return count


# -- starting ------------------------------------------------------------------------------------


def test_constructor_of_a_server_starts_nothing(tmp_path: Path) -> None:
    server = NatsServer(binary=tmp_path / "none")
    assert not server.running
    assert server.log == ""
    assert repr(server) == "<NatsServer never started, stopped>"
    for name in ("url", "port", "pid", "store_dir", "log_file"):
        with pytest.raises(EmbeddedServerError):
            getattr(server, name)
    with pytest.raises(EmbeddedServerError):
        server.wait()
    server.stop()
    server.close()


def test_started_server_has_jetstream(nats_server: NatsServer) -> None:
    assert nats_server.running
    assert nats_server.url == f"nats://127.0.0.1:{nats_server.port}"
    assert "Server is ready" in nats_server.log
    assert str(nats_server.pid) in repr(nats_server)
    with RawClient(nats_server.url) as client:
        assert client.info["jetstream"] is True
        assert client.api("INFO")["streams"] == 0
    pid = nats_server.pid
    assert nats_server.start() is nats_server
    assert nats_server.pid == pid


def test_a_server_with_a_port_a_name_and_extra_arguments(make_server: MakeServer) -> None:
    extra, port = ["--user", "u", "--pass", "p"], free_port()
    server = make_server(port=port, jetstream=False, name="blue", extra=extra)
    credentials: dict[str, Any] = {"user": "u", "pass": "p"}
    with RawClient(server.url, **credentials) as client:
        assert client.info["server_name"] == "blue"
        assert client.info["port"] == server.port == port
        assert "jetstream" not in client.info


def test_another_thread_may_start_and_end_before_the_server(make_server: MakeServer) -> None:
    # The kernel's parent-death signal is tied to the thread that forks; ours must not be.
    started: list[NatsServer] = []
    thread = threading.Thread(target=lambda: started.append(make_server()))
    thread.start()
    thread.join()
    with RawClient(started[0].url) as client:
        client.ping()
    assert started[0].wait(0.1) is None


# -- port and store over stops -------------------------------------------------------------------


@pytest.mark.parametrize("stop_timeout", [None, 10.0, 0.0])
def test_another_start_keeps_port_and_data(
    make_server: MakeServer, stop_timeout: float | None
) -> None:
    """None: it is killed; 0.0: it is killed since it does not stop in time."""
    nats_server = make_server(stop_timeout=stop_timeout or 0.0)
    store_one(nats_server)
    url, pid = nats_server.url, nats_server.pid
    if stop_timeout is None:
        nats_server.kill()
    else:
        nats_server.stop()
    assert not stop_timeout or "Server Exiting" in nats_server.log
    assert not nats_server.running
    assert not is_alive(pid)
    assert nats_server.url == url
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", nats_server.port))
    nats_server.start()
    assert nats_server.url == url
    assert stored(nats_server) == 1
    started = nats_server.pid
    nats_server.restart()
    assert nats_server.pid not in (pid, started)
    assert (nats_server.url, stored(nats_server)) == (url, 1)


def test_given_store_is_kept_and_found_again(make_server: MakeServer, tmp_path: Path) -> None:
    store = tmp_path / "deep" / "store"
    first = make_server(store_dir=store)
    assert first.store_dir == store
    store_one(first)
    first.close()
    assert stored(make_server(store_dir=store)) == 1


def test_a_store_in_use_is_refused_until_its_end(make_server: MakeServer, tmp_path: Path) -> None:
    first = make_server(store_dir=tmp_path)
    message = failure(NatsServer(store_dir=tmp_path))
    assert message == (
        f"{tmp_path} is in use by another nats-server (pid {first.pid}, {first.url}): "
        "stop that one, or choose another folder."
    )
    store_one(first)
    first.restart()
    os.kill(first.pid, signal.SIGKILL)
    assert stored(make_server(store_dir=tmp_path)) == 1


def test_a_store_in_use_is_free_when_its_server_was_killed_with_the_process_that_started_it(
    make_server: MakeServer, tmp_path: Path
) -> None:
    code = (
        "import os, sys; from jetspark.server import NatsServer\n"
        "server = NatsServer(store_dir=sys.argv[1]).start()\n"
        "print(server.pid, flush=True); sys.stdin.read()\n"
    )
    with python(code, str(tmp_path)) as holder:
        pid = int(first_line(holder))
        assert f"(pid {pid}, nats://" in failure(NatsServer(store_dir=tmp_path))
        holder.kill()
        wait_until_gone(pid)
    make_server(store_dir=tmp_path)


def test_close_also_after_an_error_removes_the_temporary_store_and_the_log() -> None:
    server = NatsServer()
    with pytest.raises(ZeroDivisionError), server:
        store_one(server)
        home, pid = server.log_file.parent, server.pid
        assert server.store_dir.is_relative_to(home)
        raise ZeroDivisionError
    assert not home.exists()
    assert not is_alive(pid)
    assert server.log == ""


def test_closed_server_may_start_again_with_an_empty_store(make_server: MakeServer) -> None:
    server = make_server()
    url = server.url
    store_one(server)
    server.close()
    server.start()
    assert server.url == url
    assert stored(server) == -1


# -- pausing and waiting -------------------------------------------------------------------------


def test_paused_server_keeps_its_connections_and_is_silent(nats_server: NatsServer) -> None:
    with RawClient(nats_server.url) as client:
        for _ in range(2):  # pausing twice is pausing once
            nats_server.pause()
        client.set_timeout(0.2)
        with pytest.raises(TimeoutError):
            client.ping()
    nats_server.resume()
    with RawClient(nats_server.url) as client:
        client.ping()


def test_paused_server_stops_gracefully(nats_server: NatsServer) -> None:
    nats_server.pause()
    nats_server.stop()
    assert "Server Exiting" in nats_server.log


def test_wait_tells_how_the_server_ended_which_may_start_again(nats_server: NatsServer) -> None:
    assert nats_server.wait(0) is None
    url = nats_server.url
    os.kill(nats_server.pid, signal.SIGKILL)
    assert nats_server.wait(30) == -signal.SIGKILL
    assert not nats_server.running
    assert nats_server.wait() == -signal.SIGKILL
    with pytest.raises(EmbeddedServerError, match="not running"):
        nats_server.pause()
    assert nats_server.start().url == url


# -- failures ------------------------------------------------------------------------------------


def failure(server: NatsServer) -> str:
    with ExitStack() as stack:
        stack.callback(server.close)
        with pytest.raises(EmbeddedServerError) as caught:
            server.start()
        assert not server.running
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"config": "wrong.conf"},
            r'^nats-server did not start: wrong.conf:1:0: unknown field "prot"\.$',
        ),
        ({"config": "none.conf"}, "no such file"),
        ({"store_dir": "wrong.conf"}, "storage directory is not a directory"),
        ({"extra": ["--nope"]}, "flag provided but not defined: -nope"),
        ({"host": "192.0.2.1"}, r"192\.0\.2\.1"),
        ({"host": "192.0.2.1", "port": 4222}, r"192\.0\.2\.1"),
        ({"binary": "none"}, "No executable nats-server at none"),
        ({"binary": "wrong.conf"}, "Exec format error"),
    ],
)
def test_the_reason_of_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = tmp_path / "wrong.conf"
    wrong.write_text("prot: 4222\n")
    wrong.chmod(0o755)
    assert re.search(reason, failure(NatsServer(**options)))


def test_taken_port_is_replaced(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    offers = iter([nats_server.port, free])
    monkeypatch.setattr("jetspark.server.nats_server.free_port", lambda _host: next(offers))
    with NatsServer() as server:
        assert server.port == free


def test_server_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    binary = tmp_path / "nats-server"
    binary.write_text("#!/bin/sh\necho $$\nexec sleep 60\n")
    binary.chmod(0o755)
    message = failure(NatsServer(binary=binary, start_timeout=3))
    opening = "nats-server was not ready after 3 s; its log ends with: "
    assert message.startswith(opening)
    wait_until_gone(int(message.removeprefix(opening).rstrip(".")))


def test_failed_server_may_start_when_the_reason_is_gone(make_server: MakeServer) -> None:
    first = make_server()
    second = NatsServer(first.port)
    assert failure(second) == (
        f"nats-server did not start: 127.0.0.1:{first.port}: address already in use."
    )
    first.close()
    with second:
        assert second.port == first.port


# -- configuration files -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "jetstream"),
    [
        ('jetstream { store_dir: "data" }', {}, True),
        ("", {}, None),
        ('listen: "127.0.0.1:4222"', {"port": 0, "jetstream": True}, True),
    ],
)
def test_a_configuration_decides_where_no_argument_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    options: dict[str, Any],
    jetstream: bool | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "server.conf"
    config.write_text(text if "listen" in text else f'listen: "127.0.0.1:-1"\n{text}\n')
    with NatsServer(config=config, **options) as server:
        url = server.url
        with RawClient(url) as client:
            assert client.info.get("jetstream") is jetstream
        assert (tmp_path / "data").is_dir() == ("data" in text)
        assert server.port != 4222
        server.restart()
        assert server.url == url


# -- garbage and forks ---------------------------------------------------------------------------


def test_forgotten_server_runs_on(make_server: MakeServer) -> None:
    # An object nobody holds any more must not take its process down by surprise, nor warn.
    server = make_server()
    pid = server.pid
    del server
    gc.collect()
    assert is_alive(pid)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_neither_stops_the_server_nor_removes_its_store(nats_server: NatsServer) -> None:
    home = nats_server.log_file.parent
    child = os.fork()
    if child == 0:
        nats_server.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert home.is_dir()
    with RawClient(nats_server.url) as client:
        client.ping()

"""The life of a NatsServer: its port, its store, its ends."""

from __future__ import annotations

import gc
import os
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


def test_start_of_a_running_server_changes_nothing(nats_server: NatsServer) -> None:
    pid = nats_server.pid
    assert nats_server.start() is nats_server
    assert nats_server.pid == pid


def test_server_without_jetstream(make_server: MakeServer) -> None:
    with RawClient(make_server(jetstream=False).url) as client:
        assert "jetstream" not in client.info


def test_name_and_extra_arguments(make_server: MakeServer) -> None:
    server = make_server(name="blue", extra=["--user", "u", "--pass", "p"])
    credentials: dict[str, Any] = {"user": "u", "pass": "p"}
    with RawClient(server.url, **credentials) as client:
        assert client.info["server_name"] == "blue"


def test_given_port_is_used(make_server: MakeServer) -> None:
    first = make_server()
    port = first.port
    first.close()
    assert make_server(port=port).port == port


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


@pytest.mark.parametrize("end", [NatsServer.stop, NatsServer.kill])
def test_start_after_an_end_keeps_port_and_data(nats_server: NatsServer, end: object) -> None:
    assert callable(end)
    store_one(nats_server)
    url, pid = nats_server.url, nats_server.pid
    end(nats_server)
    assert not nats_server.running
    assert not is_alive(pid)
    assert nats_server.url == url
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", nats_server.port))
    nats_server.start()
    assert nats_server.url == url
    assert stored(nats_server) == 1


def test_restart_is_another_process_with_the_same_data(nats_server: NatsServer) -> None:
    store_one(nats_server)
    url, pid = nats_server.url, nats_server.pid
    nats_server.restart()
    assert nats_server.pid != pid
    assert nats_server.url == url
    assert stored(nats_server) == 1


def test_stop_is_graceful(nats_server: NatsServer) -> None:
    nats_server.stop()
    assert "Server Exiting" in nats_server.log


def test_stop_kills_a_server_that_does_not_hear(make_server: MakeServer) -> None:
    server = make_server(stop_timeout=0.0)
    pid = server.pid
    server.stop()
    assert not is_alive(pid)


def test_given_store_is_kept_and_found_again(make_server: MakeServer, tmp_path: Path) -> None:
    store = tmp_path / "deep" / "store"
    first = make_server(store_dir=store)
    assert first.store_dir == store
    store_one(first)
    first.close()
    assert stored(make_server(store_dir=store)) == 1


def test_a_store_in_use_is_refused_until_its_server_has_ended(
    make_server: MakeServer, tmp_path: Path
) -> None:
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


def test_close_removes_the_temporary_store_and_the_log() -> None:
    with NatsServer() as server:
        store_one(server)
        home, pid = server.log_file.parent, server.pid
        assert server.store_dir.is_relative_to(home)
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


def test_error_in_the_block_ends_the_server_too() -> None:
    server = NatsServer()
    with pytest.raises(ZeroDivisionError), server:
        pid = server.pid
        raise ZeroDivisionError
    assert not is_alive(pid)


# -- pausing and waiting -------------------------------------------------------------------------


def test_paused_server_keeps_its_connections_and_is_silent(nats_server: NatsServer) -> None:
    with RawClient(nats_server.url) as client:
        nats_server.pause()
        client.set_timeout(0.2)
        with pytest.raises(TimeoutError):
            client.ping()
    nats_server.resume()
    with RawClient(nats_server.url) as client:
        client.ping()


def test_pausing_twice_is_pausing_once(nats_server: NatsServer) -> None:
    for _ in range(2):
        nats_server.pause()
        nats_server.pause()
        nats_server.resume()
    with RawClient(nats_server.url) as client:
        client.ping()


def test_paused_server_stops_gracefully(nats_server: NatsServer) -> None:
    nats_server.pause()
    nats_server.stop()
    assert "Server Exiting" in nats_server.log


def test_wait_tells_how_the_server_ended(nats_server: NatsServer) -> None:
    assert nats_server.wait(0) is None
    os.kill(nats_server.pid, signal.SIGKILL)
    assert nats_server.wait(30) == -signal.SIGKILL
    assert not nats_server.running
    assert nats_server.wait() == -signal.SIGKILL


def test_server_that_died_by_itself_starts_again(nats_server: NatsServer) -> None:
    url = nats_server.url
    os.kill(nats_server.pid, signal.SIGKILL)
    nats_server.wait(30)
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


def test_a_port_in_use_is_the_reason_of_a_failed_start(nats_server: NatsServer) -> None:
    assert failure(NatsServer(nats_server.port)) == (
        f"nats-server did not start: 127.0.0.1:{nats_server.port}: address already in use."
    )


def test_free_port_that_was_just_taken_is_replaced(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = free_port()
    offers = iter([nats_server.port, free])
    monkeypatch.setattr("jetspark.server.nats_server.free_port", lambda _host: next(offers))
    with NatsServer() as server:
        assert server.port == free


def test_mistake_in_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "wrong.conf"
    config.write_text("prot: 4222\n")
    message = failure(NatsServer(config=config))
    assert message == f'nats-server did not start: {config}:1:0: unknown field "prot".'


def test_missing_configuration(tmp_path: Path) -> None:
    assert "no such file" in failure(NatsServer(config=tmp_path / "none.conf"))


def test_store_that_is_a_file(tmp_path: Path) -> None:
    store = tmp_path / "file"
    store.touch()
    assert "storage directory is not a directory" in failure(NatsServer(store_dir=store))


def test_an_unknown_argument_is_the_reason_of_a_failed_start() -> None:
    assert "flag provided but not defined: -nope" in failure(NatsServer(extra=["--nope"]))


def test_an_address_of_another_machine_is_refused_by_the_server() -> None:
    assert "192.0.2.1" in failure(NatsServer(host="192.0.2.1"))
    assert "192.0.2.1" in failure(NatsServer(4222, host="192.0.2.1"))


def test_missing_binary(tmp_path: Path) -> None:
    assert str(tmp_path) in failure(NatsServer(binary=tmp_path / "nats-server"))


def test_binary_that_is_no_program(tmp_path: Path) -> None:
    binary = tmp_path / "nats-server"
    binary.write_bytes(b"\x00")
    binary.chmod(0o755)
    assert "Exec format error" in failure(NatsServer(binary=binary))


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
    with pytest.raises(EmbeddedServerError):
        second.start()
    first.close()
    with second:
        assert second.port == first.port


# -- configuration files -------------------------------------------------------------------------


def test_configuration_decides_on_address_and_jetstream(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(
        f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{tmp_path}/data", domain: hub }}\n'
    )
    with NatsServer(config=config) as server, RawClient(server.url) as client:
        assert server.url.startswith("nats://127.0.0.1:")
        assert client.info["domain"] == "hub"
        assert (tmp_path / "data").is_dir()
        url = server.url
        server.restart()
        assert server.url == url


def test_server_with_a_configuration_without_jetstream(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text('listen: "127.0.0.1:-1"\n')
    with NatsServer(config=config) as server, RawClient(server.url) as client:
        assert "jetstream" not in client.info


def test_arguments_win_over_configuration(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text('listen: "127.0.0.1:4222"\n')
    with NatsServer(0, config=config, jetstream=True) as server, RawClient(server.url) as client:
        assert server.port != 4222
        assert client.info["jetstream"] is True


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

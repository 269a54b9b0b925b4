"""`jetspark server` as a person runs it: a process in the foreground."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.support.ports import free_port
from tests.support.processes import end, finish, first_line, jetspark, python, wait_until_gone
from tests.support.raw_client import RawClient

from jetspark.cli import app
from jetspark.server import NatsServer, server_version

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A command that is killed cannot tidy up: what may be left is a folder, not a process.
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def server_pid(command: subprocess.Popen[bytes]) -> int:
    """The process id of the nats-server below a command."""
    children = Path(f"/proc/{command.pid}/task").glob("*/children")
    (pid,) = (int(pid) for file in children for pid in file.read_text().split())
    return pid


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_the_server_gracefully(number: int) -> None:
    with jetspark("server", "--port", "0") as command:
        url = first_line(command)
        with RawClient(url) as client:
            assert client.info["jetstream"] is True
        pid = server_pid(command)
        code, out, err = end(command, number)
        wait_until_gone(pid)
    assert (code, err) == (0, "")
    store = re.search(r"store +(/\S+)", out)
    assert store
    assert not Path(store[1]).exists()
    assert f"nats-server {server_version()}" in out
    assert "Ctrl-C" in out
    assert "[INF]" not in out
    assert out.endswith("Stopped.\n")


def test_ctrl_c_of_the_terminal_goes_to_the_whole_group() -> None:
    with jetspark("server", "--port", "0", "--log") as command:
        first_line(command)
        pid = server_pid(command)
        os.killpg(command.pid, signal.SIGINT)
        code, out, _ = finish(command)
        wait_until_gone(pid)
    assert code == 0
    assert '"interrupt"' not in out  # the terminal's signal reached the command alone
    assert "[INF] Server is ready" in out
    assert "[INF] Server Exiting" in out


def test_ctrl_c_again_and_again_does_not_cut_the_end_short() -> None:
    with jetspark("server", "--port", "0") as command:
        first_line(command)
        pid = server_pid(command)
        os.kill(pid, signal.SIGSTOP)
        while command.poll() is None:
            command.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(0.003)
        code, _, err = finish(command)
        wait_until_gone(pid)
    assert (code, err) == (0, "")


def test_signal_that_was_ignored_stays_ignored() -> None:
    nohup = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    script = nohup + "from jetspark.cli.main import main; main()"
    with python(script, "server", "--port", "0") as command:
        url = first_line(command)
        command.send_signal(signal.SIGHUP)
        RawClient(url).close()
        code, _, err = end(command, signal.SIGTERM)
    assert (code, err) == (0, "")


def test_killed_command_leaves_no_server() -> None:
    with jetspark("server", "--port", "0") as command:
        first_line(command)
        pid = server_pid(command)
        command.kill()
        wait_until_gone(pid)


def test_server_that_dies_is_an_error() -> None:
    with jetspark("server", "--port", "0") as command:
        first_line(command)
        os.kill(server_pid(command), signal.SIGKILL)
        code, out, err = finish(command)
    assert code == 1
    assert err == "nats-server was killed by signal 9; its log ends with: Server is ready.\n"
    assert "Stopped" not in out


def test_server_command_keeps_its_store(tmp_path: Path) -> None:
    port = free_port()
    for round_ in range(2):
        with jetspark("server", "--port", str(port), "--store", str(tmp_path / "s")) as command:
            with RawClient(first_line(command)) as client:
                assert len(client.api("STREAM.LIST")["streams"]) == round_
                client.api("STREAM.CREATE.S", {"name": "S"})
            code, out, _ = end(command)
        assert code == 0
        assert str(tmp_path / "s") in out


def test_server_command_takes_a_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text('listen: "127.0.0.1:-1"\nserver_name: from_file\n')
    with jetspark("server", "--config", str(config)) as command:
        with RawClient(first_line(command)) as client:
            assert client.info["server_name"] == "from_file"
            assert "jetstream" not in client.info
        _, out, _ = end(command)
    assert str(config) in out
    assert "store" not in out


def test_without_jetstream_with_a_name_and_on_a_host() -> None:
    arguments = ("--port", "0", "--no-jetstream", "--name", "blue", "--host", "localhost")
    with jetspark("server", *arguments) as command:
        with RawClient(first_line(command)) as client:
            assert client.info["server_name"] == "blue"
            assert "jetstream" not in client.info
        _, out, _ = end(command)
    assert "JetStream is off" in out


def test_a_server_that_cannot_start_is_one_sentence(
    run: Run, shared_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = shared_server.port
    used = f"nats-server did not start: 127.0.0.1:{port}: address already in use.\n"
    for number, said in (
        (-1, "port is from 0 to 65535, not -1.\n"),
        (65536, "port is from 0 to 65535, not 65536.\n"),
        (port, used),
    ):
        assert run("server", "--port", str(number), server="") == (app.FAILED, "", said)
    monkeypatch.setenv("JETSPARK_NATS_SERVER", "/nowhere/nats-server")
    said = "No executable nats-server at /nowhere/nats-server (JETSPARK_NATS_SERVER).\n"
    assert run("server", server="") == (app.FAILED, "", said)

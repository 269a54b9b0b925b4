"""No server outlives the process that started it, however that process ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.support.processes import finish, first_document, python, wait_until_gone

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A process that is killed cannot tidy up: what may be left is a folder, not a process.
    monkeypatch.setenv("TMPDIR", str(tmp_path))


# Says who its server is, then does what it is told in `ending`.
PARENT = """
import json, os, signal, sys, threading, time
from jetspark.server import NatsServer
server = NatsServer()
def start():
    server.start()
    print(json.dumps({"pid": str(server.pid), "home": str(server.log_file.parent)}), flush=True)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "ending",
    [
        "start()",
        "start(); sys.exit(3)",
        "start(); raise ValueError",
        "thread = threading.Thread(target=start); thread.start(); thread.join()",
        "start(); server.pause()",
    ],
)
def test_orderly_end_stops_the_server_and_removes_its_folder(ending: str) -> None:
    with python(PARENT + ending) as parent:
        server = first_document(parent)
        wait_until_gone(int(server["pid"]))
        finish(parent)
    assert not Path(server["home"]).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal of Linux")
@pytest.mark.parametrize(
    ("ending", "number"),
    [
        ("start(); time.sleep(60)", signal.SIGTERM),
        ("start(); time.sleep(60)", signal.SIGABRT),
        ("start(); server.pause(); time.sleep(60)", signal.SIGKILL),
        ("threading.Thread(target=start).start(); time.sleep(60)", signal.SIGKILL),
        ("start(); os._exit(0)", 0),  # which skips its exit handlers
        ("start(); os.execvp('true', ['true'])", 0),
    ],
)
def test_killed_parent_leaves_no_server(ending: str, number: int) -> None:
    with python(PARENT + ending) as parent:
        server = first_document(parent)
        if number:
            parent.send_signal(number)
        wait_until_gone(int(server["pid"]))
        assert parent.wait(30) == -number


def test_interrupt_leaves_the_server_to_the_parent() -> None:
    # The parent gets Ctrl-C and still talks to its server while it cleans up.
    code = PARENT + (
        "try:\n"
        "    start(); time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print(server.wait(0.2), server.running, flush=True)\n"
        "    server.close()\n"
    )
    with python(code) as parent:
        server = first_document(parent)
        # To the whole group, as a terminal does it.
        os.killpg(parent.pid, signal.SIGINT)
        assert finish(parent) == (0, "None True\n", "")
        wait_until_gone(int(server["pid"]))
    assert not Path(server["home"]).exists()


def test_interrupt_during_start_leaves_no_server(tmp_path: Path) -> None:
    binary = tmp_path / "nats-server"
    binary.write_text('#!/bin/sh\necho $$ > "$0.pid"\nexec sleep 60\n')
    binary.chmod(0o755)
    code = (
        "import sys, threading, time, os, signal\n"
        "from pathlib import Path\n"
        "from jetspark.server import NatsServer\n"
        "pid = Path(sys.argv[1] + '.pid')\n"
        "def interrupt():\n"
        "    while not (pid.exists() and pid.read_text().strip()): time.sleep(0.01)\n"
        "    print('{\"pid\": \"' + pid.read_text().strip() + '\"}', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "NatsServer(binary=sys.argv[1]).start()\n"
    )
    with python(code, str(binary)) as parent:
        server = first_document(parent)
        wait_until_gone(int(server["pid"]))
        assert "KeyboardInterrupt" in finish(parent)[2]

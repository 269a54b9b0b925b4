"""What the manifests' containers run, as processes here; their probes are asked as by the kubelet.

The cluster's names are those of this machine instead, and Spark is local.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from tests.deploy.test_manifests import FOLDER, PASSWORDS, ROOT, the_container
from tests.metrics.test_names import shown_and_alerted
from tests.support.ports import free_port
from tests.support.processes import finish, python

from jetspark import blocking
from jetspark.errors import PermissionsError
from jetspark.server import find_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.server, pytest.mark.spark]
SECONDS = 120.0
EXECUTE = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
PODS = ("nats-0", "nats-1", "nats-2")


def make_certificates(folder: Path) -> None:
    """By the commands of the guide, for this machine's name, too."""
    guide = (ROOT / "docs" / "guide-deployment.md").read_text("utf-8").replace("\\\n", " ")
    commands = re.findall(r"^\$ (openssl .*)$", guide, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        words = command.replace("DNS:nats,", "DNS:nats,DNS:localhost,").split()
        subprocess.run(words, cwd=folder, capture_output=True, check=True)


class Container:
    """One of a pod: what it runs, where its ports and folders are here."""

    def __init__(self, of: dict[str, Any], places: dict[str, str], ports: dict[str, int]) -> None:
        self._of = of
        self._places = places
        self.ports = ports

    def here(self, text: str) -> str:
        every = "|".join(map(re.escape, self._places))
        return re.sub(every, lambda there: self._places[there[0]], text)

    def environment(self, **more: str) -> dict[str, str]:
        found = dict(more)
        for one in self._of["env"]:
            if "secretKeyRef" in (source := one.get("valueFrom", {})):
                key = source["secretKeyRef"]["key"]
                user = "pipeline" if key == "password" else key  # of a Secret of its own
                found[one["name"]] = PASSWORDS[f"{user.upper()}_PASSWORD"]
            elif not source:
                text = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], one["value"])
                found[one["name"]] = self.here(text)
        return found

    @contextmanager
    def running(self, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        command = list(map(self.here, [*self._of["command"], *self._of.get("args", [])]))
        command[0] = str(Path(sys.executable).parent / command[0])  # an absolute path stays
        with python(EXECUTE, *command, environment=self.environment(**more)) as process:
            yield process

    def asked(self, path: str, port: str) -> tuple[int, str]:
        """Code and text; 0 if nobody answers."""
        try:
            with urlopen(f"http://127.0.0.1:{self.ports[port]}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except (URLError, OSError) as error:
            return 0, str(error)

    def probe(self, kind: str, process: subprocess.Popen[bytes]) -> None:
        """Returns when it succeeds, within the time after which the kubelet would give up."""
        probe = self._of[kind]
        http, patience = probe["httpGet"], probe.get("failureThreshold", 3) * probe["periodSeconds"]
        deadline = time.monotonic() + max(patience, SECONDS)
        while (found := self.asked(http["path"], http["port"]))[0] != 200:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, (kind, found)
            time.sleep(0.1)


def nats_containers(folder: Path) -> list[Container]:
    """Each with a configuration of its own, which differs in folders and ports only."""
    names = ("client", "routes", "monitor")
    every = [dict(zip(names, [free_port() for _ in names], strict=True)) for _ in PODS]
    made = []
    for pod, ports in zip(PODS, every, strict=True):
        home = folder / pod
        home.mkdir()
        places = {
            "nats-server": str(find_server()),
            "/etc/nats/": f"{home}/",
            "/etc/nats-tls": str(folder),
            "/var/run/nats": str(home),
            "/data": str(home),
            f"{pod}.nats-headless.events:4222": f"localhost:{ports['client']}",
            **{
                f"nats://{other}.nats-headless:6222": f"nats://localhost:{its['routes']}"
                for other, its in zip(PODS, every, strict=True)
            },
            "http_port: 8222": f"http: 127.0.0.1:{ports['monitor']}",
            "port: 4222": f"host: 127.0.0.1\nport: {ports['client']}",
            "port: 6222": f"host: 127.0.0.1\nport: {ports['routes']}",
            # Of the test, which has to publish.
            "users: [\n      {\n": "users: [ {user: shop, password: shop}\n      {\n",
        }
        container = Container(the_container("StatefulSet", "nats"), places, ports)
        text = container.here((FOLDER / "nats.conf").read_text("utf-8"))
        (home / "nats.conf").write_text(text, "utf-8")
        made.append(container)
    return made


def streams_made(init: Container) -> str:
    """What it prints; it runs until it succeeds, as the kubelet has it."""
    deadline = time.monotonic() + SECONDS
    while True:
        with init.running() as process:
            code, out, err = finish(process, SECONDS)
        if code == 0:
            return out
        assert time.monotonic() < deadline, err


def publish(servers: str, ca: Path) -> None:
    """As the user of the test. The users of the manifests may not."""
    with blocking.connect(servers, user="shop", password="shop", tls_ca_file=ca) as nc:
        js = nc.jetstream(timeout=SECONDS)
        made = js.stream("ORDERS").info().config
        assert (made.max_age, made.num_replicas) == (timedelta(days=7), 3)
        for number in range(50):
            js.publish("orders.eu", json.dumps({"id": str(number), "amount": 1.5}).encode())
    for user in ("streams", "pipeline"):
        password = PASSWORDS[f"{user.upper()}_PASSWORD"]
        with blocking.connect(servers, user=user, password=password, tls_ca_file=ca) as nc:
            nc.publish("orders.eu", b"")
            nc.flush()
            assert isinstance(nc.last_error, PermissionsError)


def until(container: Container, path: str, enough: Callable[[str], bool]) -> str:
    """The answer, once it is what is waited for."""
    deadline = time.monotonic() + SECONDS
    while not enough(found := container.asked(path, "metrics")[1]):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_containers_run_and_answer_their_probes(
    tmp_path: Path, needs_server: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_server("2.15")
    monkeypatch.setenv("JETSPARK_LOG", "json")
    make_certificates(tmp_path)
    nats = nats_containers(tmp_path)
    servers = ",".join(f"tls://localhost:{one.ports['client']}" for one in nats)
    pipeline = tmp_path / "pipeline"
    places = {
        "/etc/nats-ca": str(tmp_path),
        "/etc/pipeline": str(pipeline),
        "/etc/streams": str(pipeline),
        "/lake": str(tmp_path / "lake"),
        "tls://nats:4222": servers,
        "k8s://https://kubernetes.default.svc:443": "local[2]",
        "jetspark-0.jetspark": "127.0.0.1",
        "7078": str(free_port()),
        "7079": str(free_port()),
        ":9464": f"127.0.0.1:{(port := free_port())}",
    }
    driver = Container(the_container("StatefulSet", "jetspark"), places, {"metrics": port})
    init = Container(the_container("Job", "streams"), places, {})
    pipeline.mkdir()
    for name in ("pipeline.toml", "streams.py", "spark-defaults.conf"):
        text = (FOLDER / name).read_text("utf-8")
        (pipeline / name).write_text(driver.here(text), "utf-8")
    with ExitStack() as stack:
        pods = [
            stack.enter_context(one.running(POD_NAME=pod))
            for pod, one in zip(PODS, nats, strict=True)
        ]
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            for pod, one in zip(pods, nats, strict=True):
                one.probe(kind, pod)
        for _ in range(2):  # a pod that starts again changes nothing
            assert streams_made(init) == "ORDERS: 0 messages\n"
        publish(servers, tmp_path / "ca.crt")

        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(SECONDS)
        run = stack.enter_context(driver.running(NOTIFY_SOCKET=str(tmp_path / "notify")))
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            driver.probe(kind, run)
        assert listening.recv(100) == b"READY=1"  # what Type=notify of the systemd unit waits for
        seen = until(driver, "/metrics", lambda text: 'files_total{query="lake"}' in text)
        assert 'jetspark_query_rows_total{query="lake"} 50.0' in seen
        served = set(re.findall(r"^# TYPE (\w+)", seen, re.MULTILINE))
        of_clients = ("messaging_", "jetspark_client_")
        assert {name for name in shown_and_alerted() if not name.startswith(of_clients)} <= served
        hook = the_container("StatefulSet", "nats")["lifecycle"]["preStop"]["exec"]["command"]
        subprocess.run(list(map(nats[0].here, hook)), check=True, timeout=SECONDS)
        for pod in pods:
            pod.kill()
        seen += until(driver, "/readyz", lambda text: "lake: " in text)
        assert driver.asked("/healthz", "metrics")[0] == 200
        seen += driver.asked("/metrics", "metrics")[1]
        assert 'jetspark_query_server_reachable{query="lake"} 0.0' in seen
        run.send_signal(signal.SIGTERM)  # as for a pod that has to go
        code, out, err = finish(run, SECONDS)
    assert code == 0, err
    assert all("message" in json.loads(line) for line in err.splitlines()), err
    assert not [one for one in PASSWORDS.values() if one in seen + out + err]

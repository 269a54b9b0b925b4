"""`jetspark doctor`."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.conftest import MakeServer
from tests.support.server_lines import LINES

from jetspark import blocking
from jetspark.acl import Permissions, Roles
from jetspark.cli import app
from jetspark.cli.doctor import TESTED
from jetspark.version import __version__

Found = dict[str, list[tuple[str, str]]]
Doctor = Callable[..., tuple[int, Found]]
Guarded = Callable[[Permissions], str]


CHECKS = (
    *("Python", "kernel", "PySpark", "deltalake", "pyiceberg", "Java", "workers", "disk"),
    *("nats-server", "JetStream", "user", "clock"),
)


@pytest.fixture
def doctor(
    run: Run, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Doctor:
    """Exit code, and (state, sentences) of each check. `server`: its URL.

    A script says what the Python of workers would, without its imports.
    """
    python = tmp_path_factory.mktemp("worker") / "python"
    about = [*map(str, sys.version_info[:2]), metadata.version("pyspark"), __version__]
    python.write_text(f"#!/bin/sh\necho {' '.join(about)}\n")
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))

    def found(*arguments: str, server: str | None = None) -> tuple[int, Found]:
        code, out, err = run("doctor", "--json", *arguments, server=server)
        assert err == ""
        checks: Found = {}
        for one in json.loads(out):
            checks.setdefault(one["check"], []).append((one["state"], one["message"]))
        return code, checks

    return found


def states(found: Found) -> dict[str, str]:
    return {check: state for check, [(state, _), *_] in found.items()}


@pytest.fixture
def guarded(make_server: MakeServer) -> Guarded:
    """The URL of a server for a user with these permissions."""

    def make(permissions: Permissions) -> str:
        user = f"{{ user: u, password: u, {permissions.to_config()} }}"
        return make_server(f"authorization: {{ users: [ {user} ] }}").url.replace("//", "//u:u@")

    return make


# -- what is well ----------------------------------------------------------------------------------


@pytest.mark.full
def test_where_all_is_well_each_line_is_ok_and_so_is_the_exit_code(
    run: Run, doctor: Doctor, needs_server: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_server("2.10")
    monkeypatch.delenv("PYSPARK_PYTHON")  # a worker's real Python
    code, found = doctor("--role", "spark-source=ORDERS,RETURNS", "--folder", "no/such/lake")
    assert code == app.SUCCEEDED
    assert list(found) == [*CHECKS, "role"]
    assert set(states(found).values()) == {"ok"}
    assert len(found["disk"]) == 2
    code, out, _ = run("doctor")
    assert code == app.SUCCEEDED
    assert [line.split()[:2] for line in out.splitlines()] == [["ok", one] for one in CHECKS]


def test_versions_that_are_called_tested_are_those_of_the_tests() -> None:
    assert TESTED["nats-server"] == tuple(
        tuple(map(int, line.split("."))) for line in (LINES[0], LINES[-1])
    )
    matrix = Path(__file__).parent.parent.parent / "scripts" / "matrix.py"
    [listed] = re.findall(r"^_SPARKS = (.*)$", matrix.read_text("utf-8"), re.MULTILINE)
    needed = (matrix.parent.parent / "pyproject.toml").read_text("utf-8")
    assert '"deltalake>=1.6.4,<2"' in needed
    assert '"pyiceberg>=0.12,<0.13"' in needed
    sparks = re.findall(r"(\d+)\.(\d+)", listed)
    assert TESTED["PySpark"] == tuple(tuple(map(int, one)) for one in (sparks[0], sparks[-1]))


# -- this machine ----------------------------------------------------------------------------------


def test_a_version_that_is_too_new_is_a_warning_and_one_too_old_a_problem(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TESTED, "nats-server", ((1, 0), (2, 8)))
    monkeypatch.setitem(TESTED, "PySpark", ((5, 0), (5, 2)))
    code, found = doctor()
    assert code == app.FAILED
    [(state, said)] = found["nats-server"]
    assert (state, said.partition(" It ")[2]) == ("warning", "is tested with 1.0 to 2.8.")
    [(state, said)] = found["PySpark"]
    assert (state, said.partition(" It ")[2]) == ("problem", "is tested with 5.0 to 5.2.")


def test_without_spark_its_java_and_workers_are_not_asked_for(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "distributions", list)
    _, found = doctor()
    assert states(found)["PySpark"] == "warning"
    assert not {"Java", "workers"} & set(found)


@pytest.mark.parametrize("says", ["echo 2 7 1 0.1", "echo no such module >&2; exit 1", None])
def test_a_worker_with_other_versions_or_none_is_a_problem(
    says: str | None, doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    if says is not None:
        python.write_text(f"#!/bin/sh\n{says}\n")
        python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, found = doctor()
    assert code == app.FAILED
    [(state, said)] = found["workers"]
    assert state == "problem"
    assert str(python) in said
    expected = {"echo 2 7 1 0.1": "says: 2 7 1 0.1. This one: 3 ", None: "No such file"}
    assert expected.get(says, "no such module") in said
    assert states(found)["Java"] == "problem"


def test_a_disk_that_is_nearly_full_or_read_only_is_told(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    free = {tmp_path: 1 << 20, tmp_path.parent: 1 << 30}
    monkeypatch.setattr(shutil, "disk_usage", lambda at: usage(0, 0, free.get(Path(at), 1 << 40)))
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda at, mode: Path(at) != Path("/proc") and allowed(at, mode)
    )
    places = [str(tmp_path / "lake"), str(tmp_path.parent), "/proc"]
    code, found = doctor(*(word for place in places for word in ("--folder", place)))
    assert code == app.FAILED
    assert [state for state, _ in found["disk"]] == ["ok", "warning", "ok", "problem"]


# -- the servers -----------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_a_problem_and_the_rest_is_looked_at(doctor: Doctor) -> None:
    code, found = doctor(server="nats://127.0.0.1:1")
    assert code == app.FAILED
    assert list(found) == [*CHECKS[:8], "server"]
    assert states(found)["server"] == "problem"
    assert found["server"][0][1].endswith("or name yours with --server.")


def test_a_server_without_jetstream_is_told_how_to_have_it(
    doctor: Doctor, make_server: MakeServer
) -> None:
    code, found = doctor(server=make_server(jetstream=False).url)
    assert code == app.FAILED
    [(state, said)] = found["JetStream"]
    assert state == "problem"
    assert "`jetstream {}`" in said


def test_a_role_that_the_user_lacks_is_told_with_what_it_lacks(
    doctor: Doctor, guarded: Guarded, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.10")
    allowed = Roles().pull_reader("S", "c") | Roles().doctor()
    code, found = doctor(
        *("--role", "pull-reader=S --consumer c", "--role", "pull-reader=S --consumer d"),
        *("--role", 'service=sums --subject "sums.>"'),
        *("--role", "pull-reader=S --consumer c --responses"),
        server=guarded(allowed),
    )
    assert code == app.FAILED
    assert found["JetStream"][0][0] == found["user"][0][0] == "ok"
    right, other, service, answering = found["role"]
    assert right[0] == "ok"
    assert other[0] == service[0] == "problem"
    assert "may not publish to $JS.API.CONSUMER.INFO.S.d, publish to" in other[1]
    assert " (4 in all); `jetspark acl pull-reader=S --consumer d` prints" in other[1]
    assert "subscribe to $SRV.PING" in service[1]
    assert "may not answer (allow_responses) (1 in all); " in answering[1]


def test_what_is_denied_lacks_even_where_it_is_allowed(
    doctor: Doctor, make_server: MakeServer, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")  # older ones do not tell the group
    user = """{ user: u, password: u, permissions: {
        publish: { deny: "s.secret" }, subscribe: { allow: ["_INBOX.>", "calc.x q"] } } }"""
    url = make_server(f"authorization: {{ users: [ {user} ] }}").url.replace("//", "//u:u@")
    texts = ["publisher --subject s.*", "publisher --subject t.*"]
    texts += [f"push-reader=S --consumer c --deliver-subject calc.x{more}" for more in
              (" --deliver-group q", "")]  # fmt: skip
    _, found = doctor(*(word for text in texts for word in ("--role", text)), server=url)
    assert [state for state, _ in found["role"]] == ["problem", "ok", "ok", "problem"]
    assert "may not publish to s.* (1" in found["role"][0][1]
    assert "may not subscribe to calc.x (1" in found["role"][3][1]


def test_where_the_server_does_not_tell_of_the_user_a_warning_says_how_it_would(
    doctor: Doctor, guarded: Guarded
) -> None:
    code, found = doctor("--role", "publisher --subject s", server=guarded(Roles().publisher("s")))
    assert code == app.SUCCEEDED
    [(state, said)] = found["user"]
    assert state == "warning"
    assert "`jetspark acl doctor` prints what allows it." in said
    assert "role" not in found


@pytest.mark.parametrize(("ahead", "state"), [(90, "warning"), (-90, "warning"), (0, "ok")])
def test_clocks_that_differ_are_told(
    ahead: int,
    state: str,
    doctor: Doctor,
    monkeypatch: pytest.MonkeyPatch,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.10")
    now = time.time_ns
    monkeypatch.setattr("jetspark.cli.doctor.time.time_ns", lambda: now() + ahead * 10**9)
    _, found = doctor()
    [(told, said)] = found["clock"]
    assert told == state
    assert abs(float(said.split()[0]) - ahead) < 5


@pytest.mark.parametrize(
    ("response", "state"), [("", "problem"), (", response_type: stream", "ok")]
)
def test_an_import_that_gives_one_answer_to_a_request_is_a_problem(
    doctor: Doctor,
    make_server: MakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    needs_server: Callable[[str], None],
    response: str,
    state: str,
) -> None:
    needs_server("2.11")
    server = make_server(
        f"""accounts {{
        HUB {{ jetstream: enabled, users: [{{user: hub, password: p}}],
              exports: [{{service: "$JS.API.>"{response}}}] }}
        SHOP {{ users: [{{user: shop, password: p}}],
               imports: [{{service: {{account: HUB, subject: "$JS.API.>"}}, to: "hub.api.>"}}] }}
        }}"""
    )
    with blocking.connect(server.url, user="hub", password="p") as nc:
        nc.jetstream().create_bucket("B").put("key", b"value")
    context = tmp_path / "nats" / "context" / "shop.json"
    context.parent.mkdir(parents=True)
    fields = {"url": server.url, "user": "shop", "password": "p", "jetstream_api_prefix": "hub.api"}
    context.write_text(json.dumps(fields))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _, found = doctor("--context", "shop", server="")
    ((seen, said),) = found["imports"]
    assert seen == state
    assert ("response_type: stream" in said) is (state == "problem")

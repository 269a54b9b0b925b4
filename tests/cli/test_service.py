"""`jetspark service`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from jetspark import blocking
from jetspark.cli import app
from jetspark.errors import ServiceError

if TYPE_CHECKING:
    from jetspark.blocking.services import Request, Service
    from jetspark.server import NatsServer

Capture = pytest.CaptureFixture[str]


def answer(request: Request) -> None:
    if request.data == b"fail":
        raise ServiceError(404, "no such order")
    request.respond(b"got " + request.data, {"k": "v"})


@pytest.fixture
def service(shared_server: NatsServer, unique: Callable[[str], str]) -> Iterator[Service]:
    name = unique("orders")
    with (
        blocking.connect(shared_server.url) as nc,
        nc.add_service(name, "1.2.0", description="Takes orders", metadata={"a": "b"}) as service,
    ):
        service.add_endpoint("total", answer, subject=f"{name}.total", metadata={"c": "d"})
        service.add_endpoint("all", answer, subject=f"{name}.>", queue_group="")
        yield service


def test_ls_is_a_table_and_with_json_an_array(
    shared_server: NatsServer, service: Service, capsys: Capture
) -> None:
    arguments = ["service", "ls", "--server", shared_server.url]
    assert app.run(arguments) == app.DONE
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["service", "version", "instance", "endpoints"]
    assert [service.name, "1.2.0", service.id, "2"] in [row.split() for row in rows]
    assert app.run([*arguments, "--json"]) == app.DONE
    documents = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    assert documents[service.id]["description"] == "Takes orders"
    assert app.run([*arguments, "--count", "-1"]) == app.FAILED
    assert "--count" in capsys.readouterr().err


def test_info_is_for_people_and_with_json_for_programs(
    shared_server: NatsServer, service: Service, capsys: Capture
) -> None:
    arguments = ["service", "info", service.name, "--server", shared_server.url]
    assert app.run(arguments) == app.DONE
    shown = capsys.readouterr().out
    assert f"instance     {service.id}\n" in shown
    assert "description  Takes orders\n" in shown
    assert "metadata     a=b\n" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["total", f"{service.name}.total", "q", "c=d"] in rows
    assert ["all", f"{service.name}.>", "none"] in rows
    assert app.run([*arguments[:3], service.id, *arguments[3:], "--json"]) == app.DONE
    (document,) = json.loads(capsys.readouterr().out)
    assert document["endpoints"][1]["queue_group"] == ""


def test_stats_show_requests_errors_and_times(
    shared_server: NatsServer, service: Service, capsys: Capture
) -> None:
    with blocking.connect(shared_server.url) as nc, pytest.raises(ServiceError):
        nc.services().request(f"{service.name}.x", b"fail")
    arguments = ["service", "stats", service.name, "--server", shared_server.url]
    assert app.run(arguments) == app.DONE
    _, total, every = capsys.readouterr().out.splitlines()
    assert re.search(r"total +0 +0 +0 µs +0 µs +–$", total)
    assert re.search(r"all +1 +1 +[\d.]+ [mµ]?s +[\d.]+ [mµ]?s +404:no such order$", every)
    assert app.run([*arguments, "--json"]) == app.DONE
    (document,) = json.loads(capsys.readouterr().out)
    assert [one["num_errors"] for one in document["endpoints"]] == [0, 1]
    assert app.run(["service", "stats", "--server", shared_server.url]) == app.DONE
    assert service.id in capsys.readouterr().out


def test_request_shows_the_answer_and_fails_with_the_error(
    shared_server: NatsServer, service: Service, capsys: Capture
) -> None:
    arguments = ["service", "request", f"{service.name}.x", "--server", shared_server.url]
    assert app.run([*arguments, "hi"]) == app.DONE
    assert capsys.readouterr().out.splitlines()[1:] == ["k: v", "got hi"]
    assert app.run([*arguments, "hi", "--json"]) == app.DONE
    document = json.loads(capsys.readouterr().out)
    assert (document["data"], document["headers"]) == ("got hi", {"k": ["v"]})
    assert app.run([*arguments, "fail"]) == app.FAILED
    assert "Service error 404: no such order" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["info", "stats"])
def test_misspelt_service_or_instance_is_told_with_the_one_meant(
    shared_server: NatsServer, service: Service, capsys: Capture, command: str
) -> None:
    arguments = ["service", command, "--server", shared_server.url]
    assert app.run([*arguments, f"{service.name}x"]) == app.FAILED
    said = capsys.readouterr().err.replace("\n", " ")
    assert f'Service "{service.name}x" not found' in said
    assert f'(did you mean "{service.name}"?)' in said
    assert app.run([*arguments, service.name, f"{service.id}x"]) == app.FAILED
    said = capsys.readouterr().err.replace("\n", " ")
    assert f'(did you mean "{service.id}"?)' in said
    assert app.run([*arguments, "a b"]) == app.FAILED
    assert "Bad service name" in capsys.readouterr().err


def test_nobody_is_an_empty_table(make_server: Callable[..., NatsServer], capsys: Capture) -> None:
    server = make_server()
    for command, head in (("ls", "service"), ("stats", "service")):
        assert app.run(["service", command, "--server", server.url]) == app.DONE
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(head)
        assert app.run(["service", command, "--server", server.url, "--json"]) == app.DONE
        assert json.loads(capsys.readouterr().out) == []

"""`jetspark service`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.cli.conftest import Run

from jetspark import blocking
from jetspark.blocking.services import Request, Service
from jetspark.cli import app
from jetspark.errors import ServiceError
from jetspark.server import NatsServer


def answer(request: Request) -> None:
    if request.data == b"fail":
        raise ServiceError(404, "no such order")
    request.respond(b"got " + request.data, {"k": "v"})


@pytest.fixture
def service(url: str, unique: Callable[[str], str]) -> Iterator[Service]:
    name = unique("orders")
    with (
        blocking.connect(url) as nc,
        nc.add_service(name, "1.2.0", description="Takes orders", metadata={"a": "b"}) as service,
    ):
        service.add_endpoint("total", answer, subject=f"{name}.total", metadata={"c": "d"})
        service.add_endpoint("all", answer, subject=f"{name}.>", queue_group="")
        yield service


def test_ls_is_a_table_and_with_json_an_array(run: Run, service: Service) -> None:
    head, *rows = run("service", "ls")[1].splitlines()
    assert head.split() == ["service", "version", "instance", "endpoints"]
    assert [service.name, "1.2.0", service.id, "2"] in [row.split() for row in rows]
    documents = {one["id"]: one for one in json.loads(run("service", "ls", "--json")[1])}
    assert documents[service.id]["description"] == "Takes orders"
    code, _, err = run("service", "ls", "--count", "-1")
    assert (code, err) == (app.FAILED, "--count cannot be negative.\n")


def test_info_is_for_people_and_with_json_for_programs(run: Run, service: Service) -> None:
    _, shown, _ = run("service", "info", service.name)
    assert f"instance     {service.id}\n" in shown
    assert "description  Takes orders\n" in shown
    assert "metadata     a=b\n" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["total", f"{service.name}.total", "q", "c=d"] in rows
    assert ["all", f"{service.name}.>", "none"] in rows
    (document,) = json.loads(run("service", "info", service.name, service.id, "--json")[1])
    assert document["endpoints"][1]["queue_group"] == ""


def test_stats_show_requests_errors_and_times(url: str, run: Run, service: Service) -> None:
    with blocking.connect(url) as nc, pytest.raises(ServiceError):
        nc.services().request(f"{service.name}.x", b"fail")
    _, total, every = run("service", "stats", service.name)[1].splitlines()
    assert re.search(r"total +0 +0 +0 µs +0 µs +–$", total)
    assert re.search(r"all +1 +1 +[\d.]+ [mµ]?s +[\d.]+ [mµ]?s +404:no such order$", every)
    (document,) = json.loads(run("service", "stats", service.name, "--json")[1])
    assert [one["num_errors"] for one in document["endpoints"]] == [0, 1]
    assert service.id in run("service", "stats")[1]


def test_request_shows_the_answer_and_fails_with_the_error(run: Run, service: Service) -> None:
    request = ("service", "request", f"{service.name}.x")
    assert run(*request, "hi")[1].splitlines()[1:] == ["k: v", "got hi"]
    document = json.loads(run(*request, "hi", "--json")[1])
    assert (document["data"], document["headers"]) == ("got hi", {"k": ["v"]})
    code, _, err = run(*request, "fail")
    assert (code, "Service error 404: no such order" in err) == (app.FAILED, True)


@pytest.mark.parametrize("command", ["info", "stats"])
def test_misspelt_service_or_instance_is_told_with_the_one_meant(
    run: Run, service: Service, command: str
) -> None:
    for wrong, sentence, meant in (
        ([f"{service.name}x"], f'Service "{service.name}x" not found', service.name),
        ([service.name, f"{service.id}x"], f'Instance "{service.id}x" of', service.id),
    ):
        code, _, err = run("service", command, *wrong)
        assert (code, sentence in err) == (app.FAILED, True)
        assert f'(did you mean "{meant}"?)' in err
    code, _, err = run("service", command, "a b")
    assert (code, "Bad service name" in err) == (app.FAILED, True)


def answering(answer: bytes, message: blocking.Message) -> None:
    message.respond(answer)


def test_a_service_whose_answer_cannot_be_read_is_not_told_to_be_missing(
    url: str, run: Run, service: Service
) -> None:
    with blocking.connect(url) as nc:
        name = f"{service.name}_2"
        ping = {"name": name, "id": "x", "version": "1.0.0", "metadata": {}}
        answers = {
            "PING": json.dumps(ping | {"type": "io.nats.micro.v1.ping_response"}),
            "STATS": '{"endpoints": 5}',
            "INFO": "[]",
        }
        for verb, answer in answers.items():
            for subject in (f"$SRV.{verb}", f"$SRV.{verb}.{name}"):
                nc.subscribe(subject, callback=partial(answering, answer.encode()))
        nc.flush()
        for command in ("stats", "info"):
            code, _, err = run("service", command, name)
            assert code == app.FAILED
            assert "did you mean" not in err
            assert f'Service "{name}" is on ' in err
            assert "but what it says cannot be read" in err


def test_nobody_is_an_empty_table(nats_server: NatsServer, run: Run) -> None:
    for command in ("ls", "stats"):
        code, out, _ = run("service", command, server=nats_server.url)
        assert (code, len(out.splitlines())) == (app.SUCCEEDED, 1)
        assert json.loads(run("service", command, "--json", server=nats_server.url)[1]) == []

"""Services without async: handlers in threads, and the same answers, errors and ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.conftest import Unique

import jetspark.errors as errors
from jetspark.blocking import Client, connect
from jetspark.blocking.services import Request
from jetspark.server import NatsServer


@pytest.fixture
def other(shared_server: NatsServer) -> Iterator[Client]:
    with connect(shared_server.url) as client:
        yield client


def echo(request: Request) -> None:
    request.respond(request.data)


def test_endpoints_groups_and_decorators_answer(nc: Client, other: Client, unique: Unique) -> None:
    name = unique("svc")
    with nc.add_service(name, "1.0.0", stats_handler=lambda stats: stats.name) as service:
        group = service.add_group(name)
        group.add_endpoint("echo", echo)

        @group.add_group("deep.*").endpoint(metadata={"a": "b"})
        def add(request: Request) -> None:
            request.respond_json(sum(request.json(list[int])))

        @group.endpoint()
        def quick(request: Request) -> None:
            request.respond_nowait(request.subject.encode())

        nc.flush()
        services = other.services()
        assert other.request(f"{name}.echo", b"x").data == b"x"
        assert services.request_json(f"{name}.deep.1.add", [1, 2, 3], type=int) == 6
        assert services.request(f"{name}.quick").data == f"{name}.quick".encode()
        with pytest.raises(errors.ServiceError, match="400"):
            services.request(f"{name}.deep.1.add", b"[")
        assert [one.id for one in services.ping(name)] == [service.id]
        assert services.info(name, service.id).all() == [service.info()]
        (found,) = services.stats(name, max_msgs=1).all()
        assert found == service.stats()
        assert [one.data for one in found.endpoints] == ["echo", "add", "quick"]
        assert [one.num_requests for one in found.endpoints] == [1, 2, 1]
        service.reset()
        assert service.stats().endpoints[1].num_requests == 0
    service.wait_stopped()
    service.stop()
    assert not service.active
    assert services.ping(name).all() == []


def test_what_handlers_raise_becomes_an_answer_and_is_reported(
    shared_server: NatsServer, other: Client, unique: Unique
) -> None:
    name = unique("svc")
    reported: list[errors.JetsparkError] = []
    told = threading.Semaphore(0)

    def report(error: errors.JetsparkError) -> None:
        reported.append(error)
        told.release()

    def breaks(request: Request) -> Any:
        match request.data:
            case b"error":
                request.respond_error(404, "gone", b"body")
            case b"raise":
                raise errors.ServiceError(409, "twice")
            case b"exit":
                raise SystemExit(3)
            case b"return":
                return b"x"
        return None

    with (
        connect(shared_server.url, error_callback=report) as nc,
        nc.add_service(name, "1.0.0") as service,
    ):
        service.add_endpoint("e", breaks, subject=name)
        for data, code in ((b"error", 404), (b"raise", 409), (b"exit", 500), (b"return", 500)):
            with pytest.raises(errors.ServiceError) as raised:
                other.services().request(name, data)
            assert raised.value.code == code
        assert told.acquire(timeout=20)
        assert told.acquire(timeout=20)
        assert [type(error.__cause__) for error in reported] == [SystemExit, errors.ConfigError]
        (stats,) = service.stats().endpoints
        assert (stats.num_requests, stats.num_errors) == (4, 4)


def test_concurrency_is_so_many_threads(nc: Client, other: Client, unique: Unique) -> None:
    name = unique("svc")
    all_there = threading.Barrier(4, timeout=20)

    def meet(request: Request) -> None:
        all_there.wait()
        request.respond(b"%d" % threading.get_ident())

    with nc.add_service(name, "1.0.0") as service, ThreadPoolExecutor(12) as pool:
        service.add_endpoint("e", meet, subject=name, concurrency=4)
        replies = [pool.submit(other.request, name, timeout=30) for _ in range(12)]
        assert len({reply.result().data for reply in replies}) == 4


def test_statistics_of_many_threads_add_up(nc: Client, other: Client, unique: Unique) -> None:
    name = unique("svc")
    with nc.add_service(name, "1.0.0") as service, ThreadPoolExecutor(8) as pool:
        service.add_endpoint("e", echo, subject=name, concurrency=8)
        replies = [pool.submit(other.request, name, b"%d" % n, timeout=30) for n in range(2000)]
        assert [reply.result().data for reply in replies] == [b"%d" % n for n in range(2000)]
        assert service.stats().endpoints[0].num_requests == 2000


def test_handler_may_use_client_and_stop_service(nc: Client, other: Client, unique: Unique) -> None:
    name = unique("svc")
    service = nc.add_service(name, "1.0.0")
    service.add_endpoint("inner", echo, subject=f"{name}.inner")

    def outer(request: Request) -> None:
        service.stop()
        request.respond(b"stopping")

    def asks(request: Request) -> None:
        request.respond(nc.request(f"{name}.inner", request.data).data)

    service.add_endpoint("asks", asks, subject=f"{name}.asks")
    service.add_endpoint("outer", outer, subject=f"{name}.outer")
    assert other.request(f"{name}.asks", b"1").data == b"1"
    assert other.request(f"{name}.outer").data == b"stopping"
    service.wait_stopped()
    with pytest.raises(errors.NoRespondersError):
        other.request(f"{name}.outer")


def test_stop_waits_for_handlers_then_answers(nc: Client, other: Client, unique: Unique) -> None:
    name = unique("svc")
    begun, gate = threading.Barrier(4, timeout=20), threading.Event()

    def hang(request: Request) -> None:
        begun.wait()
        gate.wait(30)
        request.respond(b"late")

    service = nc.add_service(name, "1.0.0")
    service.add_endpoint("e", hang, subject=name, concurrency=3)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(other.services().request, name, timeout=30) for _ in range(3)]
        begun.wait()
        with pytest.raises(errors.RequestTimeoutError, match="errors 503"):
            service.stop(0.2)
        for reply in asked:
            with pytest.raises(errors.ServiceError, match="stopped while") as raised:
                reply.result()
            assert raised.value.code == 500
        gate.set()


def test_close_lets_handlers_end(shared_server: NatsServer, other: Client, unique: Unique) -> None:
    name = unique("svc")
    begun, gate, refused = threading.Event(), threading.Event(), threading.Event()

    def hang(request: Request) -> None:
        begun.set()
        gate.wait(30)
        try:
            request.respond(b"late")
        except errors.ConnectionClosedError:
            refused.set()

    with ThreadPoolExecutor(1) as pool:
        with connect(shared_server.url) as nc:
            service = nc.add_service(name, "1.0.0")
            service.add_endpoint("e", hang, subject=name)
            asked = pool.submit(other.request, name, timeout=1)
            assert begun.wait(20)
        assert not service.active
        service.stop()
        gate.set()
        assert refused.wait(20)
        with pytest.raises(errors.RequestTimeoutError):
            asked.result()

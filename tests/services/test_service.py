"""A service on a real server: endpoints, groups, queue groups, answers, statistics."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.conftest import MakeServer, Reported, Unique
from tests.services.conftest import Held, Start, ask, echo

from jetspark.errors import (
    BadNameError,
    BadQueueError,
    BadSubjectError,
    ConfigError,
    JetsparkError,
    NoRespondersError,
    PermissionsError,
    ServiceError,
)
from jetspark.full_client import Client, connect
from jetspark.services import Request, Services


class Sum(msgspec.Struct):
    a: int
    b: int


@dataclass
class Total:
    total: int


async def test_endpoints_and_groups_as_calls_and_as_decorators(
    start: Start, nc: Client, other: Client
) -> None:
    service = await start()
    one = service.add_group(service.name)
    two = one.add_group("two.*", queue_group="g2")
    await one.add_endpoint("call", echo)
    await two.add_endpoint("call", echo, subject="deep.>", queue_group="own")

    @one.endpoint()
    async def plain_name(request: Request) -> None:
        await request.respond(b"decorated")

    @two.endpoint("named", metadata={"k": "v"})
    def a_function(request: Request) -> None:
        request.respond_nowait(request.subject.encode())

    await nc.flush()
    assert callable(plain_name)
    assert callable(a_function)
    reply = await other.request(f"{service.name}.call", b"1", headers={"a": "b"})
    assert reply.data == b"1"
    assert reply.headers is not None
    assert reply.headers["a"] == "b"
    assert (await other.request(f"{service.name}.plain_name")).data == b"decorated"
    subject = f"{service.name}.two.x.named"
    assert (await other.request(subject)).data == subject.encode()
    assert (await other.request(f"{service.name}.two.y.deep.z.z", b"2")).data == b"2"
    found = [(e.name, e.subject, e.queue_group, e.metadata) for e in service.info().endpoints]
    assert found == [
        ("call", f"{service.name}.call", "q", {}),
        ("call", f"{service.name}.two.*.deep.>", "own", {}),
        ("plain_name", f"{service.name}.plain_name", "q", {}),
        ("named", f"{service.name}.two.*.named", "g2", {"k": "v"}),
    ]
    assert (two.prefix, two.queue_group) == (f"{service.name}.two.*", "g2")


@pytest.mark.parametrize(
    ("groups", "answers", "shown"),
    [
        ((None, None, None), 1, "q"),
        (("s", None, None), 1, "s"),
        (("s", "", None), 2, ""),
        (("s", "", "e"), 1, "e"),
        (("", None, None), 2, ""),
        (("", "g", None), 1, "g"),
        ((None, None, ""), 2, ""),
    ],
)
async def test_queue_group_of_endpoint_group_and_service(
    start: Start, other: Client, unique: Unique, groups: Any, answers: int, shown: str
) -> None:
    name = unique("svc")
    of_service, of_group, of_endpoint = groups
    for _ in range(2):
        options = {} if of_service is None else {"queue_group": of_service}
        service = await start(name=name, **options)
        group = service.add_group(name, queue_group=of_group)
        await group.add_endpoint("echo", echo, queue_group=of_endpoint)
        assert service.info().endpoints[0].queue_group == shown
    replies = await other.request_many(f"{name}.echo", stall=0.2, timeout=20).all()
    assert len(replies) == answers


async def test_request_has_json_of_a_type_and_so_has_the_answer(
    start: Start, nc: Client, services: Services
) -> None:
    service = await start()
    group = service.add_group(service.name)

    @group.endpoint()
    async def add(request: Request) -> None:
        numbers = request.json(Sum)
        await request.respond_json(Total(numbers.a + numbers.b))

    @group.endpoint()
    async def anything(request: Request) -> None:
        await request.respond_json(request.json())

    @group.endpoint()
    async def infinite(request: Request) -> None:
        await request.respond_json(float("inf"))

    await nc.flush()
    subject = f"{service.name}.add"
    assert await services.request_json(subject, Sum(1, 2), type=Total) == Total(3)
    assert await services.request_json(subject, {"a": 1, "b": 2}) == {"total": 3}
    assert await services.request_json(f"{service.name}.anything", [1, None]) == [1, None]
    with pytest.raises(ServiceError, match=r"Expected `int`.* at `\$\.a`") as raised:
        await services.request_json(subject, {"a": "x", "b": 2})
    assert raised.value.code == 400
    with pytest.raises(ServiceError, match="400") as raised:
        await services.request(subject, b"{")
    with pytest.raises(ServiceError, match="400"):
        await services.request(subject, b'"' + b"\xff" + b'"')
    with pytest.raises(JetsparkError, match="Unreadable answer"):
        await services.request_json(f"{service.name}.anything", [1], type=Total)
    with pytest.raises(ServiceError, match="500: ConfigError: inf"):
        await services.request(f"{service.name}.infinite")


async def test_error_answers_and_exceptions_of_handlers_are_counted_and_reported(
    nc: Client, start: Start, services: Services, reported: Reported
) -> None:
    service = await start()
    group = service.add_group(service.name)

    @group.endpoint()
    async def answers(request: Request) -> None:
        await request.respond_error(404, "no such\norder", b"body", {"Trace": "1"})

    @group.endpoint()
    async def raises(request: Request) -> None:
        raise ServiceError(409, "twice", b"data")

    @group.endpoint()
    def breaks(request: Request) -> None:
        raise ValueError("a\nb")

    @group.endpoint()
    async def cancels(request: Request) -> None:
        raise asyncio.CancelledError

    @group.endpoint()
    def returns(request: Request) -> Any:
        return b"answer"

    @group.endpoint()
    async def returns_later(request: Request) -> Any:
        return b"answer"

    await nc.flush()
    wanted = {
        "answers": (404, "no such order", b"body"),
        "raises": (409, "twice", b"data"),
        "breaks": (500, "ValueError: a b", b""),
        "cancels": (500, "CancelledError", b""),
    }
    for name, (code, description, data) in wanted.items():
        for _ in range(2):
            with pytest.raises(ServiceError) as raised:
                await services.request(f"{service.name}.{name}")
            error = raised.value
            assert (error.code, error.description, error.data) == (code, description, data)
    for name in ("returns", "returns_later"):
        with pytest.raises(ServiceError, match="returned b'answer'"):
            await services.request(f"{service.name}.{name}")
    stats = {one.name: one for one in service.stats().endpoints}
    for name, (code, description, _) in wanted.items():
        assert (stats[name].num_requests, stats[name].num_errors) == (2, 2)
        assert stats[name].last_error == f"{code}:{description}"
    causes = [type(error.__cause__) for error in reported]
    assert causes == [ValueError] * 2 + [asyncio.CancelledError] * 2 + [ConfigError] * 2
    assert str(reported[0]).startswith(
        f"The handler of endpoint 'breaks' of service {service.name!r}"
    )


async def test_a_cancelled_handler_is_replaced(start: Start, services: Services) -> None:
    service = await start()

    async def cancels_itself(request: Request) -> None:
        task = asyncio.current_task()
        assert task is not None
        if request.data == b"cancel":
            task.cancel()
        await asyncio.sleep(0)
        await request.respond(b"fine")

    await service.add_endpoint("e", cancels_itself, subject=service.name)
    for _ in range(2):
        with pytest.raises(ServiceError, match="CancelledError"):
            await services.request(service.name, b"cancel")
        assert (await services.request(service.name)).data == b"fine"


async def test_timeout_inside_a_handler_is_its_own(start: Start, services: Services) -> None:
    service = await start()

    async def slow(request: Request) -> None:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            await request.respond(b"too late")

    await service.add_endpoint("e", slow, subject=service.name, concurrency=2)
    replies = await asyncio.gather(*(services.request(service.name) for _ in range(6)))
    assert [reply.data for reply in replies] == [b"too late"] * 6


async def test_concurrency_limits_how_many_are_handled_at_once(start: Start, other: Client) -> None:
    service = await start()
    running = most = 0
    gate, full = asyncio.Event(), asyncio.Event()

    async def handle(request: Request) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await gate.wait()
        running -= 1
        await request.respond()

    await service.add_endpoint("e", handle, subject=service.name, concurrency=3)
    asked = ask(other, service.name, 10)
    await asyncio.wait_for(full.wait(), 20)
    await other.flush()
    gate.set()
    await asyncio.gather(*asked)
    assert most == 3


async def test_requests_are_handled_in_order_by_default(start: Start, other: Client) -> None:
    service = await start()
    handled: list[bytes] = []

    async def handle(request: Request) -> None:
        await asyncio.sleep(0)
        handled.append(request.data)
        await request.respond()

    await service.add_endpoint("e", handle, subject=service.name)
    numbers = [b"%d" % number for number in range(50)]
    await asyncio.gather(*(other.request(service.name, number) for number in numbers))
    assert handled == numbers


async def test_requests_over_max_pending_get_error_503(start: Start, services: Services) -> None:
    service, held = await start(), Held()
    await service.add_endpoint("e", held, subject=service.name, max_pending=2)
    asked = await held.asked(services, service.name)
    asked += await held.asked(services, service.name, 9)
    for _, refused in zip(range(7), asyncio.as_completed(asked), strict=False):
        with pytest.raises(ServiceError, match="503: 2 requests wait"):
            await refused
    held.gate.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(result, ServiceError) for result in results) == 7
    (stats,) = service.stats().endpoints
    assert (stats.num_requests, stats.num_errors) == (10, 7)


async def test_statistics_count_time_and_have_the_users_data(
    start: Start, other: Client, services: Services
) -> None:
    seen: list[str] = []

    def data(endpoint: Any) -> dict[str, int]:
        seen.append(endpoint.name)
        return {"requests": endpoint.num_requests}

    before = datetime.now(UTC)
    service = await start(stats_handler=data, metadata={"a": "b"}, description="Says hello")

    async def wait(request: Request) -> None:
        await asyncio.sleep(0.02)
        await request.respond()

    await service.add_endpoint("e", wait, subject=service.name)
    for _ in range(3):
        await other.request(service.name)
    (found,) = await services.stats(service.name, service.id).all()
    assert found == service.stats()
    assert found.started is not None
    assert before <= found.started <= datetime.now(UTC)
    (stats,) = found.endpoints
    assert (stats.num_requests, stats.num_errors, stats.last_error) == (3, 0, "")
    assert stats.processing_time is not None
    assert timedelta(seconds=0.06) <= stats.processing_time < timedelta(seconds=20)
    assert stats.average_processing_time is not None
    assert abs(stats.average_processing_time * 3 - stats.processing_time) < timedelta(seconds=1e-5)
    assert stats.data == {"requests": 3}
    assert seen[0] == "e"
    service.reset()
    again = service.stats()
    assert again.started is not None
    assert again.started > found.started
    (stats,) = again.endpoints
    assert (stats.num_requests, stats.processing_time) == (0, timedelta(0))
    assert stats.average_processing_time == timedelta(0)


@pytest.mark.parametrize("wrong", [lambda endpoint: 1 / 0, lambda endpoint: object()])
async def test_stats_handler_that_fails_is_reported_and_statistics_go_on(
    nc: Client, start: Start, services: Services, wrong: Any
) -> None:
    service = await start(stats_handler=wrong)
    await service.add_endpoint("e", echo, subject=service.name)
    (found,) = await services.stats(service.name).all()
    assert found.endpoints[0].data is None
    assert "stats_handler" in str(nc.last_error)


async def test_wrong_arguments_are_refused_with_a_sentence(start: Start, nc: Client) -> None:
    async def later(_: object) -> None:
        raise AssertionError

    service = await start()
    for error, said, awaited in (
        (ConfigError, "stats_handler is a plain function, not an", start(stats_handler=later)),
        (BadNameError, "Bad service name 'a b'", nc.add_service("a b", "1.0.0")),
        (ConfigError, "semantic version", nc.add_service("a", "1")),
        (ConfigError, "reserved", nc.add_service("a", "1.0.0", metadata={"_nats.x": "y"})),
        (BadQueueError, None, nc.add_service("a", "1.0.0", queue_group="a b")),
        (BadNameError, "Bad endpoint name", service.add_endpoint("a.b", echo)),
        (BadSubjectError, None, service.add_endpoint("a", echo, subject="a..b")),
        (ConfigError, "at least 1", service.add_endpoint("a", echo, concurrency=0)),
        (ConfigError, "at least 1", service.add_endpoint("a", echo, concurrency=-1)),
        (ConfigError, "max_pending must be", service.add_endpoint("a", echo, max_pending=0)),
        (ConfigError, "max_pending must be", service.add_endpoint("a", echo, max_pending=-1)),
    ):
        with pytest.raises(error, match=said):
            await awaited
    with pytest.raises(BadNameError, match="<lambda>"):
        service.endpoint()(lambda request: None)
    with pytest.raises(ConfigError, match="prefix"):
        service.add_group("a.>")
    with pytest.raises(BadSubjectError):
        nc.services(prefix="a b")
    with pytest.raises(BadNameError, match="instance"):
        nc.services().ping("a", "b c")
    assert service.info().endpoints == []


async def test_second_endpoint_on_a_subject_and_queue_group_is_refused(start: Start) -> None:
    service = await start()
    await service.add_endpoint("a", echo, subject=service.name)
    with pytest.raises(ConfigError, match=r"'a' .* queue group 'q'"):
        await service.add_endpoint("b", echo, subject=service.name)
    await service.add_endpoint("a", echo, subject=f"{service.name}.2")  # names may be the same
    await service.add_endpoint("a", echo, subject=service.name, queue_group="other")
    await service.add_endpoint("a", echo, subject=service.name, queue_group="")
    with pytest.raises(ConfigError, match="already"):
        await service.add_endpoint("a", echo, subject=service.name, queue_group="")


async def test_request_without_reply_subject_is_handled(nc: Client, start: Start) -> None:
    service = await start()
    handled = asyncio.Event()

    async def handle(request: Request) -> None:
        handled.set()
        with pytest.raises(ConfigError, match="asks for no answer"):
            await request.respond(b"x")
        raise ServiceError(400, "nobody hears it")

    await service.add_endpoint("e", handle, subject=service.name)
    await nc.publish(service.name, b"x")
    await asyncio.wait_for(handled.wait(), 20)
    assert service.stats().endpoints[0].last_error == "400:nobody hears it"
    await nc.flush()
    assert nc.last_error is None


async def test_handler_may_answer_often_and_after_its_return(start: Start, other: Client) -> None:
    service = await start()
    later = []

    async def handle(request: Request) -> None:
        for number in range(3):
            await request.respond(b"%d" % number)
        later.append(request)

    await service.add_endpoint("e", handle, subject=service.name)
    seen = []
    async for reply in other.request_many(service.name, max_msgs=4, timeout=20):
        seen.append(reply.data)
        if len(seen) == 3:
            await service.stop()
            await later[0].respond(b"late")
    assert seen == [b"0", b"1", b"2", b"late"]


async def test_answer_that_is_too_large_becomes_an_error(start: Start, services: Services) -> None:
    service = await start()

    async def large(request: Request) -> None:
        await request.respond(bytes(2**20 + 1))

    async def large_error(request: Request) -> None:
        raise ServiceError(418, "large", bytes(2**20 + 1))

    async def wrong_code(request: Request) -> None:
        raise ServiceError("418", "no number")  # type: ignore[arg-type]

    for handler, kind in (
        (large, "MaxPayloadError"),
        (large_error, "MaxPayloadError"),
        (wrong_code, "ConfigError"),
    ):
        subject = f"{service.name}.{handler.__name__}"
        await service.add_endpoint(handler.__name__, handler, subject=subject)
        with pytest.raises(ServiceError, match=f"500: {kind}"):
            await services.request(subject)


async def test_refused_subjects_are_raised_by_the_call_that_asked_for_them(
    make_server: MakeServer,
) -> None:
    server = make_server(
        "accounts: {A: {users: [{user: u, password: p, permissions: {"
        'subscribe: {allow: ["$SRV.>", "_INBOX.>", "fine"]}}},'
        '{user: v, password: p, permissions: {subscribe: {deny: ["$SRV.>"]}}}]}}'
    )
    async with (
        connect(server.url, user="u", password="p") as nc,
        await nc.add_service("s", "1.0.0") as service,
    ):
        with pytest.raises(PermissionsError):
            await service.add_endpoint("bad", echo)
        await service.add_endpoint("fine", echo)
        assert [endpoint.name for endpoint in service.info().endpoints] == ["fine"]
        assert (await nc.request("fine", b"1")).data == b"1"
        with pytest.raises(NoRespondersError):
            await nc.request("bad")
        service.endpoint("bad")(echo)  # nobody waits: the service ends
        async with asyncio.timeout(20):
            with pytest.raises(PermissionsError):
                await service.wait_stopped()
        assert not service.active
        with pytest.raises(NoRespondersError):
            await nc.request("fine")
    async with connect(server.url, user="v", password="p") as nc:
        with pytest.raises(PermissionsError):
            await nc.add_service("s", "1.0.0")


async def test_documents_of_a_service_are_what_it_answers(
    start: Start, other: Client, nc: Client
) -> None:
    service = await start(metadata={"a": "b"}, description="d")
    assert json.loads((await other.request(f"$SRV.PING.{service.name}")).data) == {
        "type": "io.nats.micro.v1.ping_response",
        "name": service.name,
        "id": service.id,
        "version": "1.0.0",
        "metadata": {"a": "b"},
    }
    assert (service.version, service.description) == ("1.0.0", "d")
    assert service.metadata == {"a": "b"}
    with pytest.raises(TypeError):
        service.metadata["a"] = "c"  # type: ignore[index]
    for level in (f".{service.name}", f".{service.name}.{service.id}"):
        for verb in ("PING", "INFO", "STATS"):
            reply = await other.request(f"$SRV.{verb}{level}")
            assert json.loads(reply.data)["id"] == service.id

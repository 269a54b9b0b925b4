"""`jetspark service`: find services (ADR-32), look at them, and call them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from cyclopts import App

from jetspark.cli import console
from jetspark.cli.app import COMMANDS, examples
from jetspark.cli.console import (
    CountOption,
    HeaderOption,
    JsonOption,
    RawOption,
    StdinOption,
    check_form,
    read_headers,
    read_payload,
    show,
)
from jetspark.cli.stream_session import (
    moment,
    not_found,
    show_facts,
    show_json,
    show_table,
    with_client,
)
from jetspark.documents.document import to_wire
from jetspark.errors import ConfigError, JetsparkError
from jetspark.services.discovery import TIMEOUT

if TYPE_CHECKING:
    from jetspark.client.messages import Message
    from jetspark.full_client import Client
    from jetspark.services import EndpointStats, ServiceInfo, ServiceStats

service = App(
    name="service",
    help=COMMANDS["service"].line,
    help_epilogue=examples(
        "jetspark service ls",
        "jetspark service info orders",
        "jetspark service stats orders --json",
        "jetspark service request orders.total '{\"customer\": 17}'",
    ),
)


@service.command(sort_key=0, help_epilogue=examples("jetspark service ls --json"))
def ls(
    *,
    server: str | None = None,
    context: str | None = None,
    timeout: float = TIMEOUT,
    count: CountOption = 0,
    json: JsonOption = False,
) -> None:
    """List the instances of all services.

    Args:
        server: URL of the server, several with commas; it may contain user and password. Without
            it and --context: that of the NATS_… variables, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        timeout: Seconds to wait for answers at most; it ends when no more come.
        count: End after so many answers; 0: all.
        json: One JSON array of what each instance says of itself.
    """
    _check(count)

    async def ask(nc: Client) -> list[ServiceInfo]:
        return await nc.services().info(timeout=timeout, max_msgs=count).all()

    infos = sorted(with_client(server, context, ask), key=lambda info: (info.name, info.id))
    if json:
        show_json([to_wire(info) for info in infos])
        return
    show_table(
        *("service", "version", "instance", "endpoints"),
        rows=((i.name, i.version, i.id, len(i.endpoints)) for i in infos),
    )


@service.command(sort_key=1, help_epilogue=examples("jetspark service info orders"))
def info(
    name: str,
    id: str | None = None,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    timeout: float = TIMEOUT,
    json: JsonOption = False,
) -> None:
    """Show a service and its endpoints, each instance for itself.

    Args:
        name: Name of the service.
        id: Only the instance with this id.
        server: URL of the server, several with commas; it may contain user and password. Without
            it and --context: that of the NATS_… variables, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        timeout: Seconds to wait for answers at most; it ends when no more come.
        json: One JSON array of what each instance says of itself.
    """

    async def ask(nc: Client) -> list[ServiceInfo]:
        found = await nc.services().info(name, id, timeout=timeout).all()
        if not found:
            await _missing(nc, name, id)
        return found

    infos = sorted(with_client(server, context, ask), key=lambda info: info.id)
    if json:
        show_json([to_wire(info) for info in infos])
        return
    for place, found in enumerate(infos):
        if place:
            console.say("")
        show_facts(_facts(found))
        if found.endpoints:
            console.say("")
            show_table(
                *("endpoint", "subject", "queue group", "metadata"),
                rows=(
                    (
                        endpoint.name,
                        endpoint.subject,
                        endpoint.queue_group or "none",
                        _pairs(endpoint.metadata),
                    )
                    for endpoint in found.endpoints
                ),
            )


def _facts(found: ServiceInfo) -> dict[str, object]:
    return {
        "service": found.name,
        "version": found.version,
        "instance": found.id,
        "description": found.description,
        "metadata": _pairs(found.metadata),
    }


def _pairs(metadata: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in metadata.items())


@service.command(sort_key=2, help_epilogue=examples("jetspark service stats orders --json"))
def stats(
    name: str | None = None,
    id: str | None = None,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    timeout: float = TIMEOUT,
    json: JsonOption = False,
) -> None:
    """Show what the endpoints of services have done.

    Args:
        name: Only this service.
        id: Only its instance with this id.
        server: URL of the server, several with commas; it may contain user and password. Without
            it and --context: that of the NATS_… variables, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        timeout: Seconds to wait for answers at most; it ends when no more come.
        json: One JSON array of what each instance says.
    """

    async def ask(nc: Client) -> list[ServiceStats]:
        found = await nc.services().stats(name, id, timeout=timeout).all()
        if not found and name is not None:
            await _missing(nc, name, id)
        return found

    found = sorted(with_client(server, context, ask), key=lambda one: (one.name, one.id))
    if json:
        show_json([to_wire(one) for one in found])
        return
    headings = ("service", "instance", "started", "endpoint")
    counts = ("requests", "errors", "average", "total", "last error")
    rows = (row for one in found for row in _rows(one))
    show_table(*headings, *counts, rows=rows)


def _rows(found: ServiceStats) -> Iterator[tuple[object, ...]]:
    head = found.name, found.id, moment(found.started)
    if not found.endpoints:
        yield (*head, *("–",) * 6)
    for endpoint in found.endpoints:
        yield (*head, endpoint.name, *_counts(endpoint))


def _counts(endpoint: EndpointStats) -> tuple[object, ...]:
    return (
        f"{endpoint.num_requests:,}",
        f"{endpoint.num_errors:,}",
        _duration(endpoint.average_processing_time),
        _duration(endpoint.processing_time),
        endpoint.last_error or "–",
    )


def _duration(span: timedelta | None) -> str:
    """To three digits, in the unit that suits it."""
    seconds = 0.0 if span is None else span.total_seconds()
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            break
    return f"{seconds * factor:.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"


@service.command(sort_key=3, help_epilogue=examples("jetspark service request sums.add '[1, 2]'"))
def request(
    subject: str,
    payload: str = "",
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    header: HeaderOption = None,
    stdin: StdinOption = False,
    timeout: float = TIMEOUT,
    json: JsonOption = False,
    raw: RawOption = False,
) -> None:
    """Send a request to an endpoint and show the answer; an answer that is an error fails.

    Args:
        subject: Subject of the endpoint.
        payload: The payload; empty by default.
        server: URL of the server, several with commas; it may contain user and password. Without
            it and --context: that of the NATS_… variables, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        header: Header as name:value; may be given again, also with the same name.
        stdin: Read the payload from standard input.
        timeout: Seconds to wait.
        json: One line of JSON for the answer.
        raw: The payload alone, as it came.
    """
    check_form(as_json=json, raw=raw)
    headers = read_headers(header)
    data = read_payload(payload, stdin=stdin)

    async def ask(nc: Client) -> Message:
        return await nc.services().request(subject, data, timeout=timeout, headers=headers)

    show(with_client(server, context, ask), as_json=json, raw=raw)


def _check(count: int) -> None:
    if count < 0:
        raise ConfigError("--count cannot be negative.")


async def _missing(nc: Client, name: str, id: str | None) -> NoReturn:
    """Raises JetsparkError: there is no such service, or no such instance of it."""
    known = [one async for one in nc.services().ping()]
    if id is not None and (ids := [one.id for one in known if one.name == name]):
        raise JetsparkError(not_found(f'Instance "{id}" of service "{name}"', nc, id, ids))
    names = {one.name for one in known}
    raise JetsparkError(not_found(f'Service "{name}"', nc, name, names))

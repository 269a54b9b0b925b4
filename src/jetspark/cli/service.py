"""`jetspark service`: finds, shows and calls services (ADR-32)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias

from cyclopts import Parameter

from jetspark.cli import console
from jetspark.cli.app import command, group
from jetspark.cli.content_flags import NO_CONTENT, ContentFlags
from jetspark.cli.flags import JsonLines, JsonOption, RawOption, check_json_or_raw
from jetspark.cli.formatting import format_metadata, format_time
from jetspark.cli.listings import show_infos, show_list, show_table
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags, describe_missing
from jetspark.cli.show_message import show_message
from jetspark.documents.document import to_wire
from jetspark.errors import JetsparkError
from jetspark.services.discovery import TIMEOUT
from jetspark.validation import check_whole

if TYPE_CHECKING:
    from jetspark.client.messages import Message
    from jetspark.full_client import Client
    from jetspark.services import EndpointInfo, ServiceInfo, ServiceStats

WaitOption: TypeAlias = Annotated[
    float, Parameter(help="Maximum seconds to wait for answers; ends earlier when no more arrive.")
]
_COLUMNS: dict[str, Callable[[ServiceInfo], object]] = {
    "service": lambda info: info.name,
    "version": lambda info: info.version,
    "instance": lambda info: info.id,
    "endpoints": lambda info: len(info.endpoints),
}
_ENDPOINTS: dict[str, Callable[[EndpointInfo], object]] = {
    "endpoint": lambda info: info.name,
    "subject": lambda info: info.subject,
    "queue group": lambda info: info.queue_group or "none",
    "metadata": lambda info: format_metadata(info.metadata),
}
_STATS = (
    *("service", "instance", "started", "endpoint"),
    *("requests", "errors", "average", "total", "last error"),
)

service = group(
    "service",
    "jetspark service ls",
    "jetspark service info orders",
    "jetspark service stats orders --json",
    "jetspark service request orders.total '{\"customer\": 17}'",
)


@command(service, "jetspark service ls --json")
def ls(
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    timeout: WaitOption = TIMEOUT,
    count: int = 0,
    json: JsonOption = False,
) -> None:
    """List the instances of all services.

    Args:
        count: End after this many answers; 0: all.
    """
    check_whole("--count", count, 0)

    async def ask(nc: Client) -> list[ServiceInfo]:
        return await nc.services().info(timeout=timeout, max_msgs=count).all()

    infos = sorted(connection.run(ask), key=lambda info: (info.name, info.id))
    show_list(infos, _COLUMNS, as_json=json)


@command(service, "jetspark service info orders")
def info(
    name: str,
    id: str | None = None,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    timeout: WaitOption = TIMEOUT,
    json: JsonOption = False,
) -> None:
    """Show the instances of a service and their endpoints.

    Args:
        name: Name of the service.
        id: Only the instance with this id.
    """

    async def ask(nc: Client) -> list[ServiceInfo]:
        """Ask all instances of the service for their description; raise an error without any."""
        infos = await nc.services().info(name, id, timeout=timeout).all()
        if not infos:
            await _raise_not_found(nc, name, id)
        return infos

    infos = sorted(connection.run(ask), key=lambda info: info.id)
    show_infos(infos, _describe_instance, lambda info: info.endpoints, _ENDPOINTS, as_json=json)


def _describe_instance(info: ServiceInfo) -> dict[str, object]:
    """The facts that `service info` prints of an instance above its endpoints, by label."""
    return {
        "service": info.name,
        "version": info.version,
        "instance": info.id,
        "description": info.description,
        "metadata": format_metadata(info.metadata),
    }


@command(service, "jetspark service stats orders --json")
def stats(
    name: str | None = None,
    id: str | None = None,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    timeout: WaitOption = TIMEOUT,
    json: JsonOption = False,
) -> None:
    """Show how many requests the endpoints of services have answered, and how fast.

    Args:
        name: Only this service.
        id: Only its instance with this id.
    """

    async def ask(nc: Client) -> list[ServiceStats]:
        """Ask instances for their statistics; raise an error if the named service has none."""
        answers = await nc.services().stats(name, id, timeout=timeout).all()
        if not answers and name is not None:
            await _raise_not_found(nc, name, id)
        return answers

    answers = sorted(connection.run(ask), key=lambda answer: (answer.name, answer.id))
    if json:
        console.say_json([to_wire(answer) for answer in answers], indent=True)
    else:
        show_table(*_STATS, rows=(row for answer in answers for row in _stats_rows(answer)))


def _stats_rows(answer: ServiceStats) -> Iterator[tuple[object, ...]]:
    """The rows of `service stats` for an instance: one for each endpoint, or one without any.

    The cells are those of the headings in `_STATS`.
    """
    head = answer.name, answer.id, format_time(answer.started)
    if not answer.endpoints:
        yield (*head, *("–",) * 6)
    for endpoint in answer.endpoints:
        yield (
            *(*head, endpoint.name, f"{endpoint.num_requests:,}", f"{endpoint.num_errors:,}"),
            _format_seconds(endpoint.average_processing_time),
            _format_seconds(endpoint.processing_time),
            endpoint.last_error or "–",
        )


def _format_seconds(span: timedelta | None) -> str:
    """Format a duration with three digits in the largest suitable unit: s, ms or µs."""
    seconds = 0.0 if span is None else span.total_seconds()
    # The largest unit in which the number is at least 1.
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            break
    return f"{seconds * factor:.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"


@command(service, "jetspark service request sums.add '[1, 2]'")
def request(
    subject: str,
    payload: str = "",
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    content: ContentFlags = NO_CONTENT,
    timeout: float = TIMEOUT,
    json: JsonLines = False,
    raw: RawOption = False,
) -> None:
    """Send a request to an endpoint and show the answer; an error answer fails the command.

    Args:
        subject: Subject of the endpoint.
        payload: The payload; empty by default.
        timeout: Seconds to wait.
        raw: Only the payload, unchanged.
    """
    check_json_or_raw(as_json=json, raw=raw)
    headers, data = content.headers(), content.payload(payload)

    async def ask(nc: Client) -> Message:
        return await nc.services().request(subject, data, timeout=timeout, headers=headers)

    show_message(connection.run(ask), as_json=json, raw=raw)


async def _raise_not_found(nc: Client, name: str, id: str | None) -> NoReturn:
    """Raise JetsparkError for a service, or its instance `id`, that does not answer.

    Asks which services there are, and adds the nearest name.
    """
    answers = [answer async for answer in nc.services().ping()]
    if id is not None and (ids := [answer.id for answer in answers if answer.name == name]):
        raise JetsparkError(describe_missing(f'Instance "{id}" of service "{name}"', nc, id, ids))
    names = {answer.name for answer in answers}
    raise JetsparkError(describe_missing(f'Service "{name}"', nc, name, names))

"""Shared by `stream`, `consumer` and `service`: connections, hints for misspelt names, output."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from cyclopts import Parameter
from rich.cells import cell_len
from rich.text import Text

import jetspark
from jetspark.cli import console
from jetspark.cli.signals import StopRequested, run_until_signal
from jetspark.connection.urls import parse_urls
from jetspark.errors import (
    APIError,
    ConfigError,
    ConsumerNotFoundError,
    JetsparkError,
    StreamNotFoundError,
)
from jetspark.subjects import nearest_name
from jetspark.timestamps import NANOSECONDS, datetime_to_ns, format_isotime, parse_isotime
from jetspark.validation import check_whole

if TYPE_CHECKING:
    from jetspark.client.client import Client as CoreClient
    from jetspark.full_client import Client, JetStream
    from jetspark.jetstream.api import Paged

# -------------------------------------------------------------------------------------------------
# The server that a command connects to, and other options that commands share.


_AGE = re.compile(r"-(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def where(server: str | None, context: str | None) -> dict[str, Any]:
    """The connection options; empty for those of the environment. Raises ConfigError for both."""
    if server is not None and context is not None:
        raise ConfigError("Give either --server or --context.")
    if context is not None:
        return {"context": context}
    if server is not None and not server.strip():
        raise ConfigError("--server is empty: write nats://host:4222, or leave it out.")
    return {} if server is None else {"servers": server}


def spark_where(
    server: str | None, context: str | None, further: Iterable[str] = ()
) -> dict[str, str]:
    """The options of Spark's format; a user or token in the URL becomes one of its own.

    Raises ConfigError for both, for URLs with different credentials, and for credentials that the
    `further` options are, too.
    """
    options = where(server, context)
    if "servers" not in options:
        return options
    urls = parse_urls(options["servers"])
    credentials = {(url.user, url.password, url.token) for url in urls}
    if len(credentials) > 1:
        raise ConfigError("All servers need the same user and password, or token.")
    given = zip(("user", "password", "token"), credentials.pop(), strict=True)
    logins = {name: value for name, value in given if value is not None}
    for name in further:
        if name.casefold() in logins:
            raise ConfigError(
                f"Give the {name.casefold()} either in --server or as --option {name}."
            )
    return {"servers": ",".join(map(str, urls))} | logins


def starting(text: str) -> dict[str, str]:
    """Where to begin reading, as an option of Spark's format. Raises ConfigError."""
    bare = text.strip()
    if bare.casefold() in ("earliest", "latest") or bare.isdecimal() or bare.startswith("{"):
        return {"startingOffsets": bare}
    if age := _AGE.fullmatch(bare.casefold()):
        ago = int(float(age[1]) * _UNITS[age[2]] * NANOSECONDS)
        return _from(time.time_ns() - ago)
    try:
        return _from(_moment(bare))
    except ValueError:
        raise ConfigError(
            f"--start {text!r}: write earliest, latest, a sequence, a time such as "
            "2026-01-31T12:00:00Z, or how long ago, such as -90m or -2d."
        ) from None


def _from(ns: int) -> dict[str, str]:
    start = {"startingTimestamp": format_isotime(ns)}
    if ns <= time.time_ns():
        # Without messages since then, all that come are later than that: begin at the end. Before
        # a time to come there may be others first.
        start["startingOffsetsByTimestampStrategy"] = "latest"
    return start


def _moment(text: str) -> int:
    """Nanoseconds since the epoch of a time with a zone, or a local one. Raises ValueError."""
    try:
        return parse_isotime(text)
    except ValueError:
        return datetime_to_ns(datetime.fromisoformat(text).astimezone())


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """A dict of strings name=value. Raises ConfigError."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {text!r}: write name=value.")
        found[name.strip()] = value
    return found


T = TypeVar("T")

JsonOption: TypeAlias = Annotated[bool, Parameter(name=("--json",), negative=())]

_AGE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def with_jetstream(
    server: str | None,
    context: str | None,
    work: Callable[[JetStream], Awaitable[T]],
    *,
    stream: str | list[str] = "",
    consumer: str = "",
) -> T:
    """Connect, do the work, close. `stream` and `consumer`: the names that the user typed.

    A signal to stop cancels the work, which cleans up, and raises StopRequested.
    """

    streams = [stream] if isinstance(stream, str) else stream

    async def ask(nc: Client) -> T:
        js = nc.jetstream()
        try:
            return await work(js)
        except StreamNotFoundError as error:
            known = await _all(js.stream_names())
            missing = next((one for one in streams if one not in known), streams[0])
            raise _not_found(error, f'Stream "{missing}"', nc, missing, known) from None
        except ConsumerNotFoundError as error:
            what = f'Consumer "{consumer}" of stream "{streams[0]}"'
            known = await _all(js.consumer_names(streams[0]))
            raise _not_found(error, what, nc, consumer, known) from None

    return with_client(server, context, ask)


def with_client(
    server: str | None, context: str | None, work: Callable[[Client], Awaitable[T]]
) -> T:
    """Connect, do the work, close. Signals as with `with_jetstream`."""
    options = where(server, context)

    done: list[T] = []

    async def main() -> None:
        async with jetspark.connect(**options) as nc:
            done.append(await work(nc))

    try:
        run_until_signal(main)
    except StopRequested:
        if not done:  # else it came while the connection was closed
            raise
    return done[0]


async def _all(names: Paged[str]) -> list[str]:
    """For a hint only: none when this user may not list them."""
    try:
        return await names.all()
    except JetsparkError:
        return []


def _not_found(error: APIError, what: str, nc: Client, name: str, known: Iterable[str]) -> APIError:
    sentence = not_found(what, nc, name, known)
    return type(error)(error.code, error.err_code, error.description, sentence)


def not_found(what: str, nc: CoreClient, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that there is not, with one of `known` that was perhaps meant."""
    near = nearest_name(name, known)
    hint = f' (did you mean "{near}"?)' if near else ""
    return f"{what} not found on {nc.current_server}{hint}."


def check_replicas(replicas: int | None) -> None:
    """Raises ConfigError for 0, which servers take for 1, and below."""
    if replicas is not None:
        check_whole("--replicas", replicas)


def show_json(document: Any) -> None:
    """One JSON document on standard output."""
    console.say_json(document, indent=True)


def show_table(*headings: str, rows: Iterable[Iterable[object]]) -> None:
    """Columns as wide as their longest cell, right-justified except the first."""
    cells = [headings, *(tuple(console.harmless(str(cell)) for cell in row) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(_padded(row, widths)) for row in cells]
    console.say(Text(lines[0], style="bold"), *lines[1:])


def _padded(row: Iterable[str], widths: list[int]) -> Iterator[str]:
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        space = " " * (width - cell_len(cell))
        yield space + cell if index else cell + space


def show_facts(facts: dict[str, object]) -> None:
    """Names and values in lines, without empty values."""
    said = {name: str(value) for name, value in facts.items() if value not in (None, "")}
    width = max(map(len, said))
    lines = (Text.assemble((f"{name:<{width}}  ", "dim"), value) for name, value in said.items())
    console.say(*lines)


def size(count: int) -> str:
    """Bytes for people, such as 1.5 MiB."""
    amount = float(count)
    for unit in _AGE_UNITS:
        if amount < 1024 or unit == _AGE_UNITS[-1]:
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def limit(value: int | None, show: Callable[[int], str] = "{:,}".format) -> str:
    """A limit; -1, 0 and None mean that there is none."""
    return "unlimited" if value is None or value <= 0 else show(value)


def moment(time: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "never" if time is None else f"{time.replace(tzinfo=None).isoformat(' ', 'seconds')}Z"


def span(duration: timedelta | None) -> str:
    """A duration; none is "unlimited"."""
    return str(duration) if duration else "unlimited"

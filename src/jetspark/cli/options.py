"""Flags that several commands share, and the parsers of their texts."""

from __future__ import annotations

import io
import os
import re
import select
import stat
import sys
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from cyclopts import Parameter

import jetspark
import jetspark.errors as errors
from jetspark.cli import console
from jetspark.cli.signals import StopRequested, run_until_signal
from jetspark.connection.urls import parse_urls
from jetspark.nearest import nearest_name
from jetspark.timestamps import NANOSECONDS, datetime_to_ns, format_isotime, parse_isotime
from jetspark.validation import check_whole
from jetspark.wire.headers import Headers

if TYPE_CHECKING:
    from jetspark.client.client import CoreClient
    from jetspark.client.hooks import HooksLike
    from jetspark.full_client import Client, JetStream
    from jetspark.jetstream.api import Paged

T = TypeVar("T")

Switch: TypeAlias = Annotated[bool, Parameter(negative=())]
Repeated: TypeAlias = Annotated[list[str] | None, Parameter(negative="")]
JsonOption: TypeAlias = Annotated[bool, Parameter(name=("--json",), negative=())]
RawOption: TypeAlias = Annotated[bool, Parameter(name=("--raw",), negative=())]
ForceOption: TypeAlias = Annotated[
    bool, Parameter(name=("--force", "-f"), negative=(), help="Do not ask for confirmation.")
]
_RESULT = Parameter(negative=(), help="Print the result as one JSON document.")
JsonResult: TypeAlias = Annotated[bool, _RESULT, Parameter(name=("--json",))]
MetricsOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Serve Prometheus metrics and the probes /healthz and /readyz on HOST:PORT, or on "
        ":PORT of all addresses of this machine."
    ),
]
_LARGEST = 64 << 20  # bytes of a payload that any server takes


# -- the server ------------------------------------------------------------------------------------


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Connection:
    """The flags --server and --context."""

    server: Annotated[str | None, Parameter(name=("--server", "-s"))] = None
    """URL of the server, or several separated by commas; may contain user and password. Default:
    from --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222."""
    context: str | None = None
    """A context of the nats command, in place of --server."""

    def options(self) -> dict[str, Any]:
        """Options of a client; empty to use the environment. Raises ConfigError."""
        if self.server is not None and self.context is not None:
            raise errors.ConfigError("Give either --server or --context.")
        if self.context is not None:
            return {"context": self.context}
        if self.server is not None and not self.server.strip():
            raise errors.ConfigError("--server is empty: write nats://host:4222, or leave it out.")
        return {} if self.server is None else {"servers": self.server}

    def spark_options(self) -> dict[str, str]:
        """Options of Spark's format; a user or token in the URL becomes an option.

        Raises ConfigError for URLs with different credentials.
        """
        options = self.options()
        if "servers" not in options:
            return options
        urls = parse_urls(options["servers"])
        credentials = {(url.user, url.password, url.token) for url in urls}
        if len(credentials) > 1:
            raise errors.ConfigError("All servers need the same user and password, or token.")
        login = zip(("user", "password", "token"), credentials.pop(), strict=True)
        logins = {name: value for name, value in login if value is not None}
        return {"servers": ",".join(map(str, urls))} | logins

    def run(self, work: Callable[[Client], Awaitable[T]], *, hooks: HooksLike | None = None) -> T:
        """Connect, do the work, close.

        A signal cancels the work, which cleans up, and raises StopRequested.
        """
        options = self.options()
        results: list[T] = []

        async def main() -> None:
            async with jetspark.connect(**options, hooks=hooks) as nc:
                results.append(await work(nc))

        try:
            run_until_signal(main)
        except StopRequested:
            if not results:  # otherwise the signal came while the connection was closing
                raise
        return results[0]

    def jetstream(
        self,
        work: Callable[[JetStream], Awaitable[T]],
        *,
        stream: str | list[str] = "",
        consumer: str = "",
    ) -> T:
        """`run` with a hint for a name that is not found. `stream`, `consumer`: as typed."""
        streams = [stream] if isinstance(stream, str) else stream
        return self.run(lambda nc: ask(nc, work, streams, consumer))

    def follow(
        self,
        work: Callable[[Client, Callable[[str], None]], Awaitable[None]],
        *,
        endless: bool = True,
        hooks: HooksLike | None = None,
    ) -> None:
        """Connect, and do the work until a signal.

        The work calls its second argument with what it does, once it has begun: from then on a
        signal is the normal end of `endless` work; otherwise it raises StopRequested.
        """
        options = self.options()
        has_begun = False

        def begin(activity: str) -> None:
            nonlocal has_begun
            console.warn(f"{activity}; Ctrl-C ends.")
            has_begun = True

        async def main() -> None:
            async with jetspark.connect(**options, hooks=hooks) as nc:
                await work(nc, begin)

        run_until_signal(main, endless=lambda: has_begun and endless)

    def listen(
        self,
        source: Callable[[Client], AbstractAsyncContextManager[AsyncIterable[T]]],
        show: Callable[[T], None],
        *,
        to: str,
        count: int | None,
    ) -> None:
        """Show what arrives, until Ctrl-C or until `count` items have come.

        `to`: what it listens to.
        """
        if count is not None and count < 1:
            raise errors.ConfigError(
                "--count must be at least 1; without it the command ends at Ctrl-C."
            )

        async def show_all(nc: Client, begin: Callable[[str], None]) -> None:
            async with source(nc) as items:
                await nc.flush()
                begin(f"Listening {to}")
                left = count or 0
                async for item in items:
                    show(item)
                    left -= 1
                    if left == 0:
                        return

        self.follow(show_all, endless=not count)


DEFAULT = Connection()


async def ask(
    nc: Client, work: Callable[[JetStream], Awaitable[T]], streams: list[str], consumer: str
) -> T:
    """The work, with a hint for a name that is not found."""
    js = nc.jetstream()
    try:
        return await work(js)
    except errors.StreamNotFoundError as error:
        names = await _all(js.stream_names())
        missing = next((stream for stream in streams if stream not in names), streams[0])
        raise _not_found(error, f'Stream "{missing}"', nc, missing, names) from None
    except errors.ConsumerNotFoundError as error:
        described = f'Consumer "{consumer}" of stream "{streams[0]}"'
        names = await _all(js.consumer_names(streams[0]))
        raise _not_found(error, described, nc, consumer, names) from None


async def _all(names: Paged[str]) -> list[str]:
    """All names, for a hint; empty without permission to list them."""
    try:
        return await names.all()
    except errors.JetsparkError:
        return []


def _not_found(
    error: errors.APIError, described: str, nc: Client, name: str, names: Iterable[str]
) -> errors.APIError:
    sentence = not_found(described, nc, name, names)
    return type(error)(error.code, error.err_code, error.description, sentence)


def not_found(described: str, nc: CoreClient, name: str, names: Iterable[str]) -> str:
    """The sentence for a missing name, with the nearest known one."""
    names = set(names)
    if name in names:
        return f"{described} is on {nc.current_server}, but what it says cannot be read."
    near = nearest_name(name, names)
    hint = f' (did you mean "{near}"?)' if near else ""
    return f"{described} not found on {nc.current_server}{hint}."


# -- a message to send -----------------------------------------------------------------------------


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Content:
    """The flags --header and --stdin; the payload may also be an argument."""

    header: Annotated[list[str] | None, Parameter(name=("--header", "-H"), negative="")] = None
    """Header as name:value; may be given again, also with the same name."""
    stdin: Annotated[bool, Parameter(name=("--stdin",), negative=())] = False
    """Read the payload from standard input."""

    def headers(self) -> Headers | None:
        """The headers. Raises ConfigError, BadHeaderError."""
        headers = Headers()
        for text in self.header or ():
            name, colon, value = text.partition(":")
            if not colon:
                raise errors.ConfigError(f"--header {text!r}: write name:value.")
            headers.add(name.strip(), value.strip())
        return headers or None

    def payload(self, text: str) -> bytes:
        """The argument, or standard input to its end.

        Raises ConfigError for both, for a closed standard input, and beyond 64 MiB.
        """
        if not self.stdin:
            return text.encode("utf-8", "surrogateescape")  # its bytes, UTF-8 or not
        if text:
            raise errors.ConfigError("Give the payload either as an argument or with --stdin.")
        if not sys.stdin:  # None, if the parent process closed it
            raise errors.ConfigError("Standard input is closed: give --stdin a file or a pipe.")
        data = sys.stdin.buffer.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise errors.ConfigError("Standard input has more than 64 MiB, which no server takes.")
        return data


NO_CONTENT = Content()


def stdin_waits() -> bool:
    """Whether standard input is a file or a pipe, neither empty nor at its end.

    For a socket, which ssh and others leave open, only present bytes count.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return False
        if not select.select([sys.stdin], [], [], 0)[0]:
            return stat.S_ISFIFO(mode)
        return isinstance(sys.stdin.buffer, io.BufferedReader) and bool(sys.stdin.buffer.peek(1))
    except (AttributeError, OSError, ValueError):  # closed, or replaced
        return False


# -- texts and numbers -----------------------------------------------------------------------------


_AGE = re.compile(r"-(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_AGE_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def starting(text: str) -> dict[str, str]:
    """--start as an option of Spark's format. Raises ConfigError."""
    position = _position("--start", text, "earliest, latest, ")
    if isinstance(position, str):
        return {"startingOffsets": position}
    start = {"startingTimestamp": format_isotime(position)}
    if position <= time.time_ns():
        # If no message is that new, only later ones are: begin at the end. Messages may still come
        # before a future time.
        start["startingOffsetsByTimestampStrategy"] = "latest"
    return start


def ending(text: str) -> dict[str, str]:
    """--end as an option of Spark's format. Raises ConfigError."""
    position = _position("--end", text, "")
    if isinstance(position, str):
        return {"endingOffsets": position}
    return {"endingTimestamp": format_isotime(position)}


def _position(flag: str, text: str, words: str) -> str | int:
    """A word, a sequence or positions by stream as text; a time in nanoseconds."""
    bare = text.strip()
    if bare.casefold() in ("earliest", "latest") or bare.isdecimal() or bare.startswith("{"):
        return bare
    if age := _AGE.fullmatch(bare.casefold()):
        return time.time_ns() - int(float(age[1]) * _AGE_SECONDS[age[2]] * NANOSECONDS)
    with suppress(ValueError):
        return parse_isotime(bare)
    try:
        return datetime_to_ns(datetime.fromisoformat(bare).astimezone())  # a local time
    except ValueError:
        raise errors.ConfigError(
            f"{flag} {text!r}: write {words}a sequence, a time such as 2026-01-31T12:00:00Z, or "
            "how long ago, such as -90m or -2d."
        ) from None


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Strings name=value as a dict. Raises ConfigError."""
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise errors.ConfigError(f"{option} {text!r}: write name=value.")
        values[name.strip()] = value
    return values


def check_replicas(replicas: int | None) -> None:
    """Raise ConfigError below 1, since servers take 0 for 1."""
    if replicas is not None:
        check_whole("--replicas", replicas)


def confirm(question: str, force: bool) -> None:
    """Raise ConfigError unless the user confirms."""
    if force:
        return
    if not (sys.stdin and sys.stdin.isatty()):  # None, if the parent process closed it
        raise errors.ConfigError(
            f"{question} There is no terminal to ask on: confirm with --force."
        )
    console.err.print(f"{question} [y/N] ", end="", markup=False, soft_wrap=True)
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise errors.ConfigError("Nothing was changed.")


def check_form(*, as_json: bool, raw: bool) -> None:
    """Raise ConfigError for both --json and --raw."""
    if as_json and raw:
        raise errors.ConfigError("Give --json or --raw, not both.")

"""The flags --server and --context, and what commands do with the connection."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

import jetspark
import jetspark.errors as errors
from jetspark.cli import console
from jetspark.cli.signals import StopRequested, run_until_signal
from jetspark.connection.urls import parse_urls
from jetspark.nearest import nearest_name

if TYPE_CHECKING:
    from jetspark.client.client import CoreClient
    from jetspark.client.hooks import HooksLike
    from jetspark.full_client import Client, JetStream
    from jetspark.jetstream.api import Paged

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerFlags:
    """The flags --server and --context."""

    server: Annotated[str | None, Parameter(name=("--server", "-s"))] = None
    """URL of the server, or several separated by commas; may contain user and password. Default:
    from --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222."""
    context: str | None = None
    """A context of the nats command, in place of --server."""

    def options(self) -> dict[str, Any]:
        """The options of `jetspark.connect`; none without flags: it then uses the environment.

        Raises ConfigError.
        """
        if self.server is not None and self.context is not None:
            raise errors.ConfigError("Give either --server or --context.")
        if self.context is not None:
            return {"context": self.context}
        if self.server is not None and not self.server.strip():
            raise errors.ConfigError("--server is empty: write nats://host:4222, or leave it out.")
        return {} if self.server is None else {"servers": self.server}

    def spark_options(self) -> dict[str, str]:
        """The options of Spark's format for the connection.

        User, password and token in a URL become options of their own, since Spark shows URLs.
        Raises ConfigError for URLs with different credentials.
        """
        options = self.options()
        if "servers" not in options:
            return options
        urls = parse_urls(options["servers"])
        # As options, the credentials are for all servers.
        if len({(url.user, url.password, url.token) for url in urls}) > 1:
            raise errors.ConfigError("All servers need the same user and password, or token.")
        login = {"user": urls[0].user, "password": urls[0].password, "token": urls[0].token}
        credentials = {name: value for name, value in login.items() if value is not None}
        return {"servers": ",".join(map(str, urls))} | credentials

    def run(self, work: Callable[[Client], Awaitable[T]], *, hooks: HooksLike | None = None) -> T:
        """Connect, do the work, close; returns the work's result.

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
            if not results:  # with a result, the signal came while the connection was closing
                raise
        return results[0]

    def jetstream(
        self,
        work: Callable[[JetStream], Awaitable[T]],
        *,
        stream: str | list[str] = "",
        consumer: str = "",
    ) -> T:
        """Connect, do the work on JetStream, close; returns the work's result.

        `stream`, `consumer`: the names that the user typed. The error for one that does not exist
        gives the nearest name.
        """
        streams = [stream] if isinstance(stream, str) else stream
        return self.run(lambda nc: with_name_hints(nc, work, streams, consumer))

    def follow(
        self,
        work: Callable[[Client, Callable[[str], None]], Awaitable[None]],
        *,
        endless: bool = True,
        hooks: HooksLike | None = None,
    ) -> None:
        """Connect, and do the work until it ends or a signal comes.

        The work calls its second argument, once it has begun, with what it is doing ("Listening on
        orders"): from then on a signal is the normal end of `endless` work. Any other signal raises
        StopRequested.
        """
        options = self.options()
        has_begun = False

        def begin(activity: str) -> None:
            """Tell the user what the command is doing, and how to end it."""
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
        """Connect, subscribe, and show each item that arrives, until Ctrl-C or `count` items.

        `source`: opens the subscription, whose items are passed to `show`. `to`: what it listens
        to, for the line that tells the user.
        """
        if count is not None and count < 1:
            raise errors.ConfigError(
                "--count must be at least 1; without it the command ends at Ctrl-C."
            )

        async def show_all(nc: Client, begin: Callable[[str], None]) -> None:
            """Subscribe, and show the items; `begin` announces that on the terminal."""
            async with source(nc) as items:
                await nc.flush()  # the server has the subscription
                begin(f"Listening {to}")
                left = count or 0
                async for item in items:
                    show(item)
                    left -= 1
                    if left == 0:
                        return

        self.follow(show_all, endless=not count)


DEFAULT_SERVER = ServerFlags()


async def with_name_hints(
    nc: Client, work: Callable[[JetStream], Awaitable[T]], streams: list[str], consumer: str
) -> T:
    """Do the work on JetStream; an error for a missing stream or consumer gets a hint.

    The hint is the nearest existing name. `streams`, `consumer`: the names that the user typed.
    """
    js = nc.jetstream()
    failure: errors.APIError
    try:
        return await work(js)
    except errors.StreamNotFoundError as error:
        failure, names = error, await _list_names(js.stream_names())
        # The error does not say which of the streams is missing.
        name = next((stream for stream in streams if stream not in names), streams[0])
        described, listing = f'Stream "{name}"', "`jetspark stream ls` shows the streams"
    except errors.ConsumerNotFoundError as error:
        failure, names = error, await _list_names(js.stream(streams[0]).consumer_names())
        name, described = consumer, f'Consumer "{consumer}" of stream "{streams[0]}"'
        listing = f"`jetspark consumer ls {streams[0]}` shows the consumers"
    sentence = describe_missing(described, nc, name, names, listing=listing)
    # The same error with a better sentence.
    raise type(failure)(failure.code, failure.err_code, failure.description, sentence)


async def _list_names(names: Paged[str]) -> list[str]:
    """List the names of streams or consumers; none if that fails, as without the permission."""
    try:
        return await names.all()
    except errors.JetsparkError:
        return []


def describe_missing(
    described: str, nc: CoreClient, name: str, names: Iterable[str], *, listing: str = ""
) -> str:
    """The sentence for a name that the server does not have, with the nearest of `names`.

    `described`: what has the name, such as `Stream "ORDERS"`; `listing`: what shows the names, for
    a name that is near to none.
    """
    names = set(names)
    if name in names:  # it is listed, although asking for it has failed
        return f"{described} is on {nc.current_server}, but what it says cannot be read."
    near = nearest_name(name, names)
    hint = f' (did you mean "{near}"?).' if near else f"; {listing}." if listing else "."
    return f"{described} not found on {nc.current_server}{hint}"

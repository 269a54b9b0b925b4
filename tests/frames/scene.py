"""One run: a call of the client while one frame of its server is spoiled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tests.support.frame_proxy import Fault, FrameProxy, Kind

from jetspark.connection.options import ConnectOptions, make_options
from jetspark.errors import JetsparkError, MessageNotFoundError
from jetspark.full_client import Client, JetStream
from jetspark.links.link_pool import pool

T = TypeVar("T")

BEAT: Final = 0.5
"""Seconds between two heartbeats, everywhere that they can be chosen."""

PATIENCE: Final = 1.5
"""Seconds that one answer of the API is waited for."""


@dataclass
class Scene:
    """What a script works with."""

    name: str
    """Of the stream or bucket; nobody else uses it."""
    position: int
    kind: Kind
    proxy: FrameProxy
    nc: Client
    """Behind the proxy."""
    near: JetStream
    """Beside the proxy: makes, fills and looks."""
    url: str
    """Where a client behind the proxy connects to."""
    domain: str | None
    wanted: Callable[[bytes], bool]
    reported: list[JetsparkError]
    fault: Fault | None = None
    cleaning: list[Callable[[], None]] = field(default_factory=list)

    @property
    def js(self) -> JetStream:
        """Behind the proxy."""
        return self.nc.jetstream(timeout=PATIENCE)

    @property
    def subject(self) -> str:
        return f"{self.name}.a"

    def begin(self) -> None:
        """From here on frames count."""
        self.fault = self.proxy.arm(self.position, self.kind, wanted=self.wanted)

    async def stream(self, **config: object) -> None:
        """A stream in memory that listens to "<its name>.>"."""
        await self.near.create_stream(
            {"name": self.name, "subjects": [f"{self.name}.>"], "storage": "memory", **config}
        )

    async def fill(self, count: int = 3) -> list[bytes]:
        """So many messages; returns their payloads."""
        payloads = [b"%d" % number for number in range(1, count + 1)]
        for payload in payloads:
            await self.near.publish(self.subject, payload)
        return payloads

    async def filled(self, count: int = 3, **config: object) -> list[bytes]:
        """A stream with so many messages; returns their payloads."""
        await self.stream(**config)
        return await self.fill(count)

    async def stored(self, subject: str | None = None) -> list[bytes]:
        """The payloads that the stream holds; of a subject, also with gaps."""
        state = (await self.near.stream(self.name).info()).state
        found = []
        for seq in range(state.first_seq, state.last_seq + 1):
            try:
                message = await self.near.stream(self.name).get(seq, direct=False)
            except MessageNotFoundError:
                assert subject is not None, f"nothing has sequence {seq}"
                continue
            if subject in (None, message.subject):
                found.append(message.data)
        return found

    def has_reported(self, error: type[JetsparkError]) -> bool:
        return any(isinstance(one, error) for one in self.reported)

    def bulk_options(self) -> ConnectOptions:
        """For a link of the blocking reader; it is closed at the end."""
        options = make_options(
            self.url, jetstream_domain=self.domain, inbox_prefix=f"_INBOX_{self.name}"
        )
        self.close_later(options)
        return options

    def close_later(self, options: ConnectOptions) -> None:
        """The links that were made with these options, at the end."""

        def close() -> None:
            for link, _ in pool.idle.pop(options, []):
                link.close()

        self.cleaning.append(close)

    async def clean(self) -> None:
        for step in self.cleaning:
            step()
        for stream in (self.name, f"KV_{self.name}", f"OBJ_{self.name}", f"jetspark_{self.name}"):
            with contextlib.suppress(JetsparkError):
                await self.near.delete_stream(stream)


async def retried(attempt: Callable[[], Awaitable[T]], times: int = 6) -> T:
    """What a program does that wants it: again after each error of ours."""
    for _ in range(times - 1):
        with contextlib.suppress(JetsparkError):
            return await attempt()
    return await attempt()


async def until(holds: Callable[[], bool]) -> None:
    """Looks every 20 ms; `within` bounds it."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def settled(look: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """The first thing seen that holds, by a look every 20 ms; `within` bounds it."""
    while not holds(seen := await look()):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return seen


@contextlib.asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """AssertionError instead of a hang."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(f"{what} took more than {seconds:g} s") from None

"""The tables of conformance cases, and the steps that cases share.

A table has the cases of one ADR: the id that the official suite gave it, the call of jetspark by
which a program says or hears it, and the outcome. A case without steps says why no client can say
or hear it. Steps use public names only.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest
from tests.support.frame_proxy import Fault, FrameProxy

import jetspark
from jetspark.documents.streams import StoredMsg
from jetspark.errors import APIError, JetsparkError, MessageNotFoundError
from jetspark.full_client import Client, JetStream
from jetspark.jetstream.consumers import PullConsumer
from jetspark.jetstream.stream import Stream
from jetspark.wire.headers import Headers

Steps: TypeAlias = "Callable[[Trial], Awaitable[None]]"

IDLE = 6.0
"""Seconds after which the server of these tests abandons a batch, instead of 10."""
SERVER = f"""
jetstream {{ limits {{ batch {{ timeout: "{IDLE:g}s" }} }} }}
"""


@dataclass(frozen=True)
class Case:
    """A row: what a program does, what comes of it, and the steps that show it."""

    id: str
    call: str
    outcome: str
    steps: Steps | None = None
    """None: no client can say or hear it; the outcome is the reason."""
    alone: bool = False
    """Whether it uses up something that other cases need, too."""
    clustered: bool = False
    differs: str = ""
    """What nats-server 2.15 does instead of the suite's outcome; the steps take both."""


class Table(list[Case]):
    """The cases of one ADR, in the order of their ids in the official suite."""

    def __init__(self, adr: int) -> None:
        super().__init__()
        self.adr = adr

    def case(self, id: str, call: str, outcome: str, **marks: Any) -> Callable[[Steps], Steps]:
        """Add the decorated steps."""

        def add(steps: Steps) -> Steps:
            self.append(Case(id, call, outcome, steps, **marks))
            return steps

        return add

    def out_of_reach(self, id: str, reason: str) -> None:
        """Add a case that no client can say or hear."""
        self.append(Case(id, "", reason))

    def option_is_kept(self, id: str, option: str, level: int, **others: Any) -> None:
        """Add a case: a new stream has this option, and so at least this API level."""

        async def steps(t: Trial) -> None:
            info = await (await t.stream(**{option: True}, **others)).info()
            assert getattr(info.config, option)
            assert api_level(info) >= level

        self.append(Case(id, f"create_stream({option}=True)", "is on", steps))

    def stream_is_refused(
        self, id: str, outcome: str, *variants: Mapping[str, Any], error: type[APIError] = APIError
    ) -> None:
        """Add a case: the server refuses each of these configurations of a new stream.

        `mirror` or `sources` of True is a stream that exists.
        """

        async def steps(t: Trial) -> None:
            for options in variants:
                source = {"name": (await t.stream()).name}
                given = dict(options)
                if given.get("mirror"):
                    given |= {"mirror": source, "subjects": None}
                if given.get("sources"):
                    given["sources"] = [source]
                await refusal(t.stream(**given), error)

        self.append(Case(id, "create_stream", f"{error.__name__} {outcome}", steps))

    def publish_is_refused(
        self,
        id: str,
        outcome: str,
        options: Mapping[str, Any],
        *variants: Mapping[str, str],
        error: type[APIError] = APIError,
    ) -> None:
        """Add a case: a stream of these options refuses messages with each of these headers."""

        async def steps(t: Trial) -> None:
            s = await t.stream(**options)
            for headers in variants:
                await refusal(t.js.publish(f"{s.name}.a", headers=headers), error)
            assert await count(s) == 0

        self.append(Case(id, "publish(headers=)", f"{error.__name__} {outcome}", steps))


class Trial:
    """One run of one case: its connection, and the streams that it made."""

    def __init__(self, nc: Client, port: int) -> None:
        self.nc = nc
        self._port = port
        self.js: JetStream = nc.jetstream(timeout=20)
        self._made: list[str] = []

    # -- streams and consumers -----------------------------------------------------------------

    async def stream(self, **options: Any) -> Stream:
        """A new stream in memory, with all subjects below its name."""
        name = options.get("name") or self.new_name()
        self._made.append(name)
        subjects = None if options.get("mirror") else [f"{name}.>"]
        defaults: dict[str, Any] = {"name": name, "subjects": subjects, "storage": "memory"}
        return await self.js.create_stream(**defaults | options)

    def new_name(self) -> str:
        return f"C_{secrets.token_hex(5)}"

    async def mirror(self, source: Stream, **options: Any) -> Stream:
        return await self.stream(mirror={"name": source.name}, **options)

    async def sourcing(self, source: Stream, **options: Any) -> Stream:
        return await self.stream(sources=[{"name": source.name}], **options)

    async def consumer(self, stream: Stream, policy: str | None, **options: Any) -> PullConsumer:
        """A consumer with the priority group "jobs"; without a policy it has no groups."""
        groups = {} if policy is None else {"priority_groups": ["jobs"], "priority_policy": policy}
        name = f"c_{secrets.token_hex(5)}"
        defaults: dict[str, Any] = {"durable_name": name, "ack_policy": "explicit"}
        return await stream.create_consumer(**defaults | groups | options)

    async def delete_streams(self) -> None:
        for name in self._made:
            with suppress(JetsparkError):
                await self.js.delete_stream(name)

    # -- messages ------------------------------------------------------------------------------

    async def fill(self, stream: Stream, tokens: Iterable[str], **options: Any) -> list[int]:
        """Publish "1", "2", … to a subject of the stream each; returns the sequences."""
        return [
            (await self.js.publish(f"{stream.name}.{token}", str(number).encode(), **options)).seq
            for number, token in enumerate(tokens, 1)
        ]

    async def fill_many(self, stream: Stream, tokens: Iterable[str]) -> None:
        async with self.js.publisher() as publisher:
            for token in tokens:
                await publisher.publish(f"{stream.name}.{token}", b"x")

    async def ask(
        self, subject: str, payload: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON reply to a request of any form; {} for an empty one."""
        reply = await self.nc.request(subject, payload, headers=headers, timeout=20)
        document: dict[str, Any] = json.loads(reply.data or b"{}")
        return document

    async def err_code(
        self, subject: str, payload: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> int:
        """The server's error in the reply to a request; 0 when there is none."""
        answer = await self.ask(subject, payload, headers)
        return int(answer.get("error", {}).get("err_code", 0))

    async def replies(
        self, subject: str, body: bytes | Mapping[str, Any], *, timeout: float = 5, **options: Any
    ) -> list[jetspark.Message]:
        """All replies to a request, with their status lines and headers."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        many = self.nc.request_many(subject, payload, timeout=timeout, **options)
        return [reply async for reply in many]

    async def direct(
        self, stream: Stream, body: bytes | Mapping[str, Any], subject: str = "", **options: Any
    ) -> list[jetspark.Message]:
        """The replies to a direct get in the words of the server; ends with the first status."""
        tail = f".{subject}" if subject else ""
        api = f"$JS.API.DIRECT.GET.{stream.name}{tail}"
        options = options or {"max_msgs": 1}
        return await self.replies(api, body, **options)

    async def direct_page(
        self, stream: Stream, body: Mapping[str, Any]
    ) -> tuple[list[jetspark.Message], jetspark.Message]:
        """The messages of one batch of direct gets, and its end."""
        *messages, end = await self.direct(stream, body, stall=0.3)
        assert end.status is not None
        return messages, end

    async def pull(self, consumer: PullConsumer, **body: Any) -> jetspark.Message | None:
        """The first reply to a pull request in the words of the server."""
        names = f"{consumer.stream}.{consumer.name}"
        request = {"batch": 1, "group": "jobs", "expires": 1_000_000_000} | body
        request = {name: value for name, value in request.items() if value is not None}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{names}"
        replies = await self.replies(subject, request, timeout=2, max_msgs=1)
        return replies[0] if replies else None

    @asynccontextmanager
    async def losing(
        self, text: bytes, position: int = 1, kind: Literal["drop", "unsent"] = "drop"
    ) -> AsyncIterator[tuple[JetStream, Fault]]:
        """JetStream on a link that loses one message with this text: "drop" one of the server's,
        "unsent" one of the client's."""
        proxy = FrameProxy(self._port)
        async with proxy, jetspark.connect(f"nats://127.0.0.1:{proxy.port}") as nc:
            fault = proxy.arm(position, kind, wanted=lambda frame: text in frame)
            yield nc.jetstream(timeout=20), fault

    # -- events --------------------------------------------------------------------------------

    @asynccontextmanager
    async def events(self, kind: str, stream: Stream) -> AsyncIterator[Callable[[], Any]]:
        """`await next()` is the next event of a kind about a stream."""
        async with self.js.events(kinds=kind, stream=stream.name) as events:

            async def next_event() -> Any:
                return await asyncio.wait_for(anext(events), 3 * IDLE)

            yield next_event


class Ack(NamedTuple):
    """A reply to a batch of fast ingest."""

    document: dict[str, Any]

    @property
    def err_code(self) -> int:
        return int(self.document.get("error", {}).get("err_code", 0))

    @property
    def type(self) -> str | None:
        return self.document.get("type")


class RawIngest:
    """A batch of fast ingest in the words of the server: by reply subjects."""

    def __init__(self, t: Trial, stream: Stream, *, flow: int = 10, gap: str = "ok") -> None:
        self._nc = t.nc
        self._subject = f"{stream.name}.a"
        self.inbox = t.nc.new_inbox()
        self.id = secrets.token_hex(8)
        self.agreed = f"{flow}.{gap}"
        self._replies = t.nc.subscribe(f"{self.inbox}.>")

    async def send(
        self, number: int, operation: int, headers: Any = None, end: str = ".$FI"
    ) -> None:
        """Send message `number`: 0 starts, 1 appends, 2 commits, 3 ends, 4 is a ping."""
        reply = f"{self.inbox}.{self.id}.{self.agreed}.{number}.{operation}{end}"
        await self._nc.publish(self._subject, str(number).encode(), reply=reply, headers=headers)

    async def reply(self, timeout: float = 10) -> Ack:
        message = await asyncio.wait_for(anext(self._replies), timeout)
        return Ack(json.loads(message.data))

    async def replies_to_end(self) -> list[Ack]:
        """All replies up to the PubAck, which has no type."""
        replies = [await self.reply()]
        while replies[-1].type is not None:
            replies.append(await self.reply())
        return replies


async def refusal(call: Awaitable[Any], kind: type[JetsparkError] = APIError) -> Any:
    """The error that a call raises, which must be of this class."""
    with pytest.raises(kind) as raised:
        await call
    return raised.value


def headers_of(message: jetspark.Message | StoredMsg) -> Headers:
    """The headers of a message, which may have none."""
    return Headers() if message.headers is None else message.headers


def status_of(message: jetspark.Message | None) -> tuple[int, str]:
    """Code and description of a status; (0, "") for a message."""
    status = None if message is None else message.status
    return (0, "") if status is None else (status.code, status.description)


async def stored(stream: Stream) -> list[StoredMsg]:
    """All messages of a stream, in order."""
    state = (await stream.info()).state
    messages = []
    for seq in range(state.first_seq, state.last_seq + 1):
        with suppress(MessageNotFoundError):
            messages.append(await stream.get(seq, direct=False))
    return messages


async def count(stream: Stream) -> int:
    return (await stream.info()).state.messages


async def last_on(stream: Stream, token: str) -> Any:
    """The last message on a subject of the stream's, or None."""
    try:
        return await stream.get(last_by_subject=f"{stream.name}.{token}", direct=False)
    except MessageNotFoundError:
        return None


async def until(holds: Callable[[], Awaitable[Any]], timeout: float = 15) -> Any:
    """Wait until a question has an answer that is true; returns it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    while not (answer := await holds()):
        assert loop.time() < end, f"not within {timeout:g} s"
        await asyncio.sleep(0.1)
    return answer


async def has_messages(stream: Stream, messages: int) -> None:
    """Wait until a stream has so many messages, such as a mirror that catches up."""

    async def enough() -> bool:
        return await count(stream) >= messages

    await until(enough)


def api_level(info: Any) -> int:
    """The level of the server's API that a stream requires."""
    return int((info.config.metadata or {}).get("_nats.req.level", 0))

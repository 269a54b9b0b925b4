"""One question to servers, and their answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from jetspark.arguments import check_fields
from jetspark.errors import DocumentError, RequestTimeoutError, SystemRequestError
from jetspark.jetstream.documents.document import Document, from_wire
from jetspark.jetstream.documents.streams import ErrorDocument
from jetspark.jetstream.listing import Listing
from jetspark.subjects import check_publish_subject
from jetspark.system.documents import Answer, ServerSummary
from jetspark.wire.documents import decode_document

if TYPE_CHECKING:
    from jetspark.client.client import Client
    from jetspark.timestamps import Seconds

PING: Final = "PING"
DocumentT = TypeVar("DocumentT", bound=Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFilter:
    """Which servers answer: all that fit.

    `name`, `cluster` and `host` are contained in theirs, or with `exact_match` equal to them;
    servers have all of `tags`; `domain` is that of their JetStream.
    """

    name: str | None = None
    cluster: str | None = None
    host: str | None = None
    exact_match: bool = False
    tags: tuple[str, ...] = ()
    domain: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def to_wire(self) -> dict[str, Any]:
        """As servers read it."""
        return said(
            server_name=self.name,
            cluster=self.cluster,
            host=self.host,
            exact_match=self.exact_match,
            tags=list(self.tags),
            domain=self.domain,
        )


@dataclass(frozen=True, slots=True)
class Asking:
    """How long answers are waited for, and whose."""

    client: Client
    timeout: Seconds
    stall: Seconds

    def all(
        self,
        cls: type[DocumentT],
        subject: str,
        options: dict[str, Any],
        only: ServerFilter | None = None,
        *,
        one: bool = False,
    ) -> Listing[Answer[DocumentT]]:
        """The answers; one that cannot be read is reported and left out.

        `one`: there is one server that can answer.
        """
        check_publish_subject(subject)
        body = {**options, **(only.to_wire() if only else {})}
        payload = msgspec.json.encode(body) if body else b""
        limits: dict[str, Any] = {
            "timeout": self.timeout,
            "stall": self.stall,
            "max_msgs": 1 if one else 0,
        }
        # Before anything is sent, as the arguments are looked at.
        self.client.request_many(subject, payload, **limits)

        async def answers() -> AsyncIterator[Answer[DocumentT]]:
            replies = self.client.request_many(subject, payload, **limits)
            try:
                async with replies:
                    async for reply in replies:
                        try:
                            answer = read_answer(cls, reply.data)
                        except DocumentError as error:
                            self.client.report(error)
                            continue
                        yield answer
            except RequestTimeoutError as error:
                if only is None or type(error) is not RequestTimeoutError:
                    raise
                return  # none of them fits

        return Listing(answers)


def said(**options: Any) -> dict[str, Any]:
    """Those that are not what servers assume without them."""
    return {name: value for name, value in options.items() if value not in (None, False, 0, [])}


def read_answer(cls: type[DocumentT], data: bytes) -> Answer[DocumentT]:
    """Raises SystemRequestError, DocumentError for what is no such answer."""
    raw = decode_document(data, "answer of a server")
    server = from_wire(ServerSummary, raw.get("server"))
    if (said := raw.get("error")) is not None:
        error = from_wire(ErrorDocument, said)
        raise SystemRequestError(server.name, error.code, error.description)
    # `data` of all but the statistics.
    return Answer(server, from_wire(cls, raw.get("data", raw.get("statsz"))))

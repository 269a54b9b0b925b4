"""What becomes of the messages of a `publisher.Publisher`."""

from __future__ import annotations

import asyncio

from jetspark.errors import JetsparkError, JetStreamError
from jetspark.jetstream.documents import PubAck
from jetspark.wire.headers import HeadersLike


class PublishFailure:
    """A message that was not acknowledged: `index` (0 for the first sent), `subject`, `error`."""

    __slots__ = ("error", "index", "subject")

    def __init__(self, index: int, subject: str, error: JetsparkError) -> None:
        self.index = index
        self.subject = subject
        self.error = error

    def __repr__(self) -> str:
        return f"PublishFailure({self.index}, {self.subject!r}, {self.error!r})"


class PublishFailedError(JetStreamError):
    """Messages of a publisher were not acknowledged: `failures`, in the order they failed."""

    def __init__(self, failures: list[PublishFailure]) -> None:
        first = failures[0]
        super().__init__(
            f"{len(failures)} messages were not acknowledged; "
            f"first number {first.index} on {first.subject!r}: {first.error}"
        )
        self.failures = failures


class Unacked:
    """A message on its way; `lost`: with a connection, and to be sent again on the next."""

    __slots__ = ("deadline", "future", "headers", "index", "lost", "payload", "retries", "subject")

    def __init__(
        self,
        index: int,
        subject: str,
        payload: bytes,
        headers: HeadersLike | None,
        deadline: float,
        future: asyncio.Future[PubAck] | None,
    ) -> None:
        self.index = index
        self.subject = subject
        self.payload = payload
        self.headers = headers
        self.deadline = deadline
        self.future = future
        self.retries = 0
        self.lost = False

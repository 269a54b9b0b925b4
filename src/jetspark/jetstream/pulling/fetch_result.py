"""The result of a fetch: messages, and the error that ended it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from jetspark.errors import JetsparkError
from jetspark.jetstream.message import JsMsg

MessageT = TypeVar("MessageT")


class Fetched(list[MessageT]):
    """What the results of the asyncio and the blocking client have in common."""

    __slots__ = ("error",)

    def __init__(
        self, messages: Iterable[MessageT] = (), error: JetsparkError | None = None
    ) -> None:
        super().__init__(messages)
        self.error = error


class FetchResult(Fetched[JsMsg]):
    """The messages of a fetch. `error`: the error that ended it after these messages, or None."""

    __slots__ = ()

"""What a fetch returns: messages, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable

from jetspark.errors import JetsparkError
from jetspark.jetstream.message import JsMsg


class FetchResult(list[JsMsg]):
    """The messages of a fetch. `error`: what ended it after these messages came, or None."""

    __slots__ = ("error",)

    def __init__(self, messages: Iterable[JsMsg] = (), error: JetsparkError | None = None) -> None:
        super().__init__(messages)
        self.error = error

"""Lists that the server answers in pages, as async iterators.

Contract: nothing is requested before the first item is; each `async for` starts anew. The pages
are no snapshot: what is created or deleted meanwhile may be missing or come twice. An item that
cannot be read is reported and left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Generic, TypeVar

from jetspark.errors import DocumentError
from jetspark.jetstream.api import Api
from jetspark.wire.js_api import Call

ItemT = TypeVar("ItemT")


class Paged(Generic[ItemT]):
    """Iterate with `async for`, or `await paged.all()` for a list."""

    __slots__ = ("_api", "_body", "_call", "_convert", "_key", "_names", "missing", "offline")

    def __init__(
        self,
        api: Api,
        call: Call,
        key: str,
        convert: Callable[[Any], ItemT],
        body: Mapping[str, Any],
        **names: str,
    ) -> None:
        self._api = api
        self._call = call
        self._key = key
        self._convert = convert
        self._body = body
        self._names = names
        self.missing: list[str] = []
        """Names of streams or consumers that did not answer, as of the last iteration."""
        self.offline: dict[str, str] = {}
        """Names of streams or consumers that the server cannot run, with its reason (2.12)."""

    async def __aiter__(self) -> AsyncIterator[ItemT]:
        self.missing = []
        self.offline = {}
        offset = 0
        while True:
            body = {**self._body, "offset": offset}
            page = await self._api.call(self._call, body, **self._names)
            items = page.get(self._key) or []
            # Each page names those that are missing again.
            for name in page.get("missing") or []:
                if name not in self.missing:
                    self.missing.append(name)
            self.offline.update(page.get("offline") or {})
            for item in items:
                try:
                    converted = self._convert(item)
                except DocumentError as error:
                    self._api.client.report(error)
                    continue
                yield converted
            offset += len(items)
            if not items or offset >= page.get("total", 0):
                return

    async def all(self) -> list[ItemT]:
        """Every item in a list. Raises as iterating."""
        return [item async for item in self]

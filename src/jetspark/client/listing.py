"""Results that may be many: an async iterator, or a list of all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class Listing(Generic[ItemT]):
    """Iterate with `async for`, or `await listing.all()` for a list.

    Requests nothing before the first item; each `async for` starts anew.

    Example:
        ```python
        keys = (await js.bucket("settings")).keys()
        async for key in keys:
            print(key)  # colour

        print(await keys.all())  # ['colour']
        ```
    """

    def __init__(self, read: Callable[[], AsyncIterator[ItemT]]) -> None:
        self._read = read

    def __aiter__(self) -> AsyncIterator[ItemT]:
        return self._read()

    async def all(self) -> list[ItemT]:
        """Every item in a list. Raises the errors of iterating."""
        return [item async for item in self._read()]

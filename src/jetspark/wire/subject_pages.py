"""The subjects of a stream from several answers to STREAM.INFO, none of them left out.

A page is a part of the sorted subjects, by its offset. When subjects of earlier pages are removed
in the meantime, the rest moves up, and a page at the next offset would leave some of them out. So
pages overlap by one subject; a page that does not overlap is asked for again, further back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SubjectPages:
    """Collects the pages of one filter."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        """Subjects and their numbers of messages: all that had messages all the time."""
        self.offset = 0
        """Of the next page to ask for."""
        self._last = ""
        self._back = 1

    def add(self, answer: Mapping[str, Any]) -> bool:
        """Take the page at `offset`; returns whether it was the last one."""
        page: Mapping[str, int] = answer["state"].get("subjects") or {}
        total = answer.get("total", 0)
        if self.offset and (not page or min(page) > self._last):
            self.offset = max(0, self.offset - self._back)
            self._back *= 2
            return False
        self.found.update(page)
        if self.offset + len(page) >= total or not page:
            return True
        self._last = max(page)
        self._back = 1
        self.offset += max(1, len(page) - 1)
        return False

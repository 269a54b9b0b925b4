"""Streams' duplicate windows: a publisher reads them before it sends a message again.

Contract: a window is read from the stream in each round of retries, since it may be changed; the
smallest one read so far counts, as a stream has forgotten the ids that it once left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jetspark.errors as errors
from jetspark.jetstream.api import Api
from jetspark.jetstream.stream_requests import stream_info
from jetspark.subjects import subject_matches
from jetspark.wire import js_api


class DuplicateWindow(NamedTuple):
    """The window of a stream."""

    stream: str | None
    seconds: float


class DuplicateWindows:
    """Duplicate windows of the streams that subjects belong to.

    `fixed_seconds`: one window for all of them, which is then not read from the streams.
    """

    def __init__(self, api: Api, fixed_seconds: float | None) -> None:
        self._api = api
        self._fixed_seconds = fixed_seconds
        self._smallest: dict[str, float] = {}
        self._round: list[tuple[Sequence[str], DuplicateWindow]] = []
        self._failed: errors.JetsparkError | None = None

    def begin_round(self) -> None:
        """Read each stream again."""
        self._round.clear()
        self._failed = None

    async def of(self, subject: str) -> DuplicateWindow:
        """The window of a subject's stream.

        Raises JetStreamError when no stream of the account has the subject, and the errors of every
        API call, in the same round again without another one.
        """
        if self._fixed_seconds is not None:
            return DuplicateWindow(None, self._fixed_seconds)
        for subjects, window in self._round:
            if any(subject_matches(pattern, subject) for pattern in subjects):
                return window
        if self._failed is not None:
            raise self._failed
        try:
            return await self._read(subject)
        except errors.JetsparkError as error:
            self._failed = error
            raise

    async def _read(self, subject: str) -> DuplicateWindow:
        answer = await self._api.call(js_api.STREAM_NAMES, {"subject": subject})
        if not (names := answer.get("streams")):
            raise errors.JetStreamError("No stream of this account has the subject.")
        config = (await stream_info(self._api, names[0])).config
        now = 0.0 if config.duplicate_window is None else config.duplicate_window.total_seconds()
        smallest = self._smallest[names[0]] = min(now, self._smallest.get(names[0], now))
        window = DuplicateWindow(names[0], smallest)
        self._round.append((config.subjects or [names[0]], window))
        return window

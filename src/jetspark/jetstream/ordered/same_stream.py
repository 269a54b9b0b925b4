"""Whether the stream of a recreated consumer is the one that was read before."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from jetspark.errors import (
    APIError,
    DataLossError,
    JetStreamNotEnabledError,
    PermissionsError,
    StreamRecreatedError,
)
from jetspark.jetstream.exact_times import exact_ns
from jetspark.jetstream.stored.direct_get import leader_get
from jetspark.jetstream.streams.info import stream_info
from jetspark.timestamps import ns_to_datetime

if TYPE_CHECKING:
    from jetspark.jetstream.api import Api

LAG_SECONDS = 15.0
"""So long a stream with replicas may end before what was delivered: a new leader may not have all
of it yet. The only replica cannot be behind."""

_EVER: Final = datetime.max.replace(tzinfo=UTC)


class StreamOrigin(NamedTuple):
    """What is known of the stream that is read."""

    created: datetime
    last_seq: int
    """It once had messages up to this one."""


class Reached(NamedTuple):
    """The last message that came, and when it was stored; 0: none, not known."""

    seq: int = 0
    time_ns: int = 0


class SameStream:
    """What is known of a stream, and the check."""

    def __init__(self, api: Api, stream: str) -> None:
        self._api = api
        self._stream = stream
        self.origin: StreamOrigin | None = None
        self.reached = Reached()
        """What the next consumer goes on after."""
        self.began = _EVER
        """When the first consumer was created."""
        self._behind_since = math.inf

    async def check(self) -> None:
        """Raises StreamRecreatedError, or DataLossError where the stream ends too early or is
        another copy: the consumer would leave messages out, or wait for ever, and nothing would
        tell."""
        try:
            info = await stream_info(self._api, self._stream)
        except (PermissionsError, JetStreamNotEnabledError):
            return  # not allowed, or not imported from the account that has the stream
        expected = self.origin.created if self.origin is not None else None
        if info.created > self.began if expected is None else info.created != expected:
            before = f"or before {self.began}" if expected is None else str(expected)
            raise StreamRecreatedError(self._stream, before, str(info.created))
        had = max(self.reached.seq, self.origin.last_seq if self.origin else 0)
        self.origin = StreamOrigin(info.created, max(had, info.state.last_seq))
        if info.state.last_seq < had:
            alone = info.config.num_replicas == 1
            self._behind_since = -math.inf if alone else min(self._behind_since, time.monotonic())
            raise DataLossError(
                self._stream,
                info.state.last_seq + 1,
                had,
                f"Stream {self._stream!r} ends at sequence {info.state.last_seq}, and it had {had} "
                "before: the server has lost stored messages, or has an older copy of them.",
            )
        self._behind_since = math.inf
        if self.reached.time_ns and info.state.first_seq <= self.reached.seq:
            await self._check_reached()

    async def _check_reached(self) -> None:
        """Raises DataLossError where another message than the one that came has its sequence."""
        seq, time_ns = self.reached
        try:
            stored = await leader_get(self._api, self._stream, {"seq": seq})
        except (PermissionsError, APIError):
            return  # not allowed, or removed since: nothing can be said
        if exact_ns(stored.time) == time_ns:
            return
        self._behind_since = -math.inf
        raise DataLossError(
            self._stream,
            seq,
            seq,
            f"Stream {self._stream!r} has a message of {stored.time} at sequence {seq}, and had "
            f"one of {ns_to_datetime(time_ns)} there: it is another copy of the stream, "
            "which may not have what was read before.",
        )

    @property
    def never_again(self) -> bool:
        """Whether the DataLossError just raised is no passing state of a new leader."""
        return time.monotonic() > self._behind_since + LAG_SECONDS

"""The options of `consume` and ordered consumers (ADR-37): defaults, checks, units.

The buffer is limited in messages or in bytes, never both. A pull request stays within the
consumer's own limits (max_batch, max_bytes, max_expires), so that it is not refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jetspark.arguments import check_whole
from jetspark.errors import ConfigError
from jetspark.timestamps import Seconds, in_seconds

if TYPE_CHECKING:
    from jetspark.jetstream.documents.consumers import ConsumerConfig
    from jetspark.wire.pull_end import PullLimit

MAX_MESSAGES = 500
MOST_AHEAD = 8_000
"""Messages, for who takes so many in some milliseconds and has set no limit."""
EXPIRES = 30.0
BATCH_OF_BYTES = 1_000_000
"""Messages requested when the limit is in bytes: without a batch a server sends only one."""

_LEAST_EXPIRES = 1.0
_LEAST_HEARTBEAT, _MOST_HEARTBEAT = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """Times in seconds; other limits in bytes if `in_bytes`, else in messages."""

    in_bytes: bool
    full: int
    """Most that may be buffered and requested together."""
    threshold: int
    """A new request is sent when buffered and requested fall to this."""
    batch: int
    """Messages of one request when the limit is in bytes."""
    expires: float
    heartbeat: float
    cap: int
    """What the consumer allows for one request."""
    adapts: bool
    """Whether `full` follows the reader: nobody has set it."""

    @property
    def most(self) -> int:
        """Most for one request."""
        return min(self.full, self.cap)

    def resized(self, full: int) -> ConsumeOptions:
        """The same for another size of the buffer, within the limits of one that adapts."""
        full = max(MAX_MESSAGES, min(full, MOST_AHEAD))
        return replace(self, full=full, threshold=full // 2)

    def within(self, limit: PullLimit) -> ConsumeOptions:
        """The same, with requests that stay within a limit of the consumer."""
        most = limit.max_bytes if self.in_bytes else limit.batch
        expires = min(self.expires, limit.expires or self.expires)
        return replace(
            self,
            cap=min(self.cap, most or self.cap),
            batch=min(self.batch, limit.batch or self.batch),
            expires=expires,
            heartbeat=min(self.heartbeat, expires / 2),
        )


def make_consume_options(
    config: ConsumerConfig,
    *,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    expires: Seconds = EXPIRES,
    heartbeat: Seconds | None = None,
    threshold_messages: int | None = None,
    threshold_bytes: int | None = None,
) -> ConsumeOptions:
    """`config`: the consumer's. Raises ConfigError."""
    expires, heartbeat = in_seconds(expires), in_seconds(heartbeat)
    in_bytes = max_bytes is not None
    adapts = max_messages is None and threshold_messages is None and not in_bytes
    if in_bytes and (max_messages is not None or threshold_messages is not None):
        raise ConfigError("The buffer is limited in messages or in bytes: give one kind.")
    if not in_bytes and threshold_bytes is not None:
        raise ConfigError("threshold_bytes needs max_bytes.")
    if not in_bytes:
        unit, full, threshold = "messages", max_messages, threshold_messages
        full = MAX_MESSAGES if full is None else full
    else:
        unit, full, threshold = "bytes", max_bytes or 0, threshold_bytes
    check_whole(f"max_{unit}", full)
    if threshold is None:
        threshold = full // 2
    check_whole(f"threshold_{unit}", threshold, 0)
    if not 0 <= threshold <= full:
        raise ConfigError(f"threshold_{unit} must be from 0 to max_{unit}.")
    if expires < _LEAST_EXPIRES:
        raise ConfigError(f"expires must be at least {_LEAST_EXPIRES:g} seconds.")
    if config.max_expires is not None and config.max_expires.total_seconds() > 0:
        expires = min(expires, config.max_expires.total_seconds())
    if heartbeat is None:
        heartbeat = min(expires / 2, _MOST_HEARTBEAT)
    elif not _LEAST_HEARTBEAT <= heartbeat <= min(expires / 2, _MOST_HEARTBEAT):
        raise ConfigError(
            f"heartbeat must be from {_LEAST_HEARTBEAT:g} to {_MOST_HEARTBEAT:g} seconds, "
            "and at most half of expires."
        )
    cap = (config.max_bytes if in_bytes else config.max_batch) or (MOST_AHEAD if adapts else full)
    return ConsumeOptions(
        in_bytes=in_bytes,
        full=full,
        threshold=threshold,
        batch=min(BATCH_OF_BYTES, config.max_batch or BATCH_OF_BYTES),
        expires=expires,
        heartbeat=heartbeat,
        cap=cap,
        adapts=adapts,
    )

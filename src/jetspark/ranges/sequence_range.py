"""A range of a stream's sequences, and the limits of reading it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jetspark.errors import ConfigError
from jetspark.links.stream_facts import LastMessage, Witness
from jetspark.wire.kernel import require_archives


@dataclass(frozen=True, slots=True)
class SequenceRange:
    """The sequences from `start` to before `end` of one stream, and how a reader reads them.

    Deleted, expired and filtered sequences inside are normal gaps. `created` is the stream's
    creation time when it was planned: in a stream with another one, the sequences mean other
    messages. Raises ConfigError for an invalid range.
    """

    stream: str
    start: int
    end: int
    created: str
    subjects: tuple[str, ...] = ()
    """Only messages under one of these subjects (wildcards allowed); all when empty."""
    from_earliest: bool = False
    """The start means "the earliest message": messages removed by retention are no loss."""
    last_values: bool = False
    """Only the last message of each subject matters: messages that limits removed are no loss."""
    direct: bool = False
    """Read by direct gets, because a consumer would remove the messages (work queues)."""
    snapshot: bool = False
    """Read through a snapshot of the stream, as far as it reaches; then as usual."""
    blocking: bool = False
    """Accept a snapshot from servers before 2.15, which block deletes while they send it."""
    last: LastMessage | None = None
    """The stream's last message when the range was planned.

    An older copy of the stream has another message, or none, at its sequence.
    """
    witness: Witness | None = None
    """A known message, by which "replaced by a newer one" is told apart from "deleted".

    Before `start`, the reader has already read it.
    """

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid range, or a snapshot that cannot be unpacked here."""
        if self.start < 1 or self.end < self.start:
            raise ConfigError(f"Not a range of sequences: {self.start} to {self.end}.")
        if self.snapshot:
            require_archives()

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class ReadLimits:
    """Sizes of batches and pull requests, and how long reading may stall. Raises ConfigError."""

    max_rows: int = 30_000
    """Maximum rows in one record batch."""
    max_bytes: int = 8 * 1024 * 1024
    """Maximum bytes in one record batch, unless a single message is larger."""
    pull_messages: int = 20_000
    """Messages of one pull request; two requests are in flight at a time."""
    pull_bytes: int = 16 * 1024 * 1024
    """Bytes of one pull request; without this limit, the server disconnects a slow reader."""
    heartbeat: float = 2.5
    """Seconds; the link counts as lost after twice this time without a message."""
    timeout: float = 60.0
    """Seconds without progress until reading fails, reconnecting included."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a limit that is out of bounds."""
        for name in ("max_rows", "max_bytes", "pull_messages", "pull_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1.")
        if not 0.1 <= self.heartbeat <= 15 or self.timeout <= 0:
            raise ConfigError("heartbeat must be 0.1 to 15 seconds, and timeout more than 0.")


def slice_bounds(offsets: Sequence[int], limits: ReadLimits) -> Iterator[tuple[int, int]]:
    """Divide rows into slices within the limits of rows and bytes; yields (start, count) of each.

    A slice has at least one row, however large it is. `offsets`: where each payload begins, then
    where the last one ends.
    """
    start, rows = 0, len(offsets) - 1
    while start < rows:
        end_by_bytes = bisect_right(offsets, offsets[start] + limits.max_bytes, start) - 1
        end = min(max(end_by_bytes, start + 1), start + limits.max_rows, rows)
        yield start, end - start
        start = end

"""A range of a stream's sequences, and the limits of reading it."""

from __future__ import annotations

from dataclasses import dataclass

from jetspark.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SequenceRange:
    """Sequences `start` (included) to `end` (not included) of one stream.

    Deleted, expired and filtered sequences inside are normal gaps. `created` is the stream's
    creation time as planned: another one means that the sequences name other messages. Raises
    ConfigError for no range.
    """

    stream: str
    start: int
    end: int
    created: str
    subjects: tuple[str, ...] = ()
    """Only messages under one of these subjects (wildcards allowed); all when empty."""
    from_earliest: bool = False
    """The start means "the earliest message": what retention has removed since is no loss."""
    direct: bool = False
    """Read by direct gets, where a consumer would remove the messages (work queues)."""

    def __post_init__(self) -> None:
        if self.start < 1 or self.end < self.start:
            raise ConfigError(f"Not a range of sequences: {self.start} to {self.end}.")

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class ReadLimits:
    """How a range is cut into batches, and how long reading may stall. Raises ConfigError."""

    max_rows: int = 30_000
    """Rows in one record batch at most."""
    max_bytes: int = 8 * 1024 * 1024
    """Bytes in one record batch at most, unless a single message is larger."""
    pull_messages: int = 20_000
    """Messages asked for in one pull request; two are under way at a time."""
    pull_bytes: int = 16 * 1024 * 1024
    """Bytes asked for in one pull request. Without a limit, a server cuts off a slow reader."""
    heartbeat: float = 2.5
    """Seconds; twice this without any message means that the server is gone."""
    timeout: float = 60.0
    """Seconds without progress after which reading fails, reconnecting included."""

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes", "pull_messages", "pull_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1.")
        if not 0.1 <= self.heartbeat <= 15 or self.timeout <= 0:
            raise ConfigError("heartbeat must be 0.1 to 15 seconds, and timeout more than 0.")

"""Messages that queries lose with failOnDataLoss=false, gathered from Spark's processes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from jetspark.cli.folders import temporary_folder
from jetspark.cli.formatting import format_count
from jetspark.ranges.losses import LOSSES_VARIABLE, Loss
from jetspark.wire.documents import decode_json

logger = logging.getLogger("jetspark.cli")

_GATHER_SECONDS = 5.0
"""Seconds within which the partitions of a batch report their losses, for one line."""

Ranges: TypeAlias = list[tuple[int, int]]
"""First and last sequence of each part of a loss; parts may overlap."""


class Losses:
    """Messages that the queries of one command could not read any more, with failOnDataLoss=false.

    Spark's processes append each loss to a file; this object reads it, and logs each loss once.
    """

    def __init__(self) -> None:
        """Begin without lost messages; `gathered` makes the file in which Spark reports them."""
        self._file: Path | None = None
        self._bytes_read = 0
        """How much of the file has been read."""
        self._losses: list[Loss] = []
        self._reported: list[str] = []
        """The sentences that the last report had."""
        self._report_at: float | None = None
        """When to log the losses that are new, by the monotonic clock."""

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather in the block which messages Spark's processes found lost; log the rest at its end.

        The processes inherit an environment variable with the file to which they report.
        """
        with temporary_folder("jetspark-losses-") as folder:
            self._file = folder / "losses"
            os.environ[LOSSES_VARIABLE] = str(self._file)
            try:
                yield
            finally:
                del os.environ[LOSSES_VARIABLE]
                self.report(at_once=True)

    @property
    def messages(self) -> dict[str, int]:
        """Maximum number of messages lost, by stream; some may have been deleted before."""
        ranges: dict[str, Ranges] = {}
        for loss in self._losses:
            if loss.last:  # 0: the lost sequences are not known
                ranges.setdefault(loss.stream, []).append((loss.first, loss.last))
        return {stream: _count_sequences(parts) for stream, parts in ranges.items()}

    @property
    def sentences(self) -> list[str]:
        """Sentences about all lost messages so far; parts of one loss are put together.

        Each partition of a Spark query reports its own part: a range of sequences, or only a text.
        """
        sentences: dict[tuple[str, str], str] = {}
        ranges: dict[tuple[str, str, str], Ranges] = {}
        for loss in self._losses:
            if loss.last:
                # The text is only what happened, such as "removed"; the range gives the rest.
                key = (loss.stream, loss.text, loss.key)
                ranges.setdefault(key, []).append((loss.first, loss.last))
            else:  # a whole sentence; the key is the same for other words about the same loss
                sentences.setdefault((loss.stream, loss.key or loss.text), loss.text)
        described = (
            _describe_lost_sequences(stream, verb, parts)
            for (stream, verb, _), parts in ranges.items()
        )
        return [*sentences.values(), *described]

    def report(self, *, at_once: bool = False) -> None:
        """Log newly found losses: messages that were gone before a query could read them.

        To be called again and again: it waits some seconds after the first, until the parts of all
        partitions have come. `at_once`: do not wait.
        """
        if self._read_new_losses() and self._report_at is None:
            self._report_at = time.monotonic() + _GATHER_SECONDS
        if self._report_at is None or not (at_once or time.monotonic() >= self._report_at):
            return
        sentences = self.sentences
        for sentence in sentences:
            if sentence not in self._reported:
                logger.warning("%s", sentence)
        self._reported, self._report_at = sentences, None

    def _read_new_losses(self) -> bool:
        """Read what Spark's processes have newly reported as lost; True if there is anything."""
        lines = b""
        if self._file is not None:
            with suppress(FileNotFoundError), self._file.open("rb") as file:
                file.seek(self._bytes_read)
                # What follows the last line end is a line that is still being written.
                lines, newline, _ = file.read().rpartition(b"\n")
                self._bytes_read += len(lines + newline)
        self._losses += [decode_json(line, Loss, "loss") for line in lines.splitlines()]
        return bool(lines)


def _describe_lost_sequences(stream: str, verb: str, ranges: Ranges) -> str:
    """Describe lost sequences: "Stream 'S': up to 2 messages (sequences 1 to 2) were removed."

    `verb`: what happened to them, such as "removed"; `ranges`: first and last of each part.
    """
    count = _count_sequences(ranges)
    first, last = min(first for first, _ in ranges), max(last for _, last in ranges)
    sequences = f"sequence {first}" if first == last else f"sequences {first} to {last}"
    # "Up to": some may have been deleted or replaced before, which is not a loss.
    return (
        f"Stream {stream!r}: up to {format_count(count, 'message')} ({sequences}) "
        f"{'was' if count == 1 else 'were'} {verb}."
    )


def _count_sequences(ranges: Ranges) -> int:
    """Count the different sequences in ranges (first, last), which may overlap."""
    count = counted_to = 0  # all sequences up to `counted_to` have been counted, if they are lost
    for first, last in sorted(ranges):
        count += max(0, last - max(first - 1, counted_to))
        counted_to = max(counted_to, last)
    return count

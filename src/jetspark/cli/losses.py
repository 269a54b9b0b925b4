"""Messages that queries lose with failOnDataLoss=false, gathered from Spark's processes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jetspark.cli.folders import temporary_folder
from jetspark.cli.formatting import format_count
from jetspark.ranges.losses import LOSSES_VARIABLE, Loss
from jetspark.wire.documents import decode_json

logger = logging.getLogger("jetspark.cli")

_GATHER_SECONDS = 5.0
"""Seconds within which the partitions of a batch report their losses, for one line."""


class Losses:
    """The losses of one command; each is reported once."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._read = 0
        self._recorded: list[Loss] = []
        self._reported: list[str] = []
        self._due: float | None = None

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather the losses of Spark's processes in the block; report the others at its end."""
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
        """Maximum number of messages lost, by stream."""
        parts: dict[str, list[tuple[int, int]]] = {}
        for loss in self._recorded:
            if loss.last:
                parts.setdefault(loss.stream, []).append((loss.first, loss.last))
        return {stream: _count(some) for stream, some in parts.items()}

    @property
    def sentences(self) -> list[str]:
        """All losses so far, with one sentence for the sequences of a stream."""
        return _sentences(self._recorded)

    def report(self, *, at_once: bool = False) -> None:
        """Warn of losses found some seconds ago; `at_once`: of all."""
        if self._read_new_losses() and self._due is None:
            self._due = time.monotonic() + _GATHER_SECONDS
        if self._due is not None and (at_once or time.monotonic() >= self._due):
            for sentence in self.sentences:
                if sentence not in self._reported:
                    logger.warning("%s", sentence)
            self._reported, self._due = self.sentences, None

    def _read_new_losses(self) -> bool:
        """Read the losses added to the file; returns whether there are any."""
        lines = b""
        if self._file is not None:
            with suppress(FileNotFoundError), self._file.open("rb") as file:
                file.seek(self._read)
                lines, newline, _ = file.read().rpartition(b"\n")  # the last line may be incomplete
                self._read += len(lines + newline)
        self._recorded += [decode_json(line, Loss, "loss") for line in lines.splitlines()]
        return bool(lines)


def _sentences(losses: Iterable[Loss]) -> list[str]:
    without_sequences: dict[tuple[str, str], str] = {}
    ranges: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for loss in losses:
        if loss.last:
            parts = ranges.setdefault((loss.stream, loss.text, loss.key), [])
            parts.append((loss.first, loss.last))
        else:
            without_sequences.setdefault((loss.stream, loss.key or loss.text), loss.text)
    with_sequences = (_of_sequences(s, verb, p) for (s, verb, _), p in ranges.items())
    return [*without_sequences.values(), *with_sequences]


def _of_sequences(stream: str, verb: str, parts: list[tuple[int, int]]) -> str:
    """`parts`: ranges of sequences, which may overlap."""
    count, start, end = _count(parts), min(parts)[0], max(last for _, last in parts)
    sequences = f"sequence {start}" if start == end else f"sequences {start} to {end}"
    # "Up to": some may have been deleted or replaced before, which is not a loss.
    return (
        f"Stream {stream!r}: up to {format_count(count, 'message')} ({sequences}) "
        f"{'was' if count == 1 else 'were'} {verb}."
    )


def _count(parts: list[tuple[int, int]]) -> int:
    count = end = 0
    for first, last in sorted(parts):
        count += max(0, last - max(first - 1, end))
        end = max(end, last)
    return count

"""Tells what a query leaves out with failOnDataLoss=false, as Spark's processes find it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from jetspark.bulk.losses import VARIABLE, Loss
from jetspark.cli import console
from jetspark.cli.folders import temporary_folder
from jetspark.wire.documents import decode_json

logger = logging.getLogger("jetspark.cli")

_GATHER_SECONDS = 5.0
"""So that what the partitions of a batch find is one line."""


class Losses:
    """Those of one command, each told once."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._read = 0
        self._told: list[Loss] = []
        self._new: list[Loss] = []
        self._due = 0.0

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Around Spark, whose processes tell their losses; at the end all are told."""
        with temporary_folder("jetspark-losses-") as folder:
            self._file = folder / "losses"
            os.environ[VARIABLE] = str(self._file)
            try:
                yield
            finally:
                del os.environ[VARIABLE]
                self.look(now=True)

    @property
    def sentences(self) -> list[str]:
        """All that were told; the sequences of a stream in one sentence."""
        return _sentences([], self._told)

    def look(self, *, now: bool = False) -> None:
        """Warn of those that were found some seconds ago; `now`: of all."""
        found = self._found()
        if found and not self._new:
            self._due = time.monotonic() + _GATHER_SECONDS
        self._new += found
        if self._new and (now or time.monotonic() >= self._due):
            for sentence in _sentences(self._told, self._new):
                logger.warning("%s", sentence)
            self._told += self._new
            self._new = []

    def _found(self) -> list[Loss]:
        """What was added since the last look."""
        if self._file is None:
            return []
        with suppress(FileNotFoundError), self._file.open("rb") as file:
            file.seek(self._read)
            lines, newline, _ = file.read().rpartition(b"\n")  # the rest is being written
            self._read += len(lines + newline)
            return [decode_json(line, Loss, "loss") for line in lines.splitlines()]
        return []


def _sentences(told: Sequence[Loss], new: Sequence[Loss]) -> list[str]:
    """What is new about the losses."""
    known = {(one.stream, one.key or one.said) for one in told if not one.last}
    ranges: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    sentences = []
    for loss in new:
        if loss.last:
            ranges.setdefault(_of(loss), []).append((loss.first, loss.last))
        elif (same := (loss.stream, loss.key or loss.said)) not in known:
            known.add(same)
            sentences.append(loss.said)
    for (stream, how, key), parts in ranges.items():
        before = [(one.first, one.last) for one in told if _of(one) == (stream, how, key)]
        if count := _count([*before, *parts]) - _count(before):
            first, last = min(parts)[0], max(last for _, last in parts)
            which = f"sequence {first}" if first == last else f"sequences {first} to {last}"
            # At most: some of these may have been deleted or replaced before, which is no loss.
            sentences.append(
                f"Stream {stream!r}: up to {console.counted(count, 'message')} ({which}) "
                f"{'was' if count == 1 else 'were'} {how}."
            )
    return sentences


def _of(loss: Loss) -> tuple[str, str, str]:
    return loss.stream, loss.said, loss.key


def _count(parts: Sequence[tuple[int, int]]) -> int:
    """The sequences in ranges, which may overlap."""
    count = end = 0
    for first, last in sorted(parts):
        count += max(0, last - max(first - 1, end))
        end = max(end, last)
    return count

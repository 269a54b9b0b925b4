"""The files of a table to read, planned by its library and divided into pieces for tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

PIECE_BYTES = 128 * 1024 * 1024
"""Size of the files in one piece, in bytes; a larger file is a piece of its own."""
FILE_COST = 4 * 1024 * 1024
"""Added to the size of each file for the time to open it, in bytes."""
_T = TypeVar("_T")


class Piece(Protocol):
    """Some files of one version of a table; sent to executors, so it must be picklable."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Their rows."""
        ...


def pieces_of(
    files: Iterable[_T], size: Callable[[_T], int], at_least: int = 1
) -> Iterator[Sequence[_T]]:
    """Files in groups of about the same size; at least `at_least` if there are as many files."""
    ordered = sorted(files, key=size, reverse=True)
    if not ordered:
        return
    total = sum(size(one) + FILE_COST for one in ordered)
    count = min(len(ordered), max(at_least, -(-total // PIECE_BYTES)))
    groups: list[list[_T]] = [[] for _ in range(count)]
    weights = [0] * count
    for one in ordered:
        lightest = min(range(count), key=weights.__getitem__)
        groups[lightest].append(one)
        weights[lightest] += size(one) + FILE_COST
    yield from groups

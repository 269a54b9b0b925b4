"""Why payloads in Avro and Protobuf do not fit: what their decoders have found, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeAlias

import pyarrow as pa

Misfits: TypeAlias = Iterable[tuple[int, int, bytes, bytes]]
"""Rows, a `Problem`, the path of the value in UTF-8, and of `NOT_TAKEN` the sentence."""


class Problem(IntEnum):
    """Why a payload does not fit; the numbers are those of the C kernel."""

    ENDS = 1
    LEFT_OVER = 2
    NUMBER = 3
    SIZE = 4
    BOOLEAN = 5
    UTF8 = 6
    BRANCH = 7
    SYMBOL = 8
    TIME = 9
    DECIMAL = 10
    NOT_TAKEN = 11
    TAG = 12
    DEEP = 13


class Misfit(Exception):
    """A value does not fit; for decoders in Python."""

    def __init__(self, problem: Problem, sentence: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.sentence = sentence
        self.path = ""

    def of_row(self, row: int) -> tuple[int, int, bytes, bytes]:
        """As `Misfits` has it."""
        return row, int(self.problem), self.path.encode(), self.sentence.encode()


_WHOLE: Final = {
    Problem.ENDS: "it ends too early",
    Problem.LEFT_OVER: "it has bytes left over",
    Problem.NUMBER: "a number is out of range",
    Problem.SIZE: "a size is negative, or larger than the payload",
    Problem.BOOLEAN: "a boolean is neither 0 nor 1",
    Problem.BRANCH: "a union has no branch of this number",
    Problem.SYMBOL: "an enum has no symbol of this number",
    Problem.TAG: "a field has no number, or an unknown form",
    Problem.DEEP: "groups are nested too deeply",
}
"""What is wrong with a payload as a whole: its schema may be another one."""
_VALUE: Final = {
    Problem.UTF8: "the text is not UTF-8",
    Problem.TIME: "a time outside of the years 1 to 9999",
    Problem.DECIMAL: "a number with too many digits",
}


def reasons_of(misfits: Misfits, rows: int, name: str) -> pa.StringArray:
    """The reasons of so many payloads, null where one fits. `name`: of what they should be."""
    if not misfits:
        return pa.nulls(rows, pa.string())
    reasons: list[str | None] = [None] * rows
    for row, number, path, sentence in misfits:
        problem, where = Problem(number), path.decode("utf-8", "replace").lstrip(".")
        if problem is Problem.NOT_TAKEN:
            reasons[row] = sentence.decode()
        elif problem in _VALUE:
            reasons[row] = f"{where}: {_VALUE[problem]}."
        else:
            place = f", in {where}" if where else ""
            reasons[row] = f"The payload is not {name}: {_WHOLE[problem]}{place}."
    return pa.array(reasons, pa.string())

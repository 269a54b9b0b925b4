"""The tree of a condition that skips files, as `prune` parses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Comparison:
    """A column and a value of its type."""

    column: str
    operator: str
    """=, !=, <, <=, > or >=."""
    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class IsNull:
    column: str
    negated: bool = False


@dataclass(frozen=True)
class All:
    """Every part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Some:
    """One of the parts holds."""

    parts: tuple[Condition, ...]


Condition = Comparison | IsNull | All | Some

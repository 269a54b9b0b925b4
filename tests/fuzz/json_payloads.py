"""Payloads that are JSON, nearly, which the C kernel takes or leaves without a wrong access.

With `--sanitize` the C kernel is first built with sanitizers. tests/spark/test_json_payloads.py
compares its columns with those of Spark's parser.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from itertools import accumulate

from tests.fuzz.sanitized import c_kernel
from tests.support import campaign
from tests.support.json_payloads import FIELDS, payload

_ROWS = 100


@dataclass
class Figures(campaign.Figures):
    """What the kernel has parsed."""

    parsed: int = 0


def run(runs: int = 1_000_000, seed: int = 0, sanitize: bool = False) -> Figures:
    """A run is a payload; they come by hundreds. Raises AssertionError."""
    kernel = c_kernel(sanitize=sanitize)
    from jetspark.codecs.ddl import arrow_fields
    from jetspark.codecs.json_fields import KINDS

    names = tuple(name.encode() for name in FIELDS)
    fields = arrow_fields(", ".join(f"`{name}` {kind}" for name, kind in FIELDS.items()), "json:")
    kinds = bytes(KINDS[one.type] for one in fields)
    rng = random.Random(seed)
    figures = Figures()
    for _ in range(-(-runs // _ROWS)):
        rows = [payload(rng) for _ in range(_ROWS)]
        ends = list(accumulate(map(len, rows), initial=0))
        data, offsets = b"".join(rows), struct.pack(f"={len(ends)}i", *ends)
        outside, columns = kernel.json_columns(data, offsets, names, kinds)
        assert len(columns) == len(names)
        figures.parsed += _ROWS - sum(one.bit_count() for one in outside)
        figures.count_run(_ROWS)
    return figures

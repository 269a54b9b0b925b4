"""Payloads that are JSON, nearly, which the C kernel takes or leaves without a wrong access.

`python -m tests.fuzz.json_payloads 1000000`; with `--sanitize` the C kernel is first built with
sanitizers. tests/spark/test_json_payloads.py compares its columns with those of Spark's parser.
"""

from __future__ import annotations

import random
import struct
import sys
from itertools import accumulate
from types import ModuleType

from tests.fuzz import sanitized
from tests.support.json_payloads import FIELDS, payload

_ROWS = 100


def fuzz(count: int, kernels: list[ModuleType], seed: int = 0) -> int:
    """So many payloads; how many of them the C kernel has parsed."""
    from jetspark.bulk.arrow import TYPES

    names = tuple(name.encode() for name in FIELDS)
    kinds = bytes(TYPES[kind][0] for kind in FIELDS.values())
    rng = random.Random(seed)
    c_kernel = kernels[-1]
    left = 0
    for _ in range(count // _ROWS):
        rows = [payload(rng) for _ in range(_ROWS)]
        ends = list(accumulate(map(len, rows), initial=0))
        data, offsets = b"".join(rows), struct.pack(f"={len(ends)}i", *ends)
        outside, columns = c_kernel.json_columns(data, offsets, names, kinds)
        assert len(columns) == len(names)
        left += sum(one.bit_count() for one in outside)
    return count - left


if __name__ == "__main__":
    sys.exit(sanitized.main("tests.fuzz.json_payloads", __doc__, 1_000_000, fuzz))

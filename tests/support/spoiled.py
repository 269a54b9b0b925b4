"""Bytes with something wrong about them."""

from __future__ import annotations

import random
from collections.abc import Sequence


def spoiled(data: bytes, rng: random.Random, tokens: Sequence[bytes], times: int) -> bytes:
    """So often a piece is replaced, lost, said twice or put in, or the rest is gone."""
    out = bytearray(data)
    for _ in range(times):
        at = rng.randint(0, len(out))
        to = min(len(out), at + rng.choice((1, 1, 2, 8, 40)))
        kind = rng.random()
        if kind < 0.3:
            out[at:to] = rng.randbytes(to - at)
        elif kind < 0.5:
            del out[at:to]
        elif kind < 0.7:
            out[at:at] = rng.choice(tokens)
        elif kind < 0.85:
            out[at:to] = rng.choice(tokens)
        elif kind < 0.95:
            out[at:at] = out[at:to]
        else:
            del out[at:]
    return bytes(out)

"""Damage to bytes of binary formats."""

from __future__ import annotations

import random

_BYTES = b"\x00\x01\x02\x03\x7f\x80\xff"


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The data with bytes changed, left out or put in."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(out))
        match rng.randrange(4):
            case 0:
                out[at : at + 1] = bytes([rng.choice(_BYTES)])
            case 1:
                out[at:at] = bytes(rng.choices(_BYTES, k=rng.randint(1, 11)))
            case 2:
                del out[at : at + rng.randint(1, 4)]
            case 3:
                del out[at:]
    return bytes(out)

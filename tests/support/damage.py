"""Damage to payloads."""

from __future__ import annotations

import random

BINARY = b"\x00\x01\x02\x03\x7f\x80\xff"
JSON = b'"\\,:{}[]0123456789.-+eEtfnu \n\x00\x7f\x80\xc3\xed\xff'


def damaged(rng: random.Random, data: bytes, alphabet: bytes = BINARY) -> bytes:
    """The data with bytes changed, left out or put in; bytes put in are of the alphabet."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(out))
        match rng.randrange(4):
            case 0:
                out[at : at + 1] = bytes([rng.choice(alphabet)])
            case 1:
                out[at:at] = bytes(rng.choices(alphabet, k=rng.randint(1, 11)))
            case 2:
                del out[at : at + rng.randint(1, 4)]
            case 3:
                del out[at:]
    return bytes(out)

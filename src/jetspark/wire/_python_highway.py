"""The plain-Python kernel: HighwayHash, 64 bits of it, which nats-server puts behind records."""

from __future__ import annotations

import struct

_MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_64 = 2**64 - 1
_32 = 2**32 - 1


def highway(key: bytes, data: bytes) -> int:
    """The hash of `data`; the key has 32 bytes."""
    state = _State(struct.unpack("<4Q", key))
    whole = len(data) & ~31
    for lanes in struct.iter_unpack("<4Q", data[:whole]):
        state.update(lanes)
    if len(data) > whole:
        state.rest(data[whole:])
    for _ in range(4):
        a, b, c, d = map(_swapped, state.v0)
        state.update((c, d, a, b))
    return (state.v0[0] + state.v1[0] + state.mul0[0] + state.mul1[0]) & _64


class _State:
    def __init__(self, key: tuple[int, ...]) -> None:
        self.mul0, self.mul1 = list(_MUL0), list(_MUL1)
        self.v0 = [mul ^ part for mul, part in zip(_MUL0, key, strict=True)]
        self.v1 = [mul ^ _swapped(part) for mul, part in zip(_MUL1, key, strict=True)]

    def update(self, lanes: tuple[int, ...]) -> None:
        v0, v1, mul0, mul1 = self.v0, self.v1, self.mul0, self.mul1
        for i in range(4):
            v1[i] = (v1[i] + mul0[i] + lanes[i]) & _64
            mul0[i] ^= (v1[i] & _32) * (v0[i] >> 32)
            v0[i] = (v0[i] + mul1[i]) & _64
            mul1[i] ^= (v0[i] & _32) * (v1[i] >> 32)
        for to, of in ((v0, v1), (v1, v0)):
            for i in (0, 2):
                b, a = _zipped(of[i + 1], of[i])
                to[i] = (to[i] + a) & _64
                to[i + 1] = (to[i + 1] + b) & _64

    def rest(self, data: bytes) -> None:
        """The last bytes, fewer than 32."""
        size, by_4 = len(data), len(data) & 3
        packet = bytearray(32)
        behind = data[size - by_4 :]
        packet[: size - by_4] = data[: size - by_4]
        if size & 16:
            packet[28:] = data[-4:]
        elif by_4:
            packet[16:19] = bytes((behind[0], behind[by_4 >> 1], behind[by_4 - 1]))
        for i in range(4):
            self.v0[i] = (self.v0[i] + (size << 32) + size) & _64
            halves = (self.v1[i] & _32, self.v1[i] >> 32)
            low, high = ((half << size | half >> 32 - size) & _32 for half in halves)
            self.v1[i] = low | high << 32
        self.update(struct.unpack("<4Q", packet))


def _swapped(x: int) -> int:
    return x >> 32 | (x & _32) << 32


def _zipped(b: int, a: int) -> tuple[int, int]:
    """What is added to the second and to the first of two lanes."""
    to_a = (
        ((a & 0xFF000000) | (b & 0xFF00000000)) >> 24
        | ((a & 0xFF0000000000) | (b & 0xFF000000000000)) >> 16
        | a & 0xFF0000
        | (a & 0xFF00) << 32
        | (b & 0xFF00000000000000) >> 8
        | (a << 56) & _64
    )
    to_b = (
        ((b & 0xFF000000) | (a & 0xFF00000000)) >> 24
        | b & 0xFF0000
        | (b & 0xFF0000000000) >> 16
        | (b & 0xFF00) << 24
        | (a & 0xFF000000000000) >> 8
        | (b & 0xFF) << 48
        | a & 0xFF00000000000000
    )
    return to_b, to_a

"""The pieces that the tasks of a batch report, and the decision that lists them. Values, no I/O.

docs/exactly-once.md begins with a glossary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from jetspark.wire.documents import decode_msgpack


@dataclass(frozen=True, slots=True)
class InlinePack:
    """Packed rows that are sent in the task's commit message and stored inline in the decision."""

    packed: bytes


@dataclass(frozen=True, slots=True)
class StagedPack:
    """Packed rows that are stored in the ledger's stream, at this sequence."""

    sequence: int


Pack: TypeAlias = InlinePack | StagedPack


@dataclass(frozen=True)
class Piece:
    """The rows that one task has written in one batch, in order."""

    rows: int = 0
    packs: list[Pack] = field(default_factory=list)
    digest: int = 0
    """The same for the same rows in any order (`stage`); 0: not computed."""


@dataclass(frozen=True)
class LanePlan:
    """The rows of one lane of a batch, in order."""

    previous: int
    """Sequence of the lane's last marker before this batch; 0 for none."""
    rows: int
    packs: list[Pack]


@dataclass(frozen=True)
class Decision:
    """What a batch consists of. Never changes once it is stored."""

    batch: int
    lanes: list[LanePlan]
    name: str = ""
    """The key of the writer's name (`name_key`) if it is in the ledger; empty: it may not be."""
    digest: int = 0
    """The sum of those of the pieces."""

    @property
    def rows(self) -> int:
        """Number of rows of the batch."""
        return sum(lane.rows for lane in self.lanes)


# -- as it is stored -----------------------------------------------------------------------------

# Ledgers outlive versions of this package: the names here, and bytes for an inline pack beside an
# integer for a staged one, are part of what is stored.


class _StoredLane(msgspec.Struct):
    previous: int
    rows: int
    pieces: list[bytes | int]


class _StoredDecision(msgspec.Struct, omit_defaults=True):
    batch: int
    lanes: list[_StoredLane]
    name: str = ""  # older ledgers have neither names nor digests
    digest: int = 0


def encode_decision(decision: Decision) -> bytes:
    """The message in the ledger (MessagePack)."""
    lanes = [
        _StoredLane(lane.previous, lane.rows, [_stored(one) for one in lane.packs])
        for lane in decision.lanes
    ]
    return msgspec.msgpack.encode(
        _StoredDecision(decision.batch, lanes, decision.name, decision.digest)
    )


def decode_decision(data: bytes) -> Decision:
    """From the message in the ledger. Raises DocumentError for anything else."""
    stored = decode_msgpack(data, _StoredDecision, "decision")
    return Decision(
        stored.batch,
        [
            LanePlan(lane.previous, lane.rows, [_pack(one) for one in lane.pieces])
            for lane in stored.lanes
        ],
        stored.name,
        stored.digest,
    )


def _stored(pack: Pack) -> bytes | int:
    return pack.packed if isinstance(pack, InlinePack) else pack.sequence


def _pack(stored: bytes | int) -> Pack:
    return StagedPack(stored) if isinstance(stored, int) else InlinePack(stored)

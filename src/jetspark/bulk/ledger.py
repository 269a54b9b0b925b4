"""What an exactly-once writer decided, and the rows it staged, in a stream beside the target.

The proof that rests on this stands in docs/exactly-once.md. The stream of a target T is named
T_SPARK and holds, for each writer (a Spark query, or a transaction of a batch write):

    _spark.T.ledger.<writer>           the last Decision; written by compare-and-set, never changed
    _spark.T.stage.<writer>.<piece>    rows on their way, many to a message (`outgoing.pack`)

Everything is read from the stream's leader, and what would end in an error from a leader that is
proven to lead (`Leaders.proven`). A publish whose ack was lost is resolved by reading.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from jetspark.bulk.leaders import Leaders
from jetspark.bulk.outgoing import Outgoing, in_packs, pack
from jetspark.bulk.proof import proven
from jetspark.bulk.retry import answer_within
from jetspark.bulk.stream_api import StreamAPI
from jetspark.connection.options import ConnectOptions
from jetspark.errors import LedgerError, StreamNotFoundError, WrongLastSequenceError
from jetspark.wire import js_api

_ROOM_IN_PAYLOAD = 4096
_STAGED_BYTES = 768 * 1024


class LanePlan(msgspec.Struct, frozen=True):
    """The rows of one lane of a batch, in order. Never changes once it is decided."""

    previous: int
    """Sequence of the lane's marker before this batch; 0 for none."""
    rows: int
    pieces: list[bytes | int]
    """Packed rows, or the sequence in the ledger's stream where they are staged."""


class Decision(msgspec.Struct, frozen=True):
    """What a batch consists of."""

    batch: int
    lanes: list[LanePlan]


def ledger_stream(target: str) -> str:
    """The name of the stream beside a target."""
    return f"{target}_SPARK"


def marker_subjects(target: str) -> str:
    """What the target has to listen to, besides its own subjects."""
    return f"_spark.{target}.mark.>"


class Ledger:
    """The ledger of one writer to one target. `timeout`: seconds of retrying over lost links."""

    def __init__(
        self, options: ConnectOptions, target: str, writer: str, *, timeout: float = 60.0
    ) -> None:
        self._target = target
        self._writer = writer
        self._timeout = timeout
        self.stream = ledger_stream(target)
        self.leaders = Leaders(options, timeout, timeout=answer_within(timeout))

    def _publish(self, subject: str, data: bytes, expected: int, *, rollup: bool = False) -> int:
        """Store it as the successor of `expected`; its sequence. Raises WrongLastSequenceError."""
        block = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence:%d\r\n%b\r\n" % (
            expected,
            b"Nats-Rollup:sub\r\n" if rollup else b"",
        )

        def once(api: StreamAPI) -> int:
            try:
                frame = api.link.request(subject, data, answer_within(self._timeout), block)
                answer: dict[str, Any] = msgspec.json.decode(frame[4])
                if error := answer.get("error"):
                    raise js_api.error_of(error, {"stream": self.stream})
                return int(answer["seq"])
            except WrongLastSequenceError:
                stored = proven(
                    api, [self.stream], lambda api: api.message(self.stream, last_by_subj=subject)
                )
                if stored is not None and stored.data == data and stored.seq > expected:
                    return stored.seq  # the ack of an earlier attempt was lost
                raise

        return self.leaders.ask(once)

    # -- decisions -----------------------------------------------------------------------------

    def last_decision(self) -> tuple[int, Decision] | None:
        """The newest decision and its sequence, None for a writer that never decided."""
        stored = self.leaders.message(self.stream, last_by_subj=self._ledger_subject)
        if stored is None:
            return None
        try:
            return stored.seq, msgspec.msgpack.decode(stored.data, type=Decision)
        except msgspec.MsgspecError as error:
            raise LedgerError(f'The ledger "{self.stream}" is unreadable: {error}.') from None

    def decide(self, decision: Decision, after: int) -> int:
        """Write a decision behind the one at sequence `after`; its own sequence.

        Raises WrongLastSequenceError when another one is there meanwhile.
        """
        data = msgspec.msgpack.encode(decision)
        return self._publish(self._ledger_subject, data, after, rollup=True)

    # -- staging -------------------------------------------------------------------------------

    def stage(self, rows: Iterable[Outgoing]) -> list[int]:
        """Store rows in order; the sequences where they are. Exactly once for this call."""
        subject = self._new_stage_subject()
        sequences: list[int] = []
        for rows_of_pack in in_packs(rows, self._pack_bytes()):
            last = sequences[-1] if sequences else 0
            sequences.append(self._publish(subject, pack(rows_of_pack), last))
        return sequences

    def stage_pack(self, packed: bytes) -> int:
        """Store rows that are packed already; the sequence where they are."""
        return self._publish(self._new_stage_subject(), packed, 0)

    def _new_stage_subject(self) -> str:
        return f"_spark.{self._target}.stage.{self._writer}.{secrets.token_hex(8)}"

    def _pack_bytes(self) -> int:
        limit = self.leaders.ask(lambda api: api.link.info.max_payload)
        return min(_STAGED_BYTES, limit - _ROOM_IN_PAYLOAD)

    def staged(self, seq: int) -> bytes:
        """The packed rows at a sequence. Raises LedgerError when they are gone."""
        stored = self.leaders.message(self.stream, seq=seq)
        if stored is None:
            raise LedgerError(
                f"The staged rows at sequence {seq} of stream {self.stream!r} are gone, so the "
                "decided batch cannot be finished."
            )
        return stored.data

    def forget_staged(self, before: int) -> None:
        """Remove the writer's staged rows before a sequence, those of lost attempts too."""
        subject = f"_spark.{self._target}.stage.{self._writer}.>"
        self.leaders.ask(lambda api: api.purge(self.stream, before, [subject]))

    # -- the stream ----------------------------------------------------------------------------

    def make_stream(self, replicas: int) -> None:
        """Make the ledger's stream if it is not there."""
        config = {
            "name": self.stream,
            "description": f"What Spark's exactly-once writers to {self._target} decided",
            "subjects": [f"_spark.{self._target}.{kind}.>" for kind in ("ledger", "stage")],
            "allow_rollup_hdrs": True,
            "num_replicas": replicas,
        }

        def once(api: StreamAPI) -> None:
            try:
                api.stream(self.stream)
            except StreamNotFoundError:
                api.call(js_api.STREAM_CREATE, config, stream=self.stream)

        self.leaders.ask(once)

    @property
    def _ledger_subject(self) -> str:
        return f"_spark.{self._target}.ledger.{self._writer}"

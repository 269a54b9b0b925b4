"""The ledger of an exactly-once writer: its decisions and staged rows, in a stream of their own.

The stream of a target T is named T_SPARK and holds, for each writer (a streaming query, or the
transaction of a batch write):

    _spark.T.ledger.<writer>           the last Decision; written by compare-and-set, never changed
    _spark.T.ledger.name.<digest>      which writer has a name; see docs/exactly-once.md
    _spark.T.stage.<writer>.<piece>    the staged packs of one piece

docs/exactly-once.md has the glossary and the proof. Everything is read from the stream's
leader, and from one that is proven to lead before it ends in an error (`Leaders.proven`). A publish
whose ack was lost is resolved by reading.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from jetspark.bulk.decision import (
    Decision,
    InlinePack,
    Pack,
    Piece,
    StagedPack,
    decode_decision,
    encode_decision,
)
from jetspark.bulk.encoded_messages import EncodedMessage, in_packs, pack, unpack
from jetspark.bulk.leaders import Leaders
from jetspark.bulk.proof import proven
from jetspark.bulk.retry import answer_within
from jetspark.bulk.stream_api import StreamAPI
from jetspark.connection.options import ConnectOptions
from jetspark.errors import DocumentError, LedgerError, StreamNotFoundError, WrongLastSequenceError
from jetspark.wire import js_api

_ROOM_IN_PAYLOAD = 4096
_STAGED_BYTES = 768 * 1024


def ledger_stream(target: str) -> str:
    """The name of the stream beside a target."""
    return f"{target}_SPARK"


def marker_subjects(target: str) -> str:
    """The subject of markers, which the target needs besides its own subjects."""
    return f"_spark.{target}.mark.>"


def name_key(name: str) -> str:
    """The digest of a name, for its subject: a name may be a long or private path."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


class Ledger:
    """The ledger of one writer to one target.

    Every method asks the server, for `timeout` seconds also over new links, and then raises as
    `Leaders.ask`.
    """

    def __init__(
        self, options: ConnectOptions, target: str, writer: str, *, timeout: float = 60.0
    ) -> None:
        self.stream = ledger_stream(target)
        self.leaders = Leaders(options, timeout, timeout=answer_within(timeout))
        self._target = target
        self._writer = writer
        self._staging = f"_spark.{target}.stage.{writer}"
        self._answer_within = answer_within(timeout)

    def make_stream(self, replicas: int) -> None:
        """Create the ledger's stream if it does not exist. Raises APIError."""
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

    # -- decisions -----------------------------------------------------------------------------

    def last_decision(self, writer: str | None = None) -> tuple[int, Decision] | None:
        """The sequence of the last decision, and the decision; None if there is none.

        `writer`: of another writer. Raises StreamNotFoundError, LedgerError for an unreadable one.
        """
        subject = self._decisions(writer or self._writer)
        stored = self.leaders.message(self.stream, last_by_subj=subject)
        if stored is None:
            return None
        try:
            return stored.seq, decode_decision(stored.data)
        except DocumentError as error:
            raise LedgerError(f'The ledger "{self.stream}" is unreadable: {error.why}.') from None

    def decide(self, decision: Decision, after: int) -> int:
        """Store a decision as the successor of the one at sequence `after`; returns its sequence.

        Raises WrongLastSequenceError if `after` is not the last one.
        """
        subject = self._decisions(self._writer)
        return self._publish(subject, encode_decision(decision), after, rollup=True)

    def _decisions(self, writer: str) -> str:
        return f"_spark.{self._target}.ledger.{writer}"

    # -- names ---------------------------------------------------------------------------------

    def named(self, name: str) -> tuple[int, str] | None:
        """The sequence of a name's entry, and the writer that has the name; None if there is none.

        Raises StreamNotFoundError.
        """
        stored = self.leaders.message(self.stream, last_by_subj=self._entry(name))
        return None if stored is None else (stored.seq, stored.data.decode("utf-8", "replace"))

    def take_name(self, name: str, after: int) -> None:
        """Give a name to this writer, as the successor of the entry at sequence `after`.

        Raises WrongLastSequenceError if `after` is not the last one.
        """
        self._publish(self._entry(name), self._writer.encode(), after, rollup=True)

    def _entry(self, name: str) -> str:
        return self._decisions(f"name.{name_key(name)}")

    # -- staging -------------------------------------------------------------------------------

    def stage(self, rows: Iterable[EncodedMessage]) -> Piece:
        """Pack rows and store the packs in order, each exactly once.

        Raises APIError if the stream refuses one.
        """
        subject = self._new_subject()
        packs: list[Pack] = []
        count = last = 0
        for messages in in_packs(rows, self._pack_bytes()):
            last = self._publish(subject, pack(messages), last)
            packs.append(StagedPack(last))
            count += len(messages)
        return Piece(count, packs)

    def stage_pack(self, inline: InlinePack) -> StagedPack:
        """Store one pack unchanged. Raises APIError if the stream refuses it."""
        return StagedPack(self._publish(self._new_subject(), inline.packed, 0))

    def rows_of(self, one: Pack) -> list[EncodedMessage]:
        """The rows of a pack. Raises LedgerError for a staged pack that is gone."""
        if isinstance(one, InlinePack):
            return unpack(one.packed)
        stored = self.leaders.message(self.stream, seq=one.sequence)
        if stored is None:
            raise LedgerError(
                f"The staged rows at sequence {one.sequence} of stream {self.stream!r} are gone, "
                "so the decided batch cannot be finished."
            )
        return unpack(stored.data)

    def forget_staged(self, before: int) -> None:
        """Remove the writer's packs before a sequence, including those of failed attempts."""
        self.leaders.ask(lambda api: api.purge(self.stream, before, [f"{self._staging}.>"]))

    def _new_subject(self) -> str:
        return f"{self._staging}.{secrets.token_hex(8)}"

    def _pack_bytes(self) -> int:
        limit = self.leaders.ask(lambda api: api.link.info.max_payload)
        return min(_STAGED_BYTES, limit - _ROOM_IN_PAYLOAD)

    def _publish(self, subject: str, data: bytes, expected: int, *, rollup: bool = False) -> int:
        """Store a message as the successor of `expected` on its subject; returns its sequence.

        Raises WrongLastSequenceError if `expected` is not the last one, APIError for others.
        """
        block = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence:%d\r\n%b\r\n" % (
            expected,
            b"Nats-Rollup:sub\r\n" if rollup else b"",
        )

        def once(api: StreamAPI) -> int:
            try:
                frame = api.link.request(subject, data, self._answer_within, block)
                names = {"stream": self.stream}
                return int(js_api.parse_document("Publishing", frame.payload, names)["seq"])
            except WrongLastSequenceError:
                stored = proven(
                    api, [self.stream], lambda api: api.message(self.stream, last_by_subj=subject)
                )
                if stored is not None and stored.data == data and stored.seq > expected:
                    return stored.seq  # the ack of an earlier attempt was lost
                raise

        return self.leaders.ask(once)

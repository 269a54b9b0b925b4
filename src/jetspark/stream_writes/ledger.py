"""The ledger of exactly-once writers: what was decided, and the rows that tasks staged.

The ledger of a target T is the stream T_SPARK. For each writer (a streaming query, or the
transaction of a batch write) it holds:

    _spark.T.ledger.<writer>           the last Decision, written by compare-and-set
    _spark.T.ledger.name.<digest>      which writer has a name; see docs/exactly-once.md
    _spark.T.stage.<writer>.<task>     the staged packs of one task

Everything is read from the stream's leader, and from a proven one before an error. Reading also
resolves a publish whose ack was lost.

Ledgers outlive versions of this package, so the field names of decisions and lanes are part of the
stored form, as are bytes for an inline pack and an integer for a staged one. A lane is the part of
a batch whose rows keep their order; lanes are copied concurrently.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias
from zlib import crc32

import msgspec

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.links.leaders import Leaders, linearizable_read
from jetspark.links.retry import answer_timeout
from jetspark.links.stream_api import StreamAPI
from jetspark.stream_writes.encoded_messages import (
    EncodedMessage,
    pack_messages,
    packed_size_of,
    split_into_packs,
    unpack_messages,
)
from jetspark.wire import js_api
from jetspark.wire.documents import decode_msgpack

Pack: TypeAlias = bytes | int
"""Packed rows: inline in the task's commit message and the decision; or their sequence in the
ledger's stream.
"""


@dataclass(frozen=True)
class TaskRows:
    """The rows that one task wrote in one batch, in order: packed, inline or staged."""

    rows: int = 0
    packs: list[Pack] = field(default_factory=list)
    digest: int = 0
    """A digest of the rows in any order; 0 if it was not computed (`Ledger.stage`)."""


class LanePlan(msgspec.Struct, frozen=True):
    """The rows of one lane of a batch, in order; lanes are copied concurrently."""

    previous: int
    """Sequence of the lane's last marker before this batch; 0 for none."""
    rows: int
    packs: list[Pack] = msgspec.field(name="pieces")


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a batch, which every attempt copies; it never changes once it is stored."""

    batch: int
    lanes: list[LanePlan]
    name: str = ""
    """The key of the writer's name (`name_key`) if the ledger has it; empty: it may not."""
    digest: int = 0
    """The sum of the tasks' digests. Older ledgers have neither names nor digests."""

    @property
    def rows(self) -> int:
        """Number of rows of the batch."""
        return sum(lane.rows for lane in self.lanes)


class StoredDecision(NamedTuple):
    """A decision in the ledger, and its sequence there."""

    seq: int
    decision: Decision


class NameEntry(NamedTuple):
    """An entry of the ledger: which writer has a name."""

    seq: int
    writer: str


def decode_decision(data: bytes) -> Decision:
    """The decision in a message of the ledger. Raises DocumentError for anything else."""
    return decode_msgpack(data, Decision, "decision")


_MAX_OVERHEAD_BYTES = 4096
"""Bytes of a message besides the pack: subject and headers."""
_MAX_TASK_INLINE_BYTES = 16 * 1024
"""Bytes of a task's rows that go into the decision itself; more are staged."""
_MAX_STAGED_BYTES = 768 * 1024


def ledger_stream(target: str) -> str:
    """The name of the ledger's stream for a target."""
    return f"{target}_SPARK"


def marker_subjects(target: str) -> str:
    """The subject of markers, which the target needs in addition to its own subjects."""
    return f"_spark.{target}.mark.>"


def name_key(name: str) -> str:
    """The digest of a name, for its subject: a name may be a long or private path."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


class Ledger:
    """Reads and writes the ledger of one writer to one target: its decisions and staged rows.

    A decision is the content of a batch; staged rows wait in the ledger's stream until they are
    copied. Every method asks the server for up to `timeout` seconds, also over new links, and
    raises the errors of `Leaders.call`.
    """

    def __init__(
        self, options: ConnectOptions, target: str, writer: str, *, timeout: float = 60.0
    ) -> None:
        """`target`: the stream that `writer`, a query's or transaction's id, writes to."""
        self.stream = ledger_stream(target)
        self.leaders = Leaders(options, timeout, timeout=answer_timeout(timeout))
        self.options, self.timeout = options, timeout
        self.target, self.writer = target, writer
        self._staging = f"_spark.{target}.stage.{writer}"
        self._answer_within = answer_timeout(timeout)

    def make_stream(self, replicas: int) -> None:
        """Create the stream in which the ledger is stored, unless it exists. Raises APIError."""
        config = {
            "name": self.stream,
            "description": f"What Spark's exactly-once writers to {self.target} decided",
            "subjects": [f"_spark.{self.target}.{kind}.>" for kind in ("ledger", "stage")],
            "allow_rollup_hdrs": True,
            "num_replicas": replicas,
        }

        def create_if_missing(api: StreamAPI) -> None:
            if api.config_if_any(self.stream) is None:
                api.create(config)

        self.leaders.call(create_if_missing)

    # -- decisions -----------------------------------------------------------------------------

    def last_decision(self, writer: str | None = None) -> StoredDecision | None:
        """Read the last decision of this writer, or of another `writer`; None if there is none.

        A decision is the content of a batch. Raises StreamNotFoundError, LedgerError for an
        unreadable decision.
        """
        subject = self._decision_subject(writer or self.writer)
        stored = self.leaders.message(self.stream, last_by_subj=subject)
        if stored is None:
            return None
        try:
            return StoredDecision(stored.seq, decode_decision(stored.data))
        except errors.DocumentError as error:
            raise errors.LedgerError(
                f'The ledger "{self.stream}" is unreadable: {error.reason}.'
            ) from None

    def decide(self, decision: Decision, after: int) -> int:
        """Store this writer's next decision, the content of a batch; returns its sequence.

        `after`: the sequence of the decision before, 0 for none. Raises WrongLastSequenceError if
        that is not the last one.
        """
        subject = self._decision_subject(self.writer)
        return self._publish(subject, msgspec.msgpack.encode(decision), after, rollup=True)

    def _decision_subject(self, writer: str) -> str:
        return f"_spark.{self.target}.ledger.{writer}"

    # -- names ---------------------------------------------------------------------------------

    def find_name(self, name: str) -> NameEntry | None:
        """Read which writer has a name; None if no writer has it. Raises StreamNotFoundError."""
        stored = self.leaders.message(self.stream, last_by_subj=self._name_subject(name))
        if stored is None:
            return None
        return NameEntry(stored.seq, stored.data.decode("utf-8", "replace"))

    def take_name(self, name: str, after: int) -> None:
        """Record that this writer has a name from now on.

        `after`: the sequence of the name's entry before, 0 for none. Raises WrongLastSequenceError
        if that is not the last one.
        """
        self._publish(self._name_subject(name), self.writer.encode(), after, rollup=True)

    def _name_subject(self, name: str) -> str:
        return self._decision_subject(f"name.{name_key(name)}")

    # -- staging -------------------------------------------------------------------------------

    def stage(self, rows: Iterable[EncodedMessage], *, digest: bool = False) -> TaskRows:
        """Pack a task's rows into few payloads, and store these in the ledger, each exactly once.

        Returns what the decision on the batch needs to know of them. Rows that fit into one small
        pack stay inline, and are not stored yet. `digest`: lets `ExactlyOnceWriter.commit` refuse
        other rows than those that an earlier attempt decided. Raises APIError if the stream refuses
        a pack.
        """
        remaining = iter(rows)
        first_rows: list[EncodedMessage] = []
        size = 0
        for row in remaining:
            first_rows.append(row)
            size += packed_size_of(row)
            if size > _MAX_TASK_INLINE_BYTES:
                break
        else:  # all of them fit
            inline: list[Pack] = [pack_messages(first_rows)] if first_rows else []
            return TaskRows(len(first_rows), inline, _digest(first_rows) if digest else 0)
        subject = self._new_stage_subject()
        max_payload = self.leaders.call(lambda api: api.link.info.max_payload)
        max_pack_bytes = min(_MAX_STAGED_BYTES, max_payload - _MAX_OVERHEAD_BYTES)
        staged: list[Pack] = []
        count = digest_sum = last = 0
        for messages in split_into_packs(chain(first_rows, remaining), max_pack_bytes):
            last = self._publish(subject, pack_messages(messages), last)
            staged.append(last)
            count += len(messages)
            digest_sum += _digest(messages) if digest else 0
        return TaskRows(count, staged, digest_sum)

    def stage_pack(self, packed: bytes) -> int:
        """Store a pack, a payload with many rows; returns its sequence. Raises APIError."""
        return self._publish(self._new_stage_subject(), packed, 0)

    def unpack_rows(self, pack: Pack) -> list[EncodedMessage]:
        """Unpack the rows of a pack, which is read from the ledger if it was staged there.

        Raises LedgerError for a staged pack that is gone.
        """
        if isinstance(pack, bytes):
            return unpack_messages(pack)
        stored = self.leaders.message(self.stream, seq=pack)
        if stored is None:
            raise errors.LedgerError(
                f"The staged rows at sequence {pack} of stream {self.stream!r} are gone, so the "
                "decided batch cannot be finished."
            )
        return unpack_messages(stored.data)

    def purge_staged(self, before: int) -> None:
        """Remove this writer's staged rows before a sequence, also those of failed attempts."""
        self.leaders.call(lambda api: api.purge(self.stream, before, [f"{self._staging}.>"]))

    def _new_stage_subject(self) -> str:
        """A subject of its own for the packs of one task."""
        return f"{self._staging}.{secrets.token_hex(8)}"

    def _publish(self, subject: str, data: bytes, expected: int, *, rollup: bool = False) -> int:
        """Store a message if the subject's last one is at sequence `expected` (0: none).

        Returns the message's sequence, also when an earlier try had stored it. `rollup`: it
        replaces all messages of the subject. Raises WrongLastSequenceError if `expected` is not the
        last one, APIError for other refusals.
        """
        block = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence:%d\r\n%b\r\n" % (
            expected,
            b"Nats-Rollup:sub\r\n" if rollup else b"",
        )

        def publish_once(api: StreamAPI) -> int:
            """Publish over one link; recognize that an earlier try, without an ack, was stored."""
            try:
                frame = api.link.request(subject, data, self._answer_within, block)
                names = {"stream": self.stream}
                return int(js_api.parse_document("Publishing", frame.payload, names)["seq"])
            except errors.WrongLastSequenceError:
                stored = linearizable_read(
                    api, [self.stream], lambda api: api.message(self.stream, last_by_subj=subject)
                )
                if stored is not None and stored.data == data and stored.seq > expected:
                    return stored.seq  # the ack of an earlier attempt was lost
                raise

        return self.leaders.call(publish_once)


def _digest(rows: Iterable[EncodedMessage]) -> int:
    """Compute a digest of rows that is the same in any order, and with any partitions.

    It is the sum of the rows' checksums.
    """
    return sum(
        crc32(payload, crc32(block or b"", crc32(subject))) for subject, block, payload in rows
    )

"""Offsets as Spark's checkpoint keeps them.

Each stream has the next sequence to read, the stream's creation time (which identifies a recreated
one), and the start that the query resolved when it began. Spark logs the end of a batch before it
runs the batch, but never the initial offset. So every end includes the start, and the first end
differs from the initial offset even when there is nothing to read yet. Spark then logs it, and from
then on no crash or restart can move the start.

A query that removes messages that it has read has a token, which `claims` explains, and of a stream
by interest the name of the consumer that keeps its messages.

Each end also has the stream's last message at that time, by which `stream_identity` finds a stream
that was replaced by another copy of itself.

Spark compares offsets as JSON text, so the keys have one canonical order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jetspark.errors import ConfigError, DocumentError
from jetspark.links.stream_facts import LastMessage, Witness
from jetspark.wire.documents import convert_document

_VERSION = 1


class StreamOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a streaming query is in one stream, in sequences, as Spark's checkpoint keeps it."""

    created: str
    """The creation time of the stream; a recreated one has another."""
    next: int
    """The first sequence not yet read."""
    start: int
    """The sequence at which this query began in this stream."""
    earliest: bool = False
    """Whether the start was resolved from "earliest"."""
    initial: bool = False
    """True while the offset was only resolved, and is not in Spark's log yet."""
    last: LastMessage | None = None
    """The stream's last message when this offset was planned.

    None while the offset is initial, and if the stream never had a message.
    """
    missing: bool = msgspec.field(default=False, name="gone")
    """The stream was gone, and the query continued without it (`failOnDataLoss=false`).

    The offset stays, so that a stream that was only out of reach is not read again.
    """
    witness: Witness | None = None
    """A known message, by which "replaced by a newer one" is told apart from "deleted".

    Only for streams in which newer messages replace older ones: the first message not yet read
    when this offset was planned, or else the last one.
    """

    @property
    def last_known(self) -> int:
        """The highest sequence that the stream is known to have had: read, or seen as the last one.

        A stream that now ends before it has lost messages.
        """
        return max(self.next - 1, self.last.seq if self.last else 0)


def to_json(
    offsets: Mapping[str, StreamOffset], token: str | None = None, consumer: str | None = None
) -> dict[str, Any]:
    """Encode a query's offsets, by stream, as the document that Spark keeps in the checkpoint.

    Keys are sorted at every level, since Spark compares offsets as text. `token`: of a query that
    removes what it has read (see `claims`); `consumer`: its `interestConsumer`.
    """
    optional = {"query": token, "consumer": consumer}
    document = {"streams": offsets, "version": _VERSION}
    document |= {key: value for key, value in optional.items() if value}
    encoded: dict[str, Any] = msgspec.to_builtins(document, order="sorted")
    return encoded


def query_token(document: Mapping[str, Any]) -> str | None:
    """The token in an offset of the checkpoint, by which a query knows its claims.

    None for a query that removes nothing from the streams, so that it needs no claims.
    """
    return document.get("query")


def query_consumer(document: Mapping[str, Any]) -> str | None:
    """The consumer that keeps the query's messages, by an offset of the checkpoint; None: none."""
    return document.get("consumer")


def from_json(document: dict[str, Any]) -> dict[str, StreamOffset]:
    """Decode an offset of Spark's checkpoint to the offsets by stream.

    Raises ConfigError for a document that this version of jetspark has not written.
    """
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ConfigError(
            "The checkpoint was not written by this version of the jetstream source: "
            f"{str(document)[:200]}"
        )
    try:
        return convert_document(document.get("streams"), dict[str, StreamOffset], "offset")
    except DocumentError as error:
        raise ConfigError(f"The checkpoint's offset cannot be read: {error.reason}.") from None

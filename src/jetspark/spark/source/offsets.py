"""Offsets as Spark's checkpoint keeps them.

Each stream has the next sequence to read, the stream's creation time (which identifies a recreated
one), and the start that the query resolved when it began. Spark logs the end of a batch before it
runs the batch, but never the initial offset. So every end includes the start, and the first end
differs from the initial offset even when there is nothing to read yet. Spark then logs it, and from
then on no crash or restart can move the start.

A query that removes messages that it has read has a token, which `claims` explains.

Each end also has the stream's last message at that time, by which `stream_identity` finds a stream
that was replaced by another copy of itself.

Spark compares offsets as JSON text, so the keys have one canonical order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jetspark.errors import ConfigError
from jetspark.links.stream_facts import LastMessage, Witness

_VERSION = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position in one stream, in sequences of the stream."""

    created: str
    next: int
    """The first sequence not yet read."""
    start: int
    """The sequence at which this query began in this stream."""
    earliest: bool = False
    """Whether the start was resolved from "earliest"."""
    initial: bool = False
    """True while the offset was only resolved, and is not in Spark's log yet."""
    last: LastMessage | None = None
    """The stream's last message when this offset was planned; None in a checkpoint of before."""
    missing: bool = False
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
        """The last sequence that the stream is known to have had."""
        return max(self.next - 1, self.last.seq if self.last else 0)


def to_json(offsets: dict[str, StreamOffset], token: str | None = None) -> dict[str, Any]:
    """Encode offsets for Spark, in canonical order at every level."""
    streams = {name: _offset_to_json(offset) for name, offset in sorted(offsets.items())}
    of_query = {} if token is None else {"query": token}
    return of_query | {"streams": streams, "version": _VERSION}


def query_token(document: dict[str, Any]) -> str | None:
    """The token in a document; None if it has none."""
    return document.get("query")


def _offset_to_json(offset: StreamOffset) -> dict[str, Any]:
    """An offset without false fields, since Spark logs every stream in each batch."""
    document: dict[str, Any] = {"created": offset.created}
    if offset.earliest:
        document["earliest"] = True
    if offset.missing:
        document["gone"] = True
    if offset.initial:
        document["initial"] = True
    if offset.last is not None:
        document["last"] = list(offset.last)
    document |= {"next": offset.next, "start": offset.start}
    if offset.witness is not None:
        document["witness"] = list(offset.witness)
    return document


def from_json(document: dict[str, Any]) -> dict[str, StreamOffset]:
    """Decode the document of a checkpoint. Raises ConfigError for any other document or version."""
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ConfigError(
            "The checkpoint was not written by this version of the jetstream source: "
            f"{str(document)[:200]}"
        )
    try:
        return {
            name: StreamOffset(
                created=str(offset["created"]),
                next=int(offset["next"]),
                start=int(offset["start"]),
                earliest=bool(offset.get("earliest", False)),
                initial=bool(offset.get("initial", False)),
                last=LastMessage(*map(int, offset["last"])) if "last" in offset else None,
                missing=bool(offset.get("gone", False)),
                witness=Witness(int((seen := offset["witness"])[0]), str(seen[1]))
                if "witness" in offset
                else None,
            )
            for name, offset in document["streams"].items()
        }
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"The checkpoint's offset cannot be read: {error!r}.") from None

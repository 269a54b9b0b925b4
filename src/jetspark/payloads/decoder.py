"""Payloads of a batch as columns of Arrow, for formats that are decoded many rows at a time.

Whatever a payload makes its decoder raise is the reason why it is a bad record, and never ends a
batch (`reason_of`); only a registry that cannot be asked does (`BatchError`).

The payloads of one writer's schema are decoded together, and each that does not fit has its reason.
Where they would become too large together, `tolerant` tries halves, until a payload that is too
large by itself is alone: a row has the same values whatever is beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import JetsparkError, SchemaNotFoundError
from jetspark.reserved_names import CORRUPT_REASON

PAYLOAD: Final = "data"
REASON: Final = CORRUPT_REASON
"""Why a payload did not decode; null for replacements."""


class Undecodable(Exception):
    """Not all of these payloads are what they should be; says why, in a sentence."""


class BatchError(Exception):
    """Carries an `error` that no payload is to blame for, such as a registry out of reach."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def raise_batch_errors() -> Iterator[None]:
    """Errors within end the batch, except that a registry does not have a schema."""
    try:
        yield
    except SchemaNotFoundError:
        raise
    except Exception as error:
        raise BatchError(error) from None


MAX_REASON_CHARS: Final = 500


def reason_of(error: BaseException) -> str:
    """Return why a payload is a bad record when decoding it has raised `error`, as a sentence.

    This is the one place that decides what a payload can be blamed for: every exception of Python,
    of Arrow and of the formats' libraries, also a panic of one in Rust, which is no `Exception`.
    Raises `error` itself if it is something else, as when the process is to end.
    """
    if isinstance(error, BatchError | ImportError):
        raise error
    match error:
        case Undecodable() | JetsparkError():
            return shorten_reason(str(error))
        case RecursionError():
            return "The payload is nested too deeply."
        case MemoryError():
            return "The payload needs more memory than there is."
        case Exception():
            return shorten_reason(
                f"The payload cannot be decoded: {error or type(error).__name__}."
            )
    if type(error).__name__ != "PanicException":
        raise error
    return shorten_reason(f"The payload cannot be decoded: {error}.")


def shorten_reason(text: str) -> str:
    """The text as a column can have it: without lone surrogates, and of at most 500 characters."""
    cut = text if len(text) <= MAX_REASON_CHARS else f"{text[:MAX_REASON_CHARS]}…"
    return cut.encode("utf-8", "replace").decode()


class SchemaDecoder(Protocol):
    """Decodes the payloads of one writer's schema."""

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """The fields of at least one payload, null where a payload does not fit, and why. Raises
        Undecodable for payloads that are to be tried by halves."""


class SchemaKey(NamedTuple):
    """Names the schema of a payload's writer by id or name; neither: the reader's own."""

    number: int | None = None
    name: str = ""
    version: int | None = None
    message: tuple[int, ...] | str | None = None
    """Protobuf's message in the schema: its path, or its name."""


@dataclass(frozen=True)
class Unframed:
    """The payloads of a batch, out of their frames."""

    payloads: pa.BinaryArray
    keys: Sequence[SchemaKey]
    key_of_row: pa.Array
    """The number of each payload's key in `keys`."""
    reasons: pa.StringArray | None = None
    """Why there is no payload; None: there is one in each row."""


class Envelope(Protocol):
    """Undoes the compression and framing of payloads (`Framing`)."""

    def unframe(self, batch: pa.RecordBatch) -> Unframed:
        """Return the payloads of a batch."""

    def hint(self, payload: bytes) -> str:
        """Return a sentence about what may be around a payload that does not decode, or ""."""


def with_fields(columns: pa.Schema, fields: pa.Schema, payload: str = PAYLOAD) -> pa.Schema:
    """The schema of a batch with these columns, when these fields of `payload` are decoded."""
    at = columns.get_field_index(payload)
    schema = columns.set(at, pa.field(payload, pa.binary()))
    return pa.schema([*schema, *fields, pa.field(REASON, pa.string())])


def add_framing_hints(
    reasons: pa.StringArray, payloads: pa.BinaryArray, framing: Envelope
) -> pa.StringArray:
    """The reasons why payloads do not fit, with what may be around them."""
    if reasons.null_count == len(reasons):
        return reasons
    texts = reasons.to_pylist()
    for row in pc.indices_nonzero(pc.is_valid(reasons)).to_pylist():
        texts[row] += framing.hint(payloads[row].as_py())
    return pa.array(texts, pa.string())


def replace_rows(
    decoded: tuple[Sequence[pa.Array], pa.StringArray],
    replacements: tuple[Sequence[pa.Array], pa.StringArray],
    is_replaced: pa.BooleanArray,
) -> tuple[list[pa.Array], pa.StringArray]:
    """Return decoded columns and reasons, with those of `replacements` in the rows of a mask."""
    rows = len(is_replaced)
    behind_rows = pc.add(pc.cumulative_sum(is_replaced.cast(pa.int64())), rows - 1)
    order = pc.if_else(is_replaced, behind_rows, pa.array(range(rows), pa.int64()))
    columns = [
        pa.concat_arrays(pair).take(order) for pair in zip(decoded[0], replacements[0], strict=True)
    ]
    return columns, pa.concat_arrays([decoded[1], replacements[1]]).take(order)


class PayloadDecoder:
    """The fields of payloads as columns."""

    def __init__(
        self, fields: pa.Schema, framing: Envelope, decoder_of: Callable[[SchemaKey], SchemaDecoder]
    ) -> None:
        """`fields`: all of them may be null; `decoder_of`: raises Undecodable for a schema that
        cannot become these fields, and SchemaNotFoundError."""
        self.fields = fields
        self._framing = framing
        self._decoder_of = decoder_of
        self._decoders: dict[SchemaKey, SchemaDecoder | str] = {}

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""
        return with_fields(columns, self.fields)

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns."""
        columns, reasons = self.decode(self._framing.unframe(batch))
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *columns, reasons], schema=self.decoded_schema(batch.schema)
        )

    def decode(self, unframed: Unframed) -> tuple[list[pa.Array], pa.StringArray]:
        """The fields, and the reasons."""
        rows = len(unframed.payloads)
        if len(unframed.keys) == 1 and unframed.reasons is None:
            return self._joined(list(self._decode_schema(unframed.keys[0], unframed.payloads)))
        # Row numbers of the pieces, in their order.
        pieces: list[tuple[list[pa.Array] | None, pa.StringArray]] = []
        order: list[pa.Array] = []
        # What most payloads name comes first: a registry answers a limited number of questions.
        counts = dict(
            zip(*(part.to_pylist() for part in _counts(unframed.key_of_row)), strict=True)
        )
        by_use = sorted(enumerate(unframed.keys), key=lambda item: -counts.get(item[0], 0))
        for number, key in by_use:
            has_key = pc.equal(unframed.key_of_row, number)
            if unframed.reasons is not None:
                has_key = pc.and_(has_key, pc.is_null(unframed.reasons))
            rows_of_key = pc.indices_nonzero(has_key)
            if len(rows_of_key):
                order.append(rows_of_key)
                pieces += self._decode_schema(key, unframed.payloads.take(rows_of_key))
        if unframed.reasons is not None:
            rows_of_key = pc.indices_nonzero(pc.is_valid(unframed.reasons))
            order.append(rows_of_key)
            pieces.append((None, unframed.reasons.take(rows_of_key)))
        if not rows:
            return self._joined([(None, pa.nulls(0, pa.string()))])
        columns, reasons = self._joined(pieces)
        back = pc.sort_indices(pa.concat_arrays(order))
        return [column.take(back) for column in columns], reasons.take(back)

    def _joined(
        self, pieces: Sequence[tuple[list[pa.Array] | None, pa.StringArray]]
    ) -> tuple[list[pa.Array], pa.StringArray]:
        """Pieces one behind the other; those without fields have a reason in each row."""
        if len(pieces) == 1 and pieces[0][0] is not None:
            return pieces[0][0], pieces[0][1]
        columns = [
            pa.concat_arrays(
                [
                    pa.nulls(len(reasons), field.type) if piece is None else piece[at]
                    for piece, reasons in pieces
                ]
            )
            for at, field in enumerate(self.fields)
        ]
        return columns, pa.concat_arrays([reasons for _, reasons in pieces])

    def _decode_schema(
        self, key: SchemaKey, payloads: pa.BinaryArray
    ) -> Iterator[tuple[list[pa.Array] | None, pa.StringArray]]:
        """Pieces, with the reasons of each."""
        decoder = self._decoders.get(key)
        if decoder is None:
            try:
                decoder = self._decoder_of(key)
            except BaseException as error:
                decoder = reason_of(error)
            if len(self._decoders) >= _MAX_DECODERS:  # payloads can name any message of a schema
                self._decoders.clear()
            self._decoders[key] = decoder
        if isinstance(decoder, str):
            yield None, pa.repeat(pa.scalar(decoder, pa.string()), len(payloads))
        elif len(payloads):
            columns, reasons = decoder.decode(payloads)
            yield columns, add_framing_hints(reasons, payloads, self._framing)
        else:
            yield None, pa.nulls(0, pa.string())


def _counts(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The values, each once, and how often they occur."""
    counts = pc.value_counts(values)
    return counts.field("values"), counts.field("counts")


_MAX_DECODERS: Final = 1000

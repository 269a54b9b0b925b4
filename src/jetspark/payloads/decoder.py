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
"""The column of payloads."""
REASON: Final = CORRUPT_REASON
"""The column that says why a payload did not decode; null for one that did."""
MAX_REASON_CHARS: Final = 500


class Undecodable(Exception):
    """Raised when at least one of some payloads cannot be decoded; says why, in a sentence."""


class BatchError(Exception):
    """Carries an `error` that no payload has caused, and that therefore ends the whole batch: a
    registry is out of reach."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def raise_batch_errors() -> Iterator[None]:
    """Turn exceptions in the `with` block into BatchError, which ends the batch, except
    SchemaNotFoundError: a payload can cause that, by the schema that it names."""
    try:
        yield
    except SchemaNotFoundError:
        raise
    except Exception as error:
        raise BatchError(error) from None


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
    """Return a text in a form that a column can have: without lone surrogates, which UTF-8 lacks,
    and cut to `MAX_REASON_CHARS`."""
    cut = text if len(text) <= MAX_REASON_CHARS else f"{text[:MAX_REASON_CHARS]}…"
    return cut.encode("utf-8", "replace").decode()


class SchemaDecoder(Protocol):
    """Decodes the payloads of one writer's schema."""

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Return the fields of at least one payload, null where a payload does not fit, and the
        reasons why. Raises Undecodable for payloads that are to be tried by halves."""


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
    """For each payload the index of its key in `keys`."""
    reasons: pa.StringArray | None = None
    """Why there is no payload; None: there is one in each row."""


class Envelope(Protocol):
    """Undoes the compression of payloads and the frames around them (`Framing`)."""

    def unframe(self, batch: pa.RecordBatch) -> Unframed:
        """Return the payloads of a batch."""

    def hint(self, payload: bytes) -> str:
        """Return a sentence about what may be around a payload that does not decode, or ""."""


def with_fields(columns: pa.Schema, fields: pa.Schema, payload: str = PAYLOAD) -> pa.Schema:
    """Return the schema of a decoded batch: its own columns, the decoded fields, and `REASON`.
    `payload`: the column of payloads, which becomes BINARY."""
    at = columns.get_field_index(payload)
    schema = columns.set(at, pa.field(payload, pa.binary()))
    return pa.schema([*schema, *fields, pa.field(REASON, pa.string())])


def add_framing_hints(
    reasons: pa.StringArray, payloads: pa.BinaryArray, framing: Envelope
) -> pa.StringArray:
    """Return the reasons why payloads do not decode, each with a sentence about a frame that its
    payload seems to have."""
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
    """Return decoded columns and reasons in which some rows are replaced.

    `is_replaced`: true for each row that `replacements` has, in the same order.
    """
    rows = len(is_replaced)
    # Replacements are taken from behind the decoded rows, to which they are appended.
    behind_rows = pc.add(pc.cumulative_sum(is_replaced.cast(pa.int64())), rows - 1)
    order = pc.if_else(is_replaced, behind_rows, pa.array(range(rows), pa.int64()))
    columns = [
        pa.concat_arrays(pair).take(order) for pair in zip(decoded[0], replacements[0], strict=True)
    ]
    return columns, pa.concat_arrays([decoded[1], replacements[1]]).take(order)


class _Piece(NamedTuple):
    """Some rows of a batch, decoded."""

    rows: pa.Array
    """Their numbers in the batch."""
    columns: list[pa.Array]
    reasons: pa.StringArray


class PayloadDecoder:
    """Decodes payloads that name the schemas of their writers into columns, schema by schema."""

    def __init__(
        self, fields: pa.Schema, framing: Envelope, decoder_of: Callable[[SchemaKey], SchemaDecoder]
    ) -> None:
        """`fields`: the columns, each of which may be null; `framing`: undoes what is around
        payloads; `decoder_of`: returns the decoder for the schema that a payload was written with.
        It raises Undecodable for a schema that cannot become these fields, and
        SchemaNotFoundError."""
        self.fields = fields
        self._framing = framing
        self._decoder_of = decoder_of
        self._decoders: dict[SchemaKey, SchemaDecoder | str] = {}
        """For a schema that cannot be used, the reason of its payloads."""

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema of `decode_batch` for a batch with these columns."""
        return with_fields(columns, self.fields)

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the fields and `REASON` after its columns."""
        columns, reasons = self.decode(self._framing.unframe(batch))
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *columns, reasons], schema=self.decoded_schema(batch.schema)
        )

    def decode(self, unframed: Unframed) -> tuple[list[pa.Array], pa.StringArray]:
        """Return the columns of payloads, and for each payload why it does not fit, or null.
        Payloads that name the same schema are decoded together, and all are put back into their
        order."""
        if len(unframed.keys) == 1 and unframed.reasons is None:
            return self._decode_with_schema(unframed.keys[0], unframed.payloads)
        pieces: list[_Piece] = []
        # What most payloads name comes first: a registry answers a limited number of questions.
        counts = pc.value_counts(unframed.key_of_row).to_pylist()
        for count in sorted(counts, key=lambda count: -count["counts"]):
            has_key = pc.equal(unframed.key_of_row, count["values"])
            if unframed.reasons is not None:
                has_key = pc.and_(has_key, pc.is_null(unframed.reasons))
            rows = pc.indices_nonzero(has_key)
            if len(rows):
                key, payloads = unframed.keys[count["values"]], unframed.payloads.take(rows)
                pieces.append(_Piece(rows, *self._decode_with_schema(key, payloads)))
        if unframed.reasons is not None:
            rows = pc.indices_nonzero(pc.is_valid(unframed.reasons))
            pieces.append(_Piece(rows, self._null_columns(len(rows)), unframed.reasons.take(rows)))
        if not pieces:
            return self._null_columns(0), pa.nulls(0, pa.string())
        # Back into the order of the batch.
        order = pc.sort_indices(pa.concat_arrays([piece.rows for piece in pieces]))
        columns = [
            pa.concat_arrays([piece.columns[at] for piece in pieces]).take(order)
            for at in range(len(self.fields))
        ]
        return columns, pa.concat_arrays([piece.reasons for piece in pieces]).take(order)

    def _null_columns(self, rows: int) -> list[pa.Array]:
        return [pa.nulls(rows, field.type) for field in self.fields]

    def _decode_with_schema(
        self, key: SchemaKey, payloads: pa.BinaryArray
    ) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode payloads that name the same schema: return the columns, and for each payload why
        it does not fit, or null. The decoder, or why there is none, is remembered."""
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
            reasons = pa.repeat(pa.scalar(decoder, pa.string()), len(payloads))
            return self._null_columns(len(payloads)), reasons
        if not len(payloads):
            return self._null_columns(0), pa.nulls(0, pa.string())
        columns, reasons = decoder.decode(payloads)
        return columns, add_framing_hints(reasons, payloads, self._framing)


_MAX_DECODERS: Final = 1000

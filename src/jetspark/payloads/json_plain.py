"""JSON payloads as columns, without the C kernel, which leaves what is unusual to this module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.json_columns import ObjectColumns, null_rows
from jetspark.payloads.json_objects import check_utf8, parse_object

_PART_BYTES: Final = 1 << 20
"""Bytes of payloads that are decoded together."""


class PlainJsonDecoder:
    """Decodes payloads that are JSON objects into columns, without the C kernel."""

    def __init__(self, fields: pa.Schema, names: Sequence[str] | None = None) -> None:
        """`fields`: the columns; `names`: of the fields in payloads, if the columns have others.
        Raises ConfigError for a type that JSON has no values of."""
        self.schema = fields
        self._fields = ObjectColumns(list(fields), names)
        self._decode = msgspec.json.Decoder(self._fields.type).decode

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Return the columns, and for each payload why it does not fit, or null.

        A payload that is no JSON object has no values. Of one with a bad value, the column of that
        value is null.
        """
        try:
            payloads.cast(pa.string())
            is_utf8 = True
        except pa.ArrowInvalid:
            is_utf8 = False
        parts = [self._decode_part(part, is_utf8) for part in _split_payloads(payloads)]
        if len(parts) == 1:
            return parts[0]
        columns = [
            pa.concat_arrays([pa.nulls(0, field.type), *(columns[at] for columns, _ in parts)])
            for at, field in enumerate(self.schema)
        ]
        return columns, pa.concat_arrays([pa.nulls(0, pa.string()), *(part for _, part in parts)])

    def _decode_part(
        self, payloads: list[bytes | None], is_utf8: bool
    ) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode some payloads; return the columns and reasons, as `decode`. `is_utf8`: whether all
        payloads are known to be UTF-8."""
        objects: list[Any] = []
        reasons: list[str | None] = [None] * len(payloads)
        for row, payload in enumerate(payloads):
            try:
                if not is_utf8:
                    check_utf8(payload or b"")
                objects.append(parse_object(payload or b"", self._decode))
            except Undecodable as error:
                objects.append(None)
                reasons[row] = str(error)
        columns = []
        for array, bad_values in self._fields.build(objects):
            columns.append(
                null_rows(array, {bad.row for bad in bad_values}) if bad_values else array
            )
            for bad in bad_values:
                if reasons[bad.row] is None:
                    reasons[bad.row] = f"{bad.path.removeprefix('.')}: {bad.problem}."
        return columns, pa.array(reasons, pa.string())


def _split_payloads(payloads: pa.BinaryArray) -> Iterator[list[bytes | None]]:
    """Yield the payloads in parts of bounded size, so that memory is bounded."""
    part: list[bytes | None] = []
    size = 0
    for payload in payloads.to_pylist():
        part.append(payload)
        size += len(payload or b"")
        if size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part

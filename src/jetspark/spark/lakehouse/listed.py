"""A list of tables that one stream is divided into, each with its own subjects and schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.lakehouse.quarantine import Reason
from jetspark.spark.lakehouse.options import ListedTable
from jetspark.subjects import subject_matches


def divided(
    messages: pa.RecordBatch, tables: Sequence[ListedTable]
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """(number of the table, its messages); the number is None for those without a table."""
    subjects = messages.column("subject").dictionary_encode()
    found = [_number(subject, tables) for subject in subjects.dictionary.to_pylist()]
    numbers = pa.array(found, pa.int32()).take(subjects.indices)
    for number in pc.unique(numbers).to_pylist():
        chosen = pc.is_null(numbers) if number is None else pc.equal(numbers, number)
        yield number, messages.filter(chosen)


def _number(subject: str, tables: Sequence[ListedTable]) -> int | None:
    for at, table in enumerate(tables):
        if any(subject_matches(one, subject) for one in table.subjects):
            return at
    return None


def no_table(row: pa.RecordBatch) -> Reason:
    """Why a row has no table."""
    subject = row.column("subject")[0].as_py()
    return "subject", f"No table of the list takes the subject {subject}."

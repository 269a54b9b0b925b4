"""Names of columns that belong to jetspark: no field of a payload and no other column has one.

Everything that jetspark adds to rows on their way into a table is in a column whose name begins
with `_jetspark`. `_corrupt_record` has a payload that is no row, and `_corrupt_reason` says why.
A row that brought such a column itself could not be told from what jetspark wrote, so:

- a name that a user chooses is refused before anything is read (`check_names`): in a schema of any
  format, in a DataFrame for a table, for a derived column;
- a name that comes with a message, where the message decides its own fields, makes that message a
  bad record (`rejection_reason`), and never ends a query.

Only the names of columns count. A field inside of a struct may have any name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from jetspark.errors import ConfigError

PREFIX: Final = "_jetspark"
"""Begins the name of each column that jetspark adds, in any case."""
CORRUPT_RECORD: Final = "_corrupt_record"
"""The column with a payload that is no row."""
CORRUPT_REASON: Final = "_corrupt_reason"
"""The column that says why a payload is no row."""
UNFRAMED_PAYLOAD: Final = f"{PREFIX}_payload"
"""The column with payloads out of their compression and frames, on the way into a table."""
_BAD_RECORDS: Final = frozenset({CORRUPT_RECORD, CORRUPT_REASON})


def is_reserved(name: str) -> bool:
    """Whether a column of this name belongs to jetspark. Case does not count, as in Spark."""
    folded = name.casefold()
    return folded.startswith(PREFIX) or folded in _BAD_RECORDS


def check_names(prefix: str, names: Iterable[str], *, allowed: Iterable[str] = ()) -> None:
    """Raise ConfigError, which begins with `prefix`, for a reserved name that a user has chosen.

    `allowed`: reserved names that are in their place here, such as `_corrupt_record` in the rows of
    a DataFrame.
    """
    in_place = frozenset(allowed)
    for name in names:
        if name not in in_place and is_reserved(name):
            raise ConfigError(
                f"{prefix}: the name {name!r} is reserved for jetspark, as are all that begin with "
                f"{PREFIX}: give this column another name, or leave it out."
            )


def rejection_reason(names: Iterable[str]) -> str | None:
    """Why a record with fields of these names is bad, as a sentence; None if no name is reserved.

    For records that decide which fields there are, such as Debezium's events with their own schema
    and JSON payloads whose new fields become columns.
    """
    for name in names:
        if is_reserved(name):
            return f"The field {name!r} has a name that is reserved for jetspark."
    return None

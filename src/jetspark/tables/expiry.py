"""Removes the rows of a table that are too old, in one commit.

A row is as old as a column says: a timestamp before a moment, or a date whose day has ended before
it. Rows without a value stay. A file of which all rows are too old leaves the table, without a row
of it being written again; a partition by that time consists of such files. Old versions still have
the rows until a vacuum.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from jetspark.errors import ConfigError
from jetspark.nearest import check_column
from jetspark.tables.batches import commit_with_retries
from jetspark.tables.table import Expiry, Table


def expire(table: Table, column: str, before: datetime) -> Expiry:
    """Remove the rows of a table whose time in `column` is before a moment; the second time there
    are none. Queries may write the table meanwhile.

    Raises ConfigError for a column that is neither a timestamp nor a date, and for a table whose
    rows cannot be removed; TableError if others commit without a break.
    """
    check_column("--column", column, table.schema.names)
    kind, utc = table.schema.field(column).type, before.astimezone(UTC)
    if pa.types.is_date(kind):
        limit: pa.Scalar = pa.scalar(utc.date(), pa.date32())
    elif pa.types.is_timestamp(kind):
        limit = pa.scalar(utc if kind.tz else utc.replace(tzinfo=None), kind)
    else:
        raise ConfigError(
            f"--column {column}: it is {kind}, and rows are as old as a timestamp or a date says."
        )
    return commit_with_retries(
        table.name, lambda: table.delete_before(column, limit), table.refresh
    )

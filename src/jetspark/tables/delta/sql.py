"""The SQL of deltalake: conditions that skip files, and the merge of a batch of upserts."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.table import TableMerger

from jetspark.tables.changes import Changes

if TYPE_CHECKING:
    from jetspark.tables.conditions import Condition

_DELETED = "_jetspark_deleted"
"""Column of the merged rows: whether the row with this key is deleted."""


def prepare_merge(
    table: DeltaTable,
    changes: Changes,
    commit_properties: CommitProperties,
    hook_properties: PostCommitHookProperties,
) -> TableMerger:
    """A MERGE statement of deltalake, not executed yet, that inserts, replaces and deletes the rows
    of a batch of upserts. A row of the table that is newer than the change of its key stays."""
    names = [column.name for column in table.schema().fields]
    new_values = {_quote(name): _quote(name, "new") for name in names}
    same_key = " AND ".join(f"{_quote(key, 'old')} = {_quote(key, 'new')}" for key in changes.keys)
    is_newer, old_order = "TRUE", ""  # without an order, every change is newer than the table
    if changes.sequence_by is not None:
        old_order = _quote(changes.sequence_by, "old")
        is_newer = f"({old_order} IS NULL OR {_quote(changes.sequence_by, 'new')} >= {old_order})"
    is_deleted = _quote(_DELETED, "new")
    # Of the clauses for a match, the first one that applies counts.
    merge = (
        table.merge(
            changes.rows.append_column(_DELETED, changes.deleted),
            same_key,
            source_alias="new",
            target_alias="old",
            commit_properties=commit_properties,
            post_commithook_properties=hook_properties,
        )
        .when_matched_delete(f"{is_newer} AND {is_deleted}")
        .when_matched_update(new_values, is_newer)
        .when_not_matched_insert(new_values, f"NOT {is_deleted}")
    )
    if changes.truncated_before is None:
        return merge
    # A truncate removes the older rows, but not those that a change has just replaced.
    until = _to_literal(changes.truncated_before.as_py())
    return merge.when_not_matched_by_source_delete(f"{old_order} IS NULL OR {old_order} < {until}")


def to_sql(condition: Condition) -> str:
    """The condition, by which files are skipped, in the SQL of deltalake, which takes times without
    a zone for UTC."""
    from jetspark.tables.conditions import And, Comparison, IsNull, Or

    match condition:
        case Comparison():
            value = _to_literal(condition.value)
            return f"{_quote(condition.column)} {condition.operator} {value}"
        case IsNull():
            return f"{_quote(condition.column)} IS {'NOT ' if condition.negated else ''}NULL"
        case And() | Or():
            word = " AND " if isinstance(condition, And) else " OR "
            return f"({word.join(map(to_sql, condition.operands))})"


def _quote(column: str, table_alias: str | None = None) -> str:
    """The name of a column in quotation marks, as `alias."name"` if there is an alias."""
    name = '"' + column.replace('"', '""') + '"'
    return name if table_alias is None else f"{table_alias}.{name}"


def _to_literal(value: Any) -> str:
    """The SQL literal, for deltalake, of a value that came from Arrow. Times are written in UTC
    without a zone, as deltalake reads them."""
    match value:
        case datetime():
            utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return f"'{utc.isoformat(sep=' ', timespec='microseconds')}'"
        case date():
            return f"'{value.isoformat()}'"
        case str():
            text = value.replace("'", "''")
            return f"'{text}'"
        case bool():
            return "TRUE" if value else "FALSE"
        case Decimal():
            return f"{value:f}"
    return repr(value)

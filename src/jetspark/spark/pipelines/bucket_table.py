"""A table of a bucket's present values, one row for each key.

Changes reach the table in batches. Comparing the table with the bucket finds keys without a change,
whose value expired without a marker, or whose marker is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError, named
from jetspark.links.leaders import linearizable_read
from jetspark.links.stream_api import StreamAPI
from jetspark.spark.checkpoints import read_checkpoint
from jetspark.spark.local_folders import local_path
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.source_streams import leaders
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables.batches import commit_files, wrote_as
from jetspark.tables.changes import Changes
from jetspark.tables.formats import find_table
from jetspark.tables.table import Table
from jetspark.tables.upserts import Upsert

_BUCKET, _KEY, _REVISION = "bucket", "key", "revision"
_COLUMNS = (_BUCKET, _KEY, _REVISION)
_NEEDED_COLUMNS = (*_COLUMNS, "operation")
TABLE_OPTIONS: Mapping[str, str] = {
    "keys": _KEY,
    "sequenceBy": _REVISION,
    "applyAsDeletes": "operation IN ('DEL', 'PURGE')",
}
"""Options that every table of a bucket has, by their names in Spark."""


def check_table_options(options: Mapping[str, str]) -> None:
    """Raise ConfigError if the user sets an option of the table that the table of a bucket sets by
    itself, such as `keys`. `options`: the user's, by their names in Spark."""
    for name in options:
        for option, value in TABLE_OPTIONS.items():
            if name.casefold() == option.casefold():
                raise ConfigError(
                    f"{named('bucket')} sets {name} to {value!r}. For a table with other "
                    "keys write a program with readStream and writeStream."
                )


def check_source(options: SourceOptions) -> None:
    """Raise ConfigError for options of a bucket's source with which its table could lack keys, keep
    old values, or lack the columns by which changes of a key are ordered."""
    missing = [name for name in _NEEDED_COLUMNS if name not in options.columns]
    if missing:
        raise ConfigError(
            f": the table of a bucket needs {', '.join(_NEEDED_COLUMNS)}; "
            f"{', '.join(missing)} would be missing.",
            option="columns",
        )
    if options.batch_start.all() != ["earliest"]:
        raise ConfigError(
            ": the table of a bucket has all its keys, so it begins at the earliest.",
            option="starting_offsets",
        )
    if not options.fail_on_data_loss:
        raise ConfigError(
            "cannot be false: values that expire are no loss to the table of a bucket, and after "
            "any other one it would keep wrong values: begin a new table.",
            option="fail_on_data_loss",
        )


def check_key_choice(to: LakehouseOptions, checkpoint: str) -> None:
    """Raise ConfigError if the user chooses other keys of the bucket than when the table was begun,
    since keys that were left out so far would come only when they change.

    The choice is a part of the name under which the query writes, so the table shows it. `to`: the
    options of the table; `checkpoint`: the query's.
    """
    query = read_checkpoint(local_path(checkpoint)).query
    table = find_table(to.format, to.name)
    if table is None or query is None or to.query_name is None:
        return
    if not wrote_as(table, query, to.query_name):
        raise ConfigError(
            f"{to.name} has another choice of the bucket's keys than {to.query_name}: give the "
            "option keys as before, or take another table and another checkpoint."
        )


def remove_gone_keys(options: SourceOptions, to: LakehouseOptions) -> int:
    """Remove rows of a bucket's table whose keys the bucket no longer has; returns their number.

    A row that a later change replaces in the meantime stays. Removes nothing from a table without
    the columns bucket, key and revision. `options`: of the bucket; `to`: of the table. Raises
    TableError if others commit without a break, and the errors of `Leaders.call`.
    """
    table = find_table(to.format, to.name)
    if table is None or not set(_COLUMNS) <= set(table.schema.names):
        return 0
    rows = _read_rows(table, str(options.bucket))
    if not rows.num_rows:
        return 0
    # The table was read first: a key that the bucket has got since is in no row to remove.
    keys = leaders(options).call(lambda api: _fetch_keys(api, options.streams[0]))
    rows = rows.filter(pc.invert(pc.is_in(rows[_KEY], value_set=pa.array(keys, pa.string()))))
    if rows.num_rows:
        upsert = Upsert(keys=(_KEY,), sequence_by=_REVISION)
        commit_files(
            table,
            (),
            lambda current, _, txn_versions: upsert.merge(
                current, _deletes(current, rows), txn_versions
            ),
        )
    return int(rows.num_rows)


def _read_rows(table: Table, bucket: str) -> pa.Table:
    """Read the keys of a bucket, and the revisions of their last changes, from its table, which may
    also have rows of other buckets."""
    batches = [
        batch
        for scan_task in table.scan_tasks(_COLUMNS, prune=None, at_least=1)
        for batch in scan_task.batches()
    ]
    if not batches:
        return pa.table({})
    rows = pa.Table.from_batches(batches)
    return rows.filter(pc.equal(rows[_BUCKET], bucket)).select([_KEY, _REVISION])


def _fetch_keys(api: StreamAPI, stream: str) -> list[str]:
    """Ask the server for all keys for which a bucket's stream has a message: a value, or a marker
    that the key was deleted. None that was acknowledged before is missing."""
    subjects = linearizable_read(api, [stream], lambda api: api.subjects(stream, ">"))
    # $KV.<bucket>.<key>; in a mirror, the bucket is the one that it mirrors.
    return [subject.split(".", 2)[-1] for subject in subjects]


def _deletes(table: Table, rows: pa.Table) -> Changes:
    """Changes that delete the keys of these rows from the table, unless it has a later revision.

    `rows`: keys and revisions; other columns of the table are null, since a deletion has no values.
    """
    columns = {
        field.name: rows[field.name].cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in table.schema
    }
    deleted = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
    return Changes(pa.table(columns), deleted, keys=(_KEY,), sequence_by=_REVISION)

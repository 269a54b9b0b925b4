"""Checks before a query starts that its table and its checkpoint belong together.

The commit of a batch sets the query's number in the table (`tables.batches`), and Spark commits
the batch in the checkpoint afterwards. So the table is at the last batch that the checkpoint has
committed, or one batch ahead, and then that is the planned one.
"""

from __future__ import annotations

from dataclasses import replace

from jetspark.errors import ConfigError, named, switching
from jetspark.spark.checkpoints import CheckpointState, read_checkpoint
from jetspark.spark.local_folders import (
    canonical_path,
    check_writable,
    enclosing_table_or_checkpoint,
    local_path,
)
from jetspark.spark.table_sink.ledger import NO_BATCH, TableLedger
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables.batches import check_name, last_batch
from jetspark.tables.formats import check_empty, find_table
from jetspark.tables.table import Table


def check_start(options: LakehouseOptions, checkpoint: str) -> None:
    """Check before a query starts that its tables and its checkpoint belong together; changes
    nothing.

    A checkpoint that is not on this machine is not looked at. Raises ConfigError, with what to do,
    for folders that cannot be written, and for a table and a checkpoint of which one has batches
    that the other lacks; and the errors of `find_table`.
    """
    if options.route is not None:
        _check_template(checkpoint)
    elif options.tables:
        for routed in options.tables:
            _check_table(replace(routed.options, adopt=options.adopt), checkpoint, of_list=True)
    else:
        _check_table(options, checkpoint, of_list=False)


def _check_template(checkpoint: str) -> None:
    """Check the checkpoint of a query whose tables are named by a template, as `lake/{region}`.
    The tables are not checked, since only the values of rows tell which they are."""
    check_writable("checkpoint", checkpoint)
    state = read_checkpoint(local_path(checkpoint))
    _check_checkpoint_apart(state, checkpoint, table_folder=None)
    state.check_complete(checkpoint, "or start over, with other tables and another checkpoint")


def _check_table(options: LakehouseOptions, checkpoint: str, *, of_list: bool) -> None:
    """Check that one table of a query and the query's checkpoint belong together. `of_list`: the
    table is one of a list, which gets only batches with rows for it. Raises ConfigError."""
    folder = options.name.path
    if folder is not None:
        check_writable("table", folder, "path")
    check_writable("checkpoint", checkpoint)
    table = find_table(options.format, options.name)
    if table is None and folder is not None and local_path(folder) is not None:
        _check_not_enclosed(folder)
    local_checkpoint = local_path(checkpoint)
    state = read_checkpoint(local_checkpoint)
    _check_checkpoint_apart(state, checkpoint, table_folder=folder)
    start_again = f"{_elsewhere(options)}, and another checkpoint, and the stream is read again"
    state.check_complete(checkpoint, f"and {options.name}, or {start_again}")
    if table is None:
        check_empty(options.format, options.name)
    if local_checkpoint is not None:
        _check_batches(options, table, state, checkpoint, start_again, of_list=of_list)


def _check_not_enclosed(folder: str) -> None:
    """Raise ConfigError if the folder of a new table lies within another table or a checkpoint,
    with which it could be deleted."""
    if (enclosing := enclosing_table_or_checkpoint(folder)) is not None:
        raise ConfigError(
            f"{folder} would lie in {enclosing}, another table or a checkpoint, and be lost "
            "with it: name a folder outside of that.",
            about="path",
        )


def _check_checkpoint_apart(
    state: CheckpointState, checkpoint: str, *, table_folder: str | None
) -> None:
    """Raise ConfigError unless the checkpoint has a folder for itself: not the table's or one above
    it, not one with other files, and not one within another table or checkpoint. Within its own
    table it may be, in a folder whose name begins with `_`, which readers of the table skip.

    All but the first is checked for a new checkpoint only. `state`: what its files say;
    `table_folder`: None for a table that is not in a folder, or not known yet.
    """
    own = canonical_path(checkpoint)
    table = None if table_folder is None else canonical_path(table_folder)
    advice = "take another folder for the checkpoint"
    if table_folder is not None:
        advice += f", such as {table_folder.rstrip('/')}/_checkpoint"
    if own == table:
        raise ConfigError(f"{checkpoint} is the folder of the table itself: {advice}.")
    if not state.is_new:
        return
    if table is not None and table.startswith(f"{own}/"):
        raise ConfigError(f"{table_folder} would lie in its checkpoint {checkpoint}: {advice}.")
    if state.other_files:
        more = ", …" if len(state.other_files) > 1 else ""
        raise ConfigError(
            f"{checkpoint} holds other things than a checkpoint ({state.other_files[0]}{more}): "
            f"{advice}."
        )
    if state.enclosed_by not in (None, table):
        raise ConfigError(
            f"{checkpoint} would lie in {state.enclosed_by}, another table or checkpoint, and "
            f"be lost with it: {advice}."
        )
    if table is not None and own.startswith(f"{table}/"):
        first = own.removeprefix(f"{table}/").partition("/")[0]
        if first[0] != "_":
            raise ConfigError(
                f"{checkpoint} is inside of the table, where {first} would count as a part of it: "
                f"{advice}."
            )


def _check_batches(
    options: LakehouseOptions,
    table: Table | None,
    state: CheckpointState,
    checkpoint: str,
    start_again: str,
    *,
    of_list: bool,
) -> None:
    """Raise ConfigError unless a table has all batches that the checkpoint counts as committed, and
    none that the checkpoint has not planned.

    The table may be one batch ahead, since Spark commits a batch to the checkpoint only after its
    commit to the table. `table`: None if it does not exist; `state`: what the files of `checkpoint`
    say; `start_again`: advice to start over, as part of a sentence; `of_list`: the table is one of
    a list, which gets only batches with rows for it.
    """
    name = options.name
    committed = NO_BATCH if state.committed is None else state.committed
    planned = NO_BATCH if state.planned is None else state.planned
    # The last batch that the table has to have. A table of a list does not get each batch, so the
    # query's ledger tells which was its last.
    required = committed
    if of_list:
        required = TableLedger(checkpoint, state.query or "").last(str(name))
    last = None
    if table is not None and state.query is not None:
        last = last_batch(table, state.query)
    if options.adopt:
        if table is None and committed < 0 and not of_list:
            raise ConfigError(
                f"{name} has no table to adopt: name that of one, or leave out {named('adopt')} "
                "to begin one there."
            )
        # A checkpoint that is older than the table gives the numbers of batches that the table has
        # to new messages, whose rows would be left out. To adopt the table would not help.
        if (table is not None or of_list) and (last is None or last < committed):
            return
    if last is None:
        if required >= 0:
            raise ConfigError(
                f"{checkpoint} counts {_count_batches(required)} as read that {name} does not "
                f"have: {_explain_foreign_checkpoint(options, checkpoint)}"
            )
        if table is not None and not table.is_new:
            _check_may_add_rows(options, table, state.query)
    elif required > last:
        raise ConfigError(
            f"{checkpoint} counts {_count_batches(required)} as read, but {name} has only "
            f"{_count_batches(last)}: restore the whole table, or {start_again}; or "
            f"{switching('adopt', True)} for one run to go on without what is lost."
        )
    elif last > committed + 1 or planned < last:
        raise ConfigError(
            f"{checkpoint} is older than {name}, which has {_count_batches(last)}: name the "
            f"checkpoint that wrote the last of them, or {start_again}."
        )


def _explain_foreign_checkpoint(options: LakehouseOptions, checkpoint: str) -> str:
    """Why a checkpoint counts batches that its table does not have, and what to do about it.

    Only a checkpoint in the table's own folder is certainly no other table's progress, which its
    removal would lose.
    """
    folder = options.name.path
    if folder is not None and canonical_path(checkpoint).startswith(f"{canonical_path(folder)}/"):
        return (
            "the table was removed, or is another one. Restore it, or remove the checkpoint to "
            "read the stream from its start."
        )
    return (
        "it is the checkpoint of another table, or this table was removed. Name another folder "
        "for the checkpoint to read the stream from its start, and keep this one, which may be "
        "the progress of another table."
    )


def _check_may_add_rows(options: LakehouseOptions, table: Table, query: str | None) -> None:
    """Check that a query may add its first rows to a table that has rows already.

    Raises ConfigError for a table on this machine, and TableError for any table that a query of the
    same name, but with another checkpoint, has written. `query`: the id of this query; None if it
    has none yet.
    """
    if options.query_name is not None:
        check_name(table, query, options.query_name)
    # Tables in a catalog or an object store are expected to have several writers.
    if local_path(options.name.path) is not None:
        raise ConfigError(
            f"The {options.format.capitalize()} table {options.name} has rows that this query did "
            f"not write: {_elsewhere(options)}, or {switching('adopt', True)} to add the rows to "
            "those that are there."
        )


def _elsewhere(options: LakehouseOptions) -> str:
    """Advice to take another table, as part of a sentence."""
    return f"take another table, such as {options.name}-2"


def _count_batches(last: int) -> str:
    """The number of batches up to and with batch `last`, in words: `3 batches` for 2."""
    return "1 batch" if last == 0 else f"{last + 1:,} batches"

"""Commits a batch of new files to a table exactly once, however often it is attempted.

The commit that adds a batch's files also sets the writer's transaction version to the batch. An
attempt with a batch that this version has reached changes nothing, whoever makes it: the same
driver after a lost answer, its successor after a crash, or a driver taken for dead. Of two
concurrent attempts one gets a conflict, and checks the version again.

Both formats commit optimistically: a commit is prepared on top of the version that was read, and is
refused with `CommitConflict` if another one came first. Then `commit_with_retries` reads the table
again, and whatever the commit depends on is decided anew. After an error whose outcome is not known
the classes of the formats ask the table, and raise CommitConflict only if it is proven that the
table does not have the commit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from jetspark.errors import CommitConflict, TableError, switching
from jetspark.tables.fingerprints import fingerprint
from jetspark.tables.new_files import NewFile
from jetspark.tables.stream_positions import Progress
from jetspark.tables.table import Table, TableName, TxnVersions

ADOPT_HINT = f"{switching('adopt', True)} for one run"
CONFLICT_TIMEOUT_SECONDS = 120.0
"""Time for which a commit is tried again while other writers are faster."""
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.02, 0.1
_T = TypeVar("_T")

CommitAction = Callable[[Table, Sequence[NewFile], TxnVersions], None]
"""Changes a table by new files, and sets transaction versions, in one commit. Raises
CommitConflict."""


def append(table: Table, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
    """Add the files; a `CommitAction`."""
    table.append(files, txn_versions)


def overwrite(table: Table, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
    """Replace all files; a `CommitAction`."""
    table.replace(files, txn_versions)


def table_missing(name: TableName, batch: int) -> TableError:
    """The error for a table that no longer exists when a query is to write this batch; the query's
    earlier batches are lost with it."""
    lost = f", and with it {_earlier_batches(batch)}" if batch else ""
    return TableError(
        f"{name} no longer exists{lost}. Restore it; or, to start over, delete the query's "
        "checkpoint and what is left of the table, or take other folders for both."
    )


def check_earlier_batches(table: Table, writer: str, batch: int) -> None:
    """Raise TableError unless the table has all batches of a query before this one. If it lacks
    some, it is an older copy, another table, or was set back. `writer`: the query's id, which its
    checkpoint keeps. May refresh the table."""
    if batch == 0:
        return
    last = last_batch(table, writer)
    if last is None or last < batch - 1:
        table.refresh()  # the version that was read may be older than the missing batches
        last = last_batch(table, writer)
    name = table.name
    if last is None:
        raise _missing_batches(
            f"{name} does not have {_earlier_batches(batch)}: it was removed or replaced. Restore "
            "it"
        )
    if last < batch - 1:
        raise _missing_batches(
            f"{name} has only {_earlier_batches(last + 1)}, and the checkpoint counts batch "
            f"{batch - 1} as written, too: an older copy of the table was put back. Bring back the "
            "newest one"
        )
    # A restore or rollback takes rows away, but may leave the number of the last batch.
    version = table.txn_version(_key("version", writer))
    if version is not None and table.was_set_back(version, _key("batch", writer), last):
        raise _missing_batches(
            f"{name} was set back to a version before this query's batch {last}, whose rows it has "
            "lost. Set it forward again"
        )


def _missing_batches(sentence: str) -> TableError:
    """The error for a table that has lost batches of a query. `sentence`: how they were lost, and
    what brings them back; the other ways to go on are added here."""
    return TableError(
        f"{sentence}; or, to start over, delete the query's checkpoint and take another table; or, "
        f"to go on without what is lost, {ADOPT_HINT}."
    )


def _earlier_batches(batch: int) -> str:
    """The batches before this one, as part of a sentence."""
    return "this query's batch 0" if batch == 1 else f"this query's batches 0 to {batch - 1}"


def last_batch(table: Table, writer: str) -> int | None:
    """Number of the last batch that a query has committed to the table; None before its first.
    `writer`: the query's id."""
    return table.txn_version(_key("batch", writer))


def commit_batch(
    table: Table,
    writer: str,
    batch: int,
    files: Sequence[NewFile],
    *,
    name: str | None = None,
    adopt: bool = False,
    after: int | None = None,
    offsets: int | None = None,
    progress: Progress | None = None,
    change: CommitAction = append,
) -> bool:
    """Add the files of a query's batch to a table in one commit, unless the table has this batch;
    returns whether they were added.

    `writer`: the query's id, which its checkpoint keeps; `name`: the query's name, which stays the
    same when the checkpoint is lost and the query gets a new id. `adopt`: continue although a query
    with this name and another id has written, and whatever the table has lost. `after`: the earlier
    batch that the table has to have; by default the one before this one, since a query with one
    table commits empty batches, too. `offsets`: the fingerprint of what the batch has read, if it
    is known. `progress`: how far the batch has read its streams. `change`: what the rows do to the
    table. Raises TableError if rows would be written twice, if the table lacks earlier ones or has
    other rows as this batch, or if others commit without a break; and ConfigError for a table that
    would forget the batch.
    """

    def is_there() -> bool:
        """Whether the table has the batch, at the version that was read."""
        return has_batch(table, writer, batch, name=name, adopt=adopt, after=after, offsets=offsets)

    def attempt() -> bool:
        """Commit the batch on top of the version that was read; False if the table has it."""
        if is_there():
            return False
        if progress is not None and progress.store_recipe(table) and is_there():
            return False  # another attempt was faster
        versions: dict[str, int | None] = {
            _key("batch", writer): batch,
            _key("version", writer): None,  # the table version that this commit creates
        }
        if last_batch(table, writer) is None and name is not None:
            versions[_key("query", name)] = fingerprint(writer)
        # Without a known fingerprint, 0 replaces that of the batch before.
        if offsets is not None or table.txn_version(_key("offsets", writer)) is not None:
            versions[_key("offsets", writer)] = offsets or 0
        if progress is not None:
            versions |= progress.versions(table, writer)
        change(table, files, versions)
        return True

    return commit_with_retries(table.name, attempt, table.refresh)


def has_batch(
    table: Table,
    writer: str,
    batch: int,
    *,
    name: str | None = None,
    adopt: bool = False,
    after: int | None = None,
    offsets: int | None = None,
) -> bool:
    """Whether a table has a batch of a query. If it returns False, the batch may be committed:
    whatever forbids that has been raised as an error.

    The arguments, and the errors, are those of `commit_batch`. May refresh the table.
    """
    table.check_txn_versions_retained()
    last = last_batch(table, writer)
    if (last is None or last < batch) and not adopt:
        # The batches up to `after`, or all earlier ones, have to be there.
        check_earlier_batches(table, writer, batch if after is None else after + 1)
        last = last_batch(table, writer)  # it may have been refreshed
    if last is None and name is not None and not adopt:
        check_name(table, writer, name)
    if last is None or last < batch:
        return False
    if last > batch:  # batches are committed in order
        return True
    committed_offsets = table.txn_version(_key("offsets", writer))
    # None and 0 are unknown fingerprints, which contradict nothing.
    if not adopt and offsets and committed_offsets and committed_offsets != offsets:
        raise TableError(
            f"{table.name} has other messages as batch {batch} of this query: a copy of its "
            "checkpoint was used, too. Go on with the checkpoint that wrote this batch, and remove "
            f"the other one; or, to leave out the messages of this batch, {ADOPT_HINT}."
        )
    table.repair_version_hint()  # the attempt that committed it may have been killed before
    return True


def commit_files(table: Table, files: Sequence[NewFile], change: CommitAction = append) -> None:
    """Commit files that belong to no batch of a query, so that a repetition would add them again.
    Raises TableError if others commit without a break."""
    commit_with_retries(table.name, lambda: change(table, files, {}), table.refresh)


def check_name(table: Table, writer: str | None, name: str) -> None:
    """Raise TableError if a query of this name, but with another id, has written to the table: its
    checkpoint was lost, so it would write the same rows again. `writer`: the query's id; None if it
    has none yet."""
    first_writer = table.txn_version(_key("query", name))
    if first_writer is None or (writer is not None and first_writer == fingerprint(writer)):
        return
    raise TableError(
        f"{table.name} already has rows of {name}, but this run does not have its checkpoint and "
        "would write them again. Restore the checkpoint, or write to another table, or, to add the "
        f"rows to the existing ones, {ADOPT_HINT}."
    )


def wrote_as(table: Table, writer: str, name: str) -> bool:
    """Whether a query has written to the table under this name, or has no batch there yet.
    `writer`: the query's id."""
    first = table.txn_version(_key("query", name))
    return last_batch(table, writer) is None or first == fingerprint(writer)


def belongs_to(table: Table, writer: str | None, name: str | None) -> bool:
    """Whether a query may take a table for its own: the table has batches of it, was created for
    it, or has no rows.

    `writer`: the query's id; None: it is not known, and the table is recognised by the query's
    name. `name`: the query's name; None if it has none.
    """
    versions = [] if writer is None else [_key("batch", writer), _key("made", writer)]
    if name is not None:
        versions.append(_key("made", name))
        if writer is None:
            versions.append(_key("query", name))
    # Last, since it reads the entries of all files.
    return any(table.txn_version(version) is not None for version in versions) or table.is_new


def created_for(writer: str, batch: int) -> dict[str, int]:
    """Transaction versions to set in a new table, by which `was_created_for` recognises the query
    and the batch that it is created for."""
    return {_key("made", writer): batch}


def was_created_for(table: Table, writer: str, batch: int) -> bool:
    """Whether the table was created by an attempt to write this batch of a query."""
    return table.txn_version(_key("made", writer)) == batch


def _key(kind: Literal["batch", "version", "offsets", "query", "made"], writer_or_name: str) -> str:
    """The name of a transaction version by which a table remembers something about a query.

    | kind | value |
    |---|---|
    | batch | the query's last batch |
    | version | the table version that this batch created |
    | offsets | the fingerprint of the offsets that it has read; 0: unknown |
    | made | the batch that created the table |
    | query | by the query's name, not its id: the fingerprint of its first id |
    """
    return f"jetspark.{kind}.{writer_or_name}"


def commit_with_retries(
    name: object,
    attempt: Callable[[], _T],
    refresh: Callable[[], None] = lambda: None,
    *,
    error: type[CommitConflict | TableError] = TableError,
) -> _T:
    """The result of `attempt`, which commits to a table and is called again each time it raises
    CommitConflict, since another program committed first.

    `name`: the table's, for the message. `refresh`: reads the newest version before the next
    attempt. Raises `error` if others commit without a break for CONFLICT_TIMEOUT_SECONDS.
    """
    deadline = time.monotonic() + CONFLICT_TIMEOUT_SECONDS
    while True:
        try:
            return attempt()
        except CommitConflict as conflict:
            if time.monotonic() >= deadline:
                raise error(
                    f"{name}: other writers committed without a break for "
                    f"{CONFLICT_TIMEOUT_SECONDS:.0f} seconds, so nothing was added. Run it again. "
                    f"The last conflict: {conflict}"
                ) from conflict
        time.sleep(random.uniform(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS))  # noqa: S311
        refresh()

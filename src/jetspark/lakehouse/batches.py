"""A batch of new files into a table, once, however often it is tried.

The commit that adds the files of a batch also sets the writer's number to that of the batch. Who
comes with a batch that the number has reached changes nothing: the same driver after a lost answer,
its successor after a crash, or a driver that was thought to be dead. Two that come at the same
moment conflict, and the later one looks again.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Sequence

from jetspark.errors import CommitConflict, TableError
from jetspark.lakehouse.new_files import NewFile
from jetspark.lakehouse.table import Table

CONFLICT_SECONDS = 120.0
"""How long a commit is tried again while others commit."""
_PAUSE = 0.02


def last_batch(table: Table, writer: str) -> int | None:
    """The number of the writer's last batch in the table; None before its first."""
    return table.number(_batch(writer))


def commit_batch(
    table: Table,
    writer: str,
    batch: int,
    files: Sequence[NewFile],
    *,
    name: str | None = None,
    adopt: bool = False,
    replace: bool = False,
) -> bool:
    """Add the files of a batch, unless the table has it; whether anything was added.

    `name`: what stays the same when a lost checkpoint gives the writer a new id; `adopt`: go on
    although another writer of this name has written. `replace`: the files become all of the table.
    Raises TableError when rows would be written a second time, or others keep committing.
    """
    deadline = time.monotonic() + CONFLICT_SECONDS
    while True:
        last = last_batch(table, writer)
        if last is not None and last >= batch:
            return False
        numbers = {_batch(writer): batch}
        if last is None and name is not None:
            _check_name(table, writer, name, adopt)
            numbers[_query(name)] = _fingerprint(writer)
        if _committed(table, files, numbers, replace, deadline):
            return True


def begin_at(table: Table, writer: str, batch: int) -> None:
    """Let a writer begin behind this batch, which another one has written."""
    commit_batch(table, writer, batch, ())


def commit_files(table: Table, files: Sequence[NewFile], *, replace: bool = False) -> None:
    """Add files that are of no writer's batches. Raises TableError while others keep committing."""
    deadline = time.monotonic() + CONFLICT_SECONDS
    while not _committed(table, files, {}, replace, deadline):
        pass


def _committed(
    table: Table,
    files: Sequence[NewFile],
    numbers: dict[str, int],
    replace: bool,
    deadline: float,
) -> bool:
    """Try once; False when another commit came first, which has been read then."""
    try:
        (table.replace if replace else table.append)(files, numbers)
    except CommitConflict:
        if time.monotonic() >= deadline:
            raise TableError(
                f"{table.name}: others have committed without a break for {CONFLICT_SECONDS:.0f} "
                "seconds, so this batch was not added; run the query again."
            ) from None
        time.sleep(random.uniform(_PAUSE, 5 * _PAUSE))  # noqa: S311
        table.refresh()
        return False
    return True


def _check_name(table: Table, writer: str, name: str, adopt: bool) -> None:
    other = table.number(_query(name))
    if other is None or other == _fingerprint(writer) or adopt:
        return
    raise TableError(
        f"{table.name} has rows of {name} already, whose checkpoint this run has not: going on "
        "would write them a second time. Bring the checkpoint back; or take another table; or, if "
        "the rows shall be added to those that are there, set the option 'adoptTable' to true for "
        "one run."
    )


def _batch(writer: str) -> str:
    return f"jetspark.batch.{writer}"


def _query(name: str) -> str:
    return f"jetspark.query.{name}"


def _fingerprint(writer: str) -> int:
    """As a whole number, which is all that both formats keep."""
    return int.from_bytes(hashlib.sha256(writer.encode()).digest()[:7])

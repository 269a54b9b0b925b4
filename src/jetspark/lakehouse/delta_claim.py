"""One rewriter of a Delta table at a time.

deltalake (1.6) lets two compactions of the same files both commit, and an overwrite beside a
compaction: each row is then there twice. Writing numbers, it does see conflicts, so a number says
until when a rewriter has the table; it is renewed while the work goes on, and runs out after a
kill.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from jetspark.errors import CommitConflict, TableError
from jetspark.lakehouse.table import Table

CLAIM = "jetspark.rewriting"
SECONDS = 180
_RENEWED = 60.0


@contextmanager
def claim(table: Table, other: Table, name: str) -> Iterator[None]:
    """Nobody else rewrites the table meanwhile; `other`: the same table, to renew the claim with.

    Raises CommitConflict when somebody has it, TableError when the claim was lost on the way.
    """
    table.refresh()
    until = table.number(CLAIM) or 0
    if until > time.time():
        moment = datetime.fromtimestamp(until, UTC)
        raise CommitConflict(
            f"{name} is being compacted or overwritten by another program; if that was killed, try "
            f"again after {moment:%H:%M:%S} UTC."
        )
    held = _Held(other)
    table.append((), {CLAIM: held.until})
    table.refresh()
    held.start()
    try:
        yield
    finally:
        held.end()
        table.refresh()
        if table.number(CLAIM) != held.until:
            raise TableError(
                f"{name}: this took longer than its claim on the table, which another program has "
                "taken: compare the number of rows before and after."
            )
        table.append((), {CLAIM: 0})
        table.refresh()


class _Held(threading.Thread):
    """Renews a claim."""

    def __init__(self, table: Table) -> None:
        super().__init__(daemon=True)
        self._table = table
        self._over = threading.Event()
        self.until = int(time.time()) + SECONDS

    def run(self) -> None:
        while not self._over.wait(_RENEWED):
            until = int(time.time()) + SECONDS
            try:
                self._table.refresh()
                if self._table.number(CLAIM) != self.until:
                    return
                self._table.append((), {CLAIM: until})
            except CommitConflict:
                return
            self.until = until

    def end(self) -> None:
        """When this returns nothing is renewed any more."""
        self._over.set()
        self.join()

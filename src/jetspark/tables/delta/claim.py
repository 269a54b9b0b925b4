"""One rewriter of a Delta table at a time.

deltalake (1.6) lets two compactions of the same files both commit, and an overwrite beside a
compaction, which duplicates each row. It does detect conflicts between transaction versions, so one
says until when a rewriter has the table; it is renewed during the work, and expires after a kill.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from jetspark.errors import CommitConflict, TableError
from jetspark.tables.table import Table

REWRITE_CLAIM = "jetspark.rewriting"
CLAIM_SECONDS = 180
_RENEW_INTERVAL_SECONDS = 60.0


@contextmanager
def claim_table(table: Table, renewing_table: Table, name: str) -> Iterator[None]:
    """Keeps other rewriters from the table while the block runs. `renewing_table`: the same table,
    opened a second time for the thread that renews the claim.

    Raises CommitConflict when somebody has it, TableError when the claim was lost on the way.
    """
    table.refresh()
    until = table.txn_version(REWRITE_CLAIM) or 0
    if until > time.time():
        moment = datetime.fromtimestamp(until, UTC)
        raise CommitConflict(
            f"{name} is being compacted or overwritten by another program; if that was killed, try "
            f"again after {moment:%H:%M:%S} UTC."
        )
    held = _ClaimRenewal(renewing_table)
    table.append((), {REWRITE_CLAIM: held.until})
    table.refresh()
    held.start()
    try:
        yield
    finally:
        held.end()
        table.refresh()
        if table.txn_version(REWRITE_CLAIM) != held.until:
            raise TableError(
                f"{name}: this took longer than its claim on the table, which another program has "
                "taken: compare the number of rows before and after."
            )
        table.append((), {REWRITE_CLAIM: 0})
        table.refresh()


class _ClaimRenewal(threading.Thread):
    """Thread that renews the claim until it is told to end, or the claim is lost."""

    def __init__(self, table: Table) -> None:
        super().__init__(daemon=True)
        self._table = table
        self._over = threading.Event()
        self.until = int(time.time()) + CLAIM_SECONDS

    def run(self) -> None:
        while not self._over.wait(_RENEW_INTERVAL_SECONDS):
            until = int(time.time()) + CLAIM_SECONDS
            try:
                self._table.refresh()
                if self._table.txn_version(REWRITE_CLAIM) != self.until:
                    return
                self._table.append((), {REWRITE_CLAIM: until})
            except CommitConflict:
                return
            self.until = until

    def end(self) -> None:
        """Stop renewing, and wait for a renewal in progress."""
        self._over.set()
        self.join()

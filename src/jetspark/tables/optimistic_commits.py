"""The retry of a commit that lost against another writer's: one loop, one policy.

Both formats commit optimistically. A commit is prepared on top of the version that was read, and is
refused with `CommitConflict` if another one came first. Then the table is read again, and whatever
the commit depends on is decided anew. An error after which the outcome is not known is none of
these: the classes of the formats ask the table for it, and only raise CommitConflict if it is
proven that the table does not have the commit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from jetspark.errors import CommitConflict, TableError

CONFLICT_TIMEOUT_SECONDS = 120.0
"""Time for which a commit is tried again while other writers are faster."""
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.02, 0.1
_T = TypeVar("_T")


def commit_with_retries(
    name: object,
    attempt: Callable[[], _T],
    refresh: Callable[[], None] = lambda: None,
    *,
    error: type[CommitConflict | TableError] = TableError,
) -> _T:
    """The result of `attempt`, which is called again after each conflict.

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

"""The entry point of the `jetspark` script.

It has to import without the extra `cli`, to be able to say that the extra is missing.
"""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

_EXTRA = frozenset({"cyclopts", "rich"})


def main() -> None:
    """Runs the command of `sys.argv` and exits with its code (see `jetspark.cli.app.run`)."""
    # Not left to the default: a first process of a container would not get SIGTERM at all.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _stop)
    try:
        try:
            from jetspark.cli.app import run
        except ModuleNotFoundError as missing:
            if missing.name not in _EXTRA:
                raise
            sys.exit(f"The command line needs {missing.name}: pip install 'jetspark[cli]'.")
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # while it is still importing
        sys.exit(130)


def _stop(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)

"""The entry point of the `jetspark` script.

It has to import without the extra `cli`, to be able to say that the extra is missing.
"""

from __future__ import annotations

import sys

_EXTRA = frozenset({"cyclopts", "rich"})


def main() -> None:
    """Runs the command of `sys.argv` and exits with its code (see `jetspark.cli.app.run`)."""
    try:
        from jetspark.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRA:
            raise
        sys.exit(f"The command line needs {missing.name}: pip install 'jetspark[cli]'.")
    sys.exit(run(sys.argv[1:]))

"""The entry point of the `jetspark` script.

It imports almost nothing outside its `try`, so that Ctrl-C during the other imports is caught.
"""

import sys


def main() -> None:
    """Run the command of `sys.argv` and exit with its code (see `jetspark.cli.app.run`)."""
    try:
        from jetspark.cli.start import start

        start()
    except KeyboardInterrupt:  # during the imports
        sys.exit(130)

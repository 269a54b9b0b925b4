"""The entry point of the `jetspark` script.

It imports nothing but what a Ctrl-C during the imports needs, so that nearly all of them are in its
`try`.
"""

import sys


def main() -> None:
    """Runs the command of `sys.argv` and exits with its code (see `jetspark.cli.app.run`)."""
    try:
        from jetspark.cli.start import start

        start()
    except KeyboardInterrupt:  # during the imports
        sys.exit(130)

"""`python -m jetspark`: the command line."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
    # Python has put the current folder there, whose modules are not for this command.
    del sys.path[0]

from jetspark.cli.main import main

if __name__ == "__main__":
    main()

"""What the `jetspark` script does before the application; `main` catches Ctrl-C.

It imports nothing of the extra `cli`, so that it can report that the extra is missing.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import signal
import sys
from contextlib import suppress
from typing import NoReturn

_EXTRA = frozenset({"cyclopts", "rich"})


def start() -> None:
    """Run the command of `sys.argv` and exit with its code (see `jetspark.cli.app.run`)."""
    # Explicitly: by default SIGTERM does not end the first process of a container. SIGHUP, from a
    # closed terminal, must not leave things behind either; under nohup it stays ignored.
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    _escape_what_the_encoding_lacks()
    _read_arguments_as_utf8()
    try:
        from jetspark.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRA:
            raise
        sys.exit(f"The command line needs {missing.name}: pip install 'jetspark[cli]'.")
    code = run(sys.argv[1:])
    # A Ctrl-C would now only interrupt Python's own shutdown, and print tracebacks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _read_arguments_as_utf8() -> None:
    """Start again in Python's UTF-8 mode if the locale did not decode the arguments as UTF-8.

    Names on the server are UTF-8; in that mode names of files are, too.
    """
    texts = [text for text in sys.argv[1:] if re.search("[\udc80-\udcff]", text)]
    with suppress(UnicodeDecodeError):  # other bytes stay as they are
        for text in texts:
            os.fsencode(text).decode()
        if texts and not sys.flags.utf8_mode:
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


def _escape_what_the_encoding_lacks() -> None:
    """Write characters that the output's encoding lacks as JSON escapes (\\u20ac).

    Otherwise such a character in a message would end the command; and JSON stays JSON.
    """
    codecs.register_error("jetspark.escape", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None, if the parent process closed it
            stream.reconfigure(errors="jetspark.escape")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _stop(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)

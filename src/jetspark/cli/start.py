"""What the `jetspark` script does before the application can: see `main`, which catches Ctrl-C.

It has to import without the extra `cli`, to be able to say that the extra is missing.
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
    """Runs the command of `sys.argv` and exits with its code (see `jetspark.cli.app.run`)."""
    # Explicitly, since the first process of a container does not get SIGTERM by default. Closing
    # the terminal is no reason to leave things behind either; nohup, which ignores it, stays.
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
    # There is nothing left to interrupt but Python's own end, which would print tracebacks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _read_arguments_as_utf8() -> None:
    """Start again in Python's UTF-8 mode where the locale has not decoded arguments in UTF-8.

    Names at the server are UTF-8; in that mode the names of files fit, too.
    """
    texts = [text for text in sys.argv[1:] if re.search("[\udc80-\udcff]", text)]
    with suppress(UnicodeDecodeError):  # what is not UTF-8 stays as it is
        for text in texts:
            os.fsencode(text).decode()
        if texts and not sys.flags.utf8_mode:
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


def _escape_what_the_encoding_lacks() -> None:
    """Where the output is not UTF-8, other characters are written as JSON escapes (\\u20ac).

    Otherwise a message could end the command that shows it; and JSON stays JSON.
    """
    codecs.register_error("jetspark.escape", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None, if whoever started us closed it
            stream.reconfigure(errors="jetspark.escape")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _stop(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)

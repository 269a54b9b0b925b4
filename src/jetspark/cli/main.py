"""The entry point of the `jetspark` script.

It imports nothing of the extra `cli` before it can report that the extra is missing, and almost
nothing outside its `try`, so that Ctrl-C during the imports is caught.
"""

import sys


def main() -> None:
    """Run the command of `sys.argv` and exit with its code (see `jetspark.cli.app.run`)."""
    try:
        _handle_signals()
        _keep_current_folder_from_imports()
        _escape_unencodable_characters()
        _read_arguments_as_utf8()
        try:
            from jetspark.cli.app import run
        except ModuleNotFoundError as missing:
            if missing.name not in ("cyclopts", "rich"):
                raise
            sys.exit(f"The command line needs {missing.name}: pip install 'jetspark[cli]'.")
        code = run(sys.argv[1:])
        _ignore_interrupts()
    except KeyboardInterrupt:  # during the imports
        code = 130
    sys.exit(code)


def _handle_signals() -> None:
    """End the command with clean-up at SIGTERM and at SIGHUP, the signal of a closed terminal.

    Without a handler, a container's first process would ignore SIGTERM. A signal that is ignored
    already, as SIGHUP under nohup, stays ignored.
    """
    import signal

    # Another command of jetspark starts this one with Ctrl-C blocked (see `interrupts_blocked`).
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # `sys.exit` raises SystemExit, so that `finally` blocks run.
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))


def _keep_current_folder_from_imports() -> None:
    """Keep Pythons that this command starts from importing modules of the current folder.

    Spark's workers are such Pythons, and a file json.py of somebody else may be in that folder.
    """
    import os

    from jetspark.own_python import SAFE_PATH

    os.environ.update(SAFE_PATH)


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C from now on: it would interrupt Python's shutdown with a traceback."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _read_arguments_as_utf8() -> None:
    """Start again in Python's UTF-8 mode if the locale did not decode the arguments as UTF-8.

    Names on the server are UTF-8; in that mode, file names are too.
    """
    import os
    import re

    # A character of this range stands for a byte that the locale could not decode.
    texts = [text for text in sys.argv[1:] if re.search("[\udc80-\udcff]", text)]
    try:
        for text in texts:
            os.fsencode(text).decode()
    except UnicodeDecodeError:
        return  # not UTF-8 either: these bytes stay as they are
    if texts and not sys.flags.utf8_mode:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


def _escape_unencodable_characters() -> None:
    r"""Have characters that the output's encoding lacks written as escapes of JSON (\u20ac).

    Otherwise such a character would end the command with an error; with these escapes, a JSON
    document stays valid.
    """
    import codecs
    import io
    import json

    def escape(error: UnicodeError) -> tuple[str, int]:
        """Replace characters that cannot be encoded; returns the escapes and where to go on."""
        assert isinstance(error, UnicodeEncodeError)  # noqa: S101
        return json.dumps(error.object[error.start : error.end])[1:-1], error.end

    codecs.register_error("jetspark.escape", escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None, if the parent process closed it
            stream.reconfigure(errors="jetspark.escape")

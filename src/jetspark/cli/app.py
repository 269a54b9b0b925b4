"""All commands in one table, and the one place where errors become sentences and exit codes.

A command is a function in a file of its own, named in `_COMMANDS` with its line of help and
imported when it is called: `jetspark --help` stays quick, and loads neither Spark nor Arrow.
It returns None (or an exit code), prints through `jetspark.cli.console`, and raises
JetsparkError when something is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from jetspark.cli import console
from jetspark.errors import JetsparkError

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130

_COMMANDS = {
    "server": ("jetspark.cli.server:server", "Run a nats-server with JetStream on this machine."),
    "demo": ("jetspark.cli.demo:demo", "See it all work, on real data and a server of its own."),
    "ingest": ("jetspark.cli.ingest:ingest", "Turn a stream into a Parquet table."),
    "replay": ("jetspark.cli.replay:replay", "Turn a table into messages of a stream."),
    "run": ("jetspark.cli.run:run", "Run a pipeline that a file describes."),
    "pub": ("jetspark.cli.pub:pub", "Publish a message."),
    "sub": ("jetspark.cli.sub:sub", "Show messages as they come."),
    "acl": ("jetspark.cli.acl:acl", "Print the permissions that a role needs."),
    "events": ("jetspark.cli.events:events", "Show what JetStream tells of itself."),
    "request": ("jetspark.cli.request:request", "Ask and show the answer."),
    "stream": ("jetspark.cli.stream:stream", "Look at streams, back them up and restore them."),
    "consumer": ("jetspark.cli.consumer:consumer", "Look at a stream's consumers."),
}


def make_app() -> App:
    """The application with all its commands, none of them imported yet."""
    app = App(
        name="jetspark",
        help="Move events between NATS JetStream and Apache Spark.",
        version=_version,
        console=console.out,
        error_console=console.err,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for name, (function, help_line) in _COMMANDS.items():
        app.command(function, name=name, help=help_line)
    return app


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; the exit code.

    0: done. 1: failed, one sentence on standard error says why. 2: unknown command or option.
    130: Ctrl-C.
    """
    try:
        code = make_app()(arguments)
    except CycloptsError:
        return WRONG_USAGE  # cyclopts has printed its own message
    except JetsparkError as error:
        console.fail("\n".join([str(error), *getattr(error, "__notes__", ())]))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code if isinstance(code, int) else DONE


def _version() -> str:
    from jetspark.version import __version__
    from jetspark.wire.kernel import IMPLEMENTATION

    kernel = "C kernel" if IMPLEMENTATION == "c" else "plain-Python kernel"
    return f"jetspark {__version__} ({kernel})"

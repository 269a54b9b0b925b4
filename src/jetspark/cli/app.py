"""The application: dispatches commands, and turns errors into sentences and exit codes.

A command is a function in a file of its own, listed in `commands` with its summary and imported
when it is called, so that `jetspark --help` is fast and loads neither Spark nor Arrow. It returns
None (or an exit code), prints through `jetspark.cli.console`, and raises a JetsparkError when
something is wrong.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from typing import TYPE_CHECKING, Any

from cyclopts import (
    App,
    CycloptsError,
    CycloptsPanel,
    Parameter,
    Token,
    UnknownCommandError,
    convert,
)

from jetspark.cli import console
from jetspark.cli.commands import COMMANDS, examples
from jetspark.cli.log import log_shown, show_refusals
from jetspark.cli.signals import StopRequested
from jetspark.errors import JetsparkError

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130

# The extra that installs a missing library.
_EXTRAS = {
    **dict.fromkeys(("pyspark", "py4j", "pyarrow", "pandas", "numpy"), "spark"),
    **dict.fromkeys(("cyclopts", "rich"), "cli"),
}


def make_app(called: str = "") -> App:
    """The application with all its commands, none of them imported yet.

    `called`: the command that is called, whose docstring is its full help.
    """
    app = App(
        name="jetspark",
        help="Move events between NATS JetStream and Apache Spark.",
        version=_version,
        version_format="plaintext",
        default_parameter=Parameter(converter=_converted),
        console=console.out,
        error_console=console.err,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for place, (name, command) in enumerate(COMMANDS.items()):
        more = {} if name == called else {"help": command.line}
        if command.examples:
            more["help_epilogue"] = examples(*command.examples)
        app.command(command.function, name=name, sort_key=place, **more)
    return app


def _converted(kind: Any, tokens: Sequence[Token]) -> Any:
    """As cyclopts does, which would round a fraction where a whole number is wanted."""
    if kind in (int, int | None):
        for token in tokens:
            if "." in token.value:
                raise ValueError(f'it is a whole number, not "{token.value}".')
    return convert(kind, tokens)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; returns the exit code.

    0: done. 1: failed, with one sentence on standard error. 2: unknown command or option.
    128 and the signal's number: stopped before it was done; 130 by Ctrl-C, 143 by SIGTERM, 129 by
    a closed terminal.
    """
    with log_shown():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        code = make_app(next(iter(arguments), ""))(arguments, print_error=False)
        console.finish()
    except CycloptsError as error:
        console.err.print(CycloptsPanel(_usage(error)))
        return WRONG_USAGE
    except JetsparkError as error:
        if isinstance(error, console.OutputError):
            console.give_up_output()
        sentence = "\n".join([str(error), *getattr(error, "__notes__", ())])
        show_refusals(told=sentence)
        console.fail(sentence)
        return FAILED
    except ModuleNotFoundError as missing:
        extra = _EXTRAS.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        console.fail(f"This needs {missing.name}: pip install 'jetspark[{extra}]'.")
        return FAILED
    except StopRequested as stop:
        if notes := getattr(stop, "__notes__", ()):  # what it could not clean up
            console.fail("\n".join(notes))
        return stop.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return code if isinstance(code, int) else DONE


def _usage(error: CycloptsError) -> CycloptsError | str:
    """What is wrong with a command line."""
    first = next(iter(error.unused_tokens or ()), "")
    if isinstance(error, UnknownCommandError) and first.startswith("-"):
        return (
            f"{first} comes too early: options follow the command, as in `jetspark stream ls "
            "--server URL`."
        )
    return error


def _version() -> str:
    from jetspark.version import __version__
    from jetspark.wire.kernel import IMPLEMENTATION

    if IMPLEMENTATION == "c":
        return f"jetspark {__version__} (C kernel)"
    said = f"jetspark {__version__} (plain-Python kernel)"
    wanted = os.environ.get("JETSPARK_KERNEL") == "python"
    # Without the GIL there is no C kernel yet.
    if wanted or sysconfig.get_config_var("Py_GIL_DISABLED") or not (compiler := _compiler()):
        return said
    return (
        f"{said}\nThe faster C kernel was not built, or cannot be loaded, although there is a "
        f"compiler ({compiler}): install jetspark again with `pip install -v`, which shows why."
    )


def _compiler() -> str | None:
    """The C compiler that an installation would use."""
    said = os.environ.get("CC") or sysconfig.get_config_var("CC") or ""
    return next(filter(shutil.which, [*said.split()[:1], "cc", "gcc", "clang"]), None)

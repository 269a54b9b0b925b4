"""Somebody who reads the pages one after the other and does what they say.

One folder and one `jetspark server` for all pages; a shell and a Python prompt for each. The server
listens on a free port of loopback in place of 4222, which is exchanged in what is typed.
"""

from __future__ import annotations

import ast
import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from inspect import CO_COROUTINE
from pathlib import Path
from typing import IO, Any

from tests.pages.page import Block, is_as_shown, prints_what_it_promises
from tests.support.java import jvm_options
from tests.support.ports import free_port
from tests.support.quick_python import quick_python

from jetspark.blocking import connect
from jetspark.spark.fast_start import class_archive

_WITHIN = 400.0  # seconds for one block; a busy machine starts Spark slowly
_SHOWN_WITHIN = 60.0  # seconds for what a command in another terminal shows
_PROMPT = Path(__file__).with_name("prompt.py")
_PORT = re.compile(r"\b422\d\b")
# As properties of the JVM: a folder with a configuration would be a part of the class path, and
# keep the JVM from using the archive of Spark's classes.
_SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_SPARK_LOG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n
"""


def is_asyncio(block: Block) -> bool:
    try:
        code = compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        raise AssertionError(f"{block}: {error}") from error
    return bool(code.co_flags & CO_COROUTINE)


class Terminal:
    """A command that goes on, in another terminal, until Ctrl-C."""

    def __init__(self, reader: Reader, command: str, name: str, shown: str | None = None) -> None:
        """Returns when the command has said something."""
        self.command = command
        self.shown = shown
        self._out, self._err = (reader.aside / f"{name}.{what}" for what in ("out", "err"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = reader.started(
                "bash", "-c", f"exec {command}", stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        self._wait(lambda: self._out.stat().st_size or self._err.stat().st_size, "says nothing")

    def _wait(self, condition: Callable[[], object], problem: str) -> None:
        deadline = time.monotonic() + _SHOWN_WITHIN
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                assert condition(), f"{self.command}: {problem}\n{self.printed}{self.said}"
            time.sleep(0.02)

    @property
    def printed(self) -> str:
        return self._out.read_text("utf-8")

    @property
    def said(self) -> str:
        return self._err.read_text("utf-8", "replace")

    def wait_for_what_is_shown(self) -> None:
        if (shown := self.shown) is not None:
            self._wait(lambda: is_as_shown(shown, self.printed), "it does not print what is shown")

    def stop(self) -> None:
        """Ctrl-C."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        _wait_for_the_end(self._process)
        code = self._process.returncode
        # Ctrl-C may come when a command that ends by itself is just leaving: a shell calls it 130.
        assert code in (0, 130, -signal.SIGINT), f"{self.command}: exit code {code}\n{self.said}"
        assert "Traceback" not in self.said, self.said


class Reader:
    """`with Reader(folder) as reader: reader.read(blocks)`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.aside = folder
        self._ports: dict[str, int] = {}
        self._log = folder / "log"
        self._exit_stack = ExitStack()
        self._spark: Prompt | None = None
        for name in ("work", "home"):
            (folder / name).mkdir()
        log = folder / "log4j2.properties"
        log.write_text(_SPARK_LOG)
        settings = _SPARK_SETTINGS | {"log4j2.configurationFile": f"file:{log}"}
        self.url = self._with_our_ports("nats://127.0.0.1:4222")
        ours = ("NATS_", "SPARK_", "PYSPARK_", "JETSPARK_TEST", "PYTHON")
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(ours)
        } | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "home" / ".config"),
            "NATS_URL": self.url,
            "MASTER": "local[2]",
            "SPARK_SUBMIT_OPTS": " ".join(
                [jvm_options(), *(f"-D{name}={value}" for name, value in settings.items())]
            ),
            class_archive.VARIABLE: str(class_archive.archives_folder() or ""),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "NO_COLOR": "1",
            "COLUMNS": "120",
            "MPLBACKEND": "Agg",
        }

    def __enter__(self) -> Reader:
        port = self._ports["4222"]
        server = Terminal(self, f"jetspark server --port {port}", "server")
        self._exit_stack.callback(server.stop)
        return self

    def __exit__(self, *_: object) -> None:
        with self._exit_stack:
            if self._spark is not None:
                self._spark.close()

    def started(
        self, *command: str, environment: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """A process as a reader starts it, in a session of its own."""
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment | (environment or {}),
            bufsize=0,
            start_new_session=True,
            preexec_fn=_take_interrupts,
            **options,
        )

    def names(self) -> set[str]:
        """What is on the server and in the folder: names of streams and buckets, and paths."""
        with connect(self.url) as nc:
            streams = {re.sub("^(?:KV|OBJ)_", "", name) for name in nc.jetstream().stream_names()}
        paths = {
            str(path.relative_to(self.folder))
            for pattern in ("*", "*/*")
            for path in self.folder.glob(pattern)
            if path.is_file() or path.parent != self.folder
        }
        return streams | paths

    def read(self, blocks: list[Block], *, spark: bool) -> None:
        terminals: list[Terminal] = []
        mode = (
            "asyncio" if any(is_asyncio(block) for block in blocks if block.is_typed) else "plain"
        )
        shell = prompt = None
        printed = ""
        with ExitStack() as exit_stack:
            for block in blocks:
                assert block.problem is None, f"{block}: {block.problem}"
                text = self._with_our_ports(block.text)
                if block.reason or block.text.strip() == "jetspark server":  # that runs already
                    continue
                if block.file is not None:
                    file = self.folder / block.file
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text, "utf-8")
                elif block.language == "text":
                    self._compare(block, block.text, printed)
                elif block.in_another_terminal:
                    ((command, shown),) = block.commands
                    name = f"terminal-{len(terminals)}"
                    terminal = Terminal(self, self._with_our_ports(command), name, shown)
                    exit_stack.callback(terminal.stop)
                    terminals.append(terminal)
                elif block.language == "console":
                    if shell is None:
                        shell = Shell(self, self._prompt(mode, spark) if spark else None)
                        exit_stack.callback(shell.close)
                    for command, shown in block.commands:
                        printed = shell.type(block, self._with_our_ports(command))
                        self._compare(block, shown, printed)
                else:
                    fresh = prompt is None
                    if prompt is None:
                        prompt = self._prompt(mode, spark)
                        if prompt is not self._spark:
                            exit_stack.callback(prompt.close)
                    printed = prompt.type(block, text, fresh)
                    told = self._with_their_ports(printed)
                    assert prints_what_it_promises(block.text, told), f"{block}: it prints\n{told}"
            for terminal in terminals:
                terminal.wait_for_what_is_shown()

    def _compare(self, block: Block, shown: str | None, printed: str) -> None:
        told = self._with_their_ports(printed)
        assert shown is None or is_as_shown(shown, told), f"{block}: it prints\n{told}"

    def _prompt(self, mode: str, spark: bool) -> Prompt:
        """A new one; but one serves all pages with Spark, and their commands, with one JVM."""
        if not spark:
            return Prompt(self, mode)
        assert mode == "plain"
        if self._spark is None:
            python = self._exit_stack.enter_context(quick_python())
            self._spark = Prompt(self, mode, PYSPARK_PYTHON=python)
        return self._spark

    # -- ports -----------------------------------------------------------------------------------

    def _with_our_ports(self, text: str) -> str:
        def ours(match: re.Match[str]) -> str:
            return str(self._ports.setdefault(match[0], free_port("127.0.0.1")))

        return _PORT.sub(ours, text)

    def _with_their_ports(self, text: str) -> str:
        for theirs, ours in self._ports.items():
            text = text.replace(str(ours), theirs)
        return text


def _take_interrupts() -> None:
    """Tests in the background have Ctrl-C ignored, and their children would, too.

    When the run of the tests is killed, what it has started goes with it (1: PR_SET_PDEATHSIG).
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def _wait_for_the_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_WITHIN)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class _Typing:
    """A program that gets what to run by its standard input and answers by line."""

    def __init__(
        self,
        reader: Reader,
        command: list[str],
        name: str,
        pass_fds: Sequence[int] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self._errors = reader.aside / f"{name}.err"
        self._folder = reader.aside
        with self._errors.open("wb") as errors:
            self._process = reader.started(
                *command,
                environment=environment or {},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=pass_fds,
            )

    def _ask(self, block: Block, line: str) -> str:
        process = self._process
        to, answers = _pipe(process.stdin), _pipe(process.stdout)
        to.write(line.encode() + b"\n")
        answer = b""
        deadline = time.monotonic() + _WITHIN
        while not answer.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([answers], [], [], left)
            assert ready, f"{block}: no end within {_WITHIN:g} s\n{self._said()}"
            piece = answers.read(65536)
            assert piece, f"{block}: ended by itself\n{self._said()}"
            answer += piece
        return answer.decode()

    def _said(self) -> str:
        return self._errors.read_text("utf-8", "replace")[-4000:]

    def close(self) -> None:
        _pipe(self._process.stdin).close()
        try:
            _wait_for_the_end(self._process)
        finally:
            _pipe(self._process.stdout).close()
        said = self._said()
        assert self._process.returncode == 0, said
        for sign in ("Traceback", "was never", "unclosed"):
            assert sign not in said, said


class Prompt(_Typing):
    def __init__(self, reader: Reader, mode: str, **environment: str) -> None:
        command = [sys.executable, str(_PROMPT), mode, str(reader.aside)]
        super().__init__(reader, command, "prompt", environment=environment)

    def type(self, block: Block, code: str, fresh: bool) -> str:
        answer: dict[str, Any] = json.loads(
            self._ask(block, json.dumps({"code": code, "fresh": fresh}))
        )
        assert answer["failed"] is None, (
            f"{block}\n{answer['printed']}{answer['failed']}\n{self._said()}"
        )
        return str(answer["printed"])

    @property
    def fds(self) -> tuple[int, int]:
        """By which a shell asks for commands."""
        return _pipe(self._process.stdin).fileno(), _pipe(self._process.stdout).fileno()


class Shell(_Typing):
    def __init__(self, reader: Reader, prompt: Prompt | None) -> None:
        """`prompt`: where it runs commands, in place of processes."""
        fds = prompt.fds if prompt is not None else ()
        arguments = [str(reader.aside), *map(str, fds)]
        super().__init__(reader, ["bash", "-c", _SHELL, "bash", *arguments], "shell", fds)

    def type(self, block: Block, command: str) -> str:
        (self._folder / "command").write_text(command, "utf-8")
        status = self._ask(block, "go").strip()
        printed = (self._folder / "printed").read_text("utf-8", "replace")
        told = (self._folder / "told").read_text("utf-8", "replace")
        assert status == "0", f"{block}: exit code {status}\n{printed}\n{told}"
        assert "Traceback" not in told, f"{block}\n{told}"
        return printed


_SHELL = """
aside=$1 asks=$2 answers=$3
shared() {
    printf '%s\\0' "$@" >"$aside/arguments"
    env -0 >"$aside/environment"
    echo >&"$asks"
    read -r status <&"$answers"
    cat "$aside/out"
    cat "$aside/err" >&2
    return "$status"
}
[ -z "$asks" ] || jetspark() {
    case "$1" in
    ingest | run | replay | table | stream | consumer | service | backup) shared "$@" ;;
    *) command jetspark "$@" ;;
    esac
}
while read -r _; do
    . "$aside/command" >"$aside/printed" 2>"$aside/told" </dev/null
    echo $?
done
"""


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream

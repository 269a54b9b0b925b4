"""Where commands print: results on standard output, everything else on standard error.

Everything passes here, whoever wrote it: control characters, which a terminal would execute, are
printed as escapes, in JSON as those of JSON. A test finds what prints by another way.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from jetspark.cli.signals import StopRequested, run_until_signal
from jetspark.errors import ConfigError, JetsparkError
from jetspark.wire.headers import Headers

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from jetspark.client.messages import Message

_NOBODY_READS = 128 + 13  # SIGPIPE's number, which Windows has not


class OutputError(JetsparkError):
    """Standard output cannot be written: a full disk, a terminal that is gone."""


class _StandardOutput:
    """`sys.stdout` of the moment, whose failures are OutputError; SystemExit when nobody reads."""

    def write(self, text: str) -> int:
        if text and sys.stdout is None:
            raise OutputError("Cannot write to standard output: it is closed.")
        with _told():
            return int(_stdout().write(text))

    def flush(self) -> None:
        with _told():
            _stdout().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(_stdout(), name)


def _stdout() -> Any:
    return sys.stdout or io.StringIO()  # none at all: closed by whoever started us


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        out.on_broken_pipe()  # as rich does where it writes
    except OSError as error:
        why = error.strerror or error
        raise OutputError(f"Cannot write to standard output: {why}.") from error


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads any more: end in silence, with the code of a tool that SIGPIPE ended."""
        give_up_output()
        raise SystemExit(_NOBODY_READS)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich does it, with `harmless` text; rich's own control codes are segments apart."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


def harmless(text: str) -> str:
    """The text with control characters, but for line ends and tabs, written as escapes."""
    return _escaped(text, lambda c: c.encode("unicode_escape").decode())


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else escape(c) for c in text)


# No highlighting, since rich would colour digits at random. Lines are not wrapped at the width of
# the terminal (soft_wrap below), since people copy URLs and paths from them.
def _console(*, stderr: bool) -> Console:
    """Colours for a terminal; always with FORCE_COLOR, never with NO_COLOR or TERM=dumb."""
    file: Any = None if stderr else _StandardOutput()
    forced = bool(os.environ.get("FORCE_COLOR"))
    if os.environ.get("NO_COLOR") or (_is_dumb() and not forced):
        # Without any style: rich's own `no_color` keeps bold and dim.
        return _Console(stderr=stderr, file=file, highlight=False, color_system=None)
    if forced:
        return _Console(
            stderr=stderr, file=file, highlight=False, force_terminal=True, color_system="standard"
        )
    return _Console(stderr=stderr, file=file, highlight=False)


def _is_dumb() -> bool:
    return os.environ.get("TERM", "").casefold() in ("dumb", "unknown")


out = _console(stderr=False)
err = _console(stderr=True)


def finish() -> None:
    """Writes what is still buffered. Raises OutputError; SystemExit when nobody reads it."""
    out.file.flush()


def give_up_output() -> None:
    """After a failure: what is still buffered is dropped, not tried again at the exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _stdout().fileno())
        os.close(nowhere)


def is_live() -> bool:
    """Whether standard error is a terminal on which a line can be rewritten; colours or not."""
    return err.file.isatty() and not _is_dumb()


def say(*lines: Text | str) -> None:
    """Prints lines on standard output, in one write; strings are not interpreted as markup."""
    texts = (Text(harmless(line)) if isinstance(line, str) else line for line in lines)
    out.print(Text("\n").join(texts), soft_wrap=True)


def say_json(document: Any, *, indent: bool = False) -> None:
    """Prints one JSON document on standard output, in one line unless `indent`."""
    if indent:
        text = msgspec.json.format(msgspec.json.encode(document)).decode()
    else:
        text = json.dumps(document, ensure_ascii=False)
    out.file.write(_escaped(text, lambda c: json.dumps(c)[1:-1]) + "\n")
    finish()


def write_bytes(data: bytes) -> None:
    """Writes bytes on standard output as they are: what somebody asks for raw."""
    finish()
    if sys.stdout is None:
        raise OutputError("Cannot write to standard output: it is closed.")
    with _told():
        sys.stdout.buffer.write(data)
    finish()


def counted(count: int, thing: str) -> str:
    """ "1 row" and "1,000 rows"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def field(label: str, value: str, remark: str = "") -> Text:
    """A line `label  value  (remark)` of a list of facts."""
    line = Text.assemble((f"  {label:<7}", "dim"), value)
    return line.append(f"  ({remark})", style="dim") if remark else line


def fail(sentence: str) -> None:
    """Prints one red sentence on standard error."""
    err.print(Text(harmless(sentence), style="red"), soft_wrap=True)


# -------------------------------------------------------------------------------------------------
# How `ingest`, `replay` and `run` report their result: for people, for programs, or not at all.


QuietOption: TypeAlias = Annotated[bool, Parameter(name=("--quiet", "-q"), negative=())]
JsonOutputOption: TypeAlias = Annotated[
    bool, Parameter(name=("--json-output", "--json"), negative=())
]
# For commands where --json means something else.
JsonOutputFlag: TypeAlias = Annotated[bool, Parameter(name=("--json-output",), negative=())]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`quiet`: print only errors, and JSON if requested. `as_json`: one document at the end, on
    standard output, whether the work was done or stopped."""

    quiet: bool = False
    as_json: bool = False

    def note(self, sentence: str) -> None:
        """Print a line on standard error during the work."""
        if not self.quiet:
            err.print(Text(sentence), soft_wrap=True)

    def tell(self, *sentences: str, **facts: object) -> None:
        """Print the result: sentences for people, or facts for programs."""
        if self.as_json:
            say_json(facts)
        elif not self.quiet:
            say(*sentences)


# -------------------------------------------------------------------------------------------------
# Shared by `pub`, `sub` and `request`: reading headers and payloads, showing messages.


HeaderOption: TypeAlias = Annotated[
    list[str] | None, Parameter(name=("--header", "-H"), negative="")
]
CountOption: TypeAlias = Annotated[int, Parameter(name=("--count",))]
EndOption: TypeAlias = Annotated[int | None, Parameter(name=("--count",))]
"""The messages to end after; None: none of them."""
StdinOption: TypeAlias = Annotated[bool, Parameter(name=("--stdin",), negative=())]
JsonOption: TypeAlias = Annotated[bool, Parameter(name=("--json",), negative=())]
RawOption: TypeAlias = Annotated[bool, Parameter(name=("--raw",), negative=())]

_LARGEST = 64 << 20  # bytes of a payload that any server takes


def read_headers(texts: list[str] | None) -> Headers | None:
    """Headers from strings "name: value". Raises ConfigError, BadHeaderError."""
    headers = Headers()
    for text in texts or ():
        name, colon, value = text.partition(":")
        if not colon:
            raise ConfigError(f"--header {text!r}: write name:value.")
        headers.add(name.strip(), value.strip())
    return headers or None


def read_payload(text: str, *, stdin: bool) -> bytes:
    """The bytes of the argument, or standard input to its end.

    Raises ConfigError for both, without a standard input, and for more than any message has.
    """
    if not stdin:
        return text.encode("utf-8", "surrogateescape")  # the bytes of an argument that is not UTF-8
    if text:
        raise ConfigError("Give the payload either as an argument or with --stdin.")
    if not sys.stdin:  # None, if whoever started us closed it
        raise ConfigError("Standard input is closed: give --stdin a file or a pipe.")
    data = sys.stdin.buffer.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ConfigError("Standard input has more than 64 MiB, which is no message of NATS.")
    return data


def stdin_waits() -> bool:
    """Whether a file or a pipe is standard input, unless it is empty or has ended.

    Of a socket, which ssh and other programs leave open, only what it holds now counts.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return False
        if not select.select([sys.stdin], [], [], 0)[0]:
            return stat.S_ISFIFO(mode)
        return isinstance(sys.stdin.buffer, io.BufferedReader) and bool(sys.stdin.buffer.peek(1))
    except (AttributeError, OSError, ValueError):  # closed, or none that can be asked
        return False


def show(message: Message, *, as_json: bool, raw: bool = False) -> None:
    """One message on standard output: as a line of JSON, its payload alone, or for people."""
    if raw:
        write_bytes(message.data)
        return
    if as_json:
        say_json(document_of(message))
        return
    line = Text.assemble((message.subject, "bold"))
    if message.reply is not None:
        line.append(f"  (reply to {message.reply})", style="dim")
    lines = [line]
    if message.headers is not None:
        lines += [Text(f"{n}: {v}", style="dim") for n, v in message.headers.items()]
    say(*lines, message.data.decode("utf-8", "backslashreplace"))


def document_of(message: Message) -> dict[str, object]:
    """subject, reply, headers, and data; data_base64 instead if the payload is not UTF-8."""
    document: dict[str, object] = {"subject": message.subject}
    if message.reply is not None:
        document["reply"] = message.reply
    if message.headers is not None:
        document["headers"] = message.headers.to_dict()
    try:
        document["data"] = message.data.decode()
    except UnicodeDecodeError:
        document["data_base64"] = base64.b64encode(message.data).decode()
    return document


def check_form(*, as_json: bool, raw: bool) -> None:
    """Raises ConfigError for two forms."""
    if as_json and raw:
        raise ConfigError("Give --json or --raw, not both.")


def check_count(count: int | None) -> None:
    """Raises ConfigError for a number of messages to end after, if there is one, below one."""
    if count is not None and count < 1:
        raise ConfigError("--count must be at least 1; without it the command ends at Ctrl-C.")


def run_until_stopped(
    work: Callable[[], Coroutine[object, object, None]], *, endless: Callable[[], bool]
) -> None:
    """Runs the work to its end, or until a signal to stop.

    That is the normal end of `endless` work. Otherwise raises StopRequested: it is not done.
    """
    try:
        run_until_signal(work)
    except StopRequested:
        if not endless():
            raise

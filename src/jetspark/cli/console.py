"""Printing for all commands: results on standard output, everything else on standard error.

All text passes through here, whoever wrote it. A terminal would execute control characters, so they
are printed as escapes (in JSON, as JSON's). A test finds code that prints in another way.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

import jetspark.errors as errors

if TYPE_CHECKING:
    pass

P = TypeVar("P")
_BROKEN_PIPE = 128 + 13  # SIGPIPE's number, which Windows lacks


class OutputError(errors.JetsparkError):
    """Standard output cannot be written: a full disk, a terminal that is gone."""


class _StandardOutput:
    """The current `sys.stdout`; a failure raises OutputError, or SystemExit when nobody reads."""

    def write(self, text: str) -> int:
        if text:
            _check_open()
        with _output_errors():
            return int(_stdout().write(text))

    def flush(self) -> None:
        with _output_errors():
            _stdout().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(_stdout(), name)


def _check_open() -> None:
    """Raise OutputError without a standard output: Python has None for one that is closed."""
    if sys.stdout is None:
        raise OutputError("Cannot write to standard output: it is closed.")


def _stdout() -> Any:
    """The standard output, or an object that takes what is written and forgets it."""
    return sys.stdout or io.StringIO()


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
    """Turn an error of the block into OutputError, or SystemExit when nobody reads."""
    try:
        yield
    except BrokenPipeError:
        out.on_broken_pipe()  # like rich
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"Cannot write to standard output: {reason}.") from error


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads any more: exit silently, with the code of a tool that SIGPIPE killed."""
        give_up_output()
        raise SystemExit(_BROKEN_PIPE)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """rich's rendering, whose text has escapes for control characters (`escape_controls`)."""
        for segment in super().render(renderable, options):
            yield (
                segment if segment.control else segment._replace(text=escape_controls(segment.text))
            )


def escape_controls(text: str) -> str:
    """The text with control characters as escapes; line ends and tabs stay."""
    return _replace_controls(text, lambda c: c.encode("unicode_escape").decode())


def escape_to_line(text: str) -> str:
    """The text on one line: control characters, line ends and tabs as escapes.

    A name or value with a line end would look like further lines of ours.
    """
    return escape_controls(text).replace("\n", "\\n").replace("\t", "\\t")


def _replace_controls(text: str, escape: Callable[[str], str]) -> str:
    """The text with `escape` of each control character but line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else escape(c) for c in text)


# No highlighting, since rich would colour digits at random. Lines are not wrapped at the terminal's
# width (soft_wrap below), since people copy URLs and paths from them.
def _make_console(*, stderr: bool) -> Console:
    """A console with colours on a terminal; always with FORCE_COLOR, never with NO_COLOR or a dumb
    terminal."""
    style: dict[str, Any] = {}
    forced = bool(os.environ.get("FORCE_COLOR"))
    if os.environ.get("NO_COLOR") or (_is_dumb() and not forced):
        style = {"color_system": None}  # no style at all: rich's `no_color` keeps bold and dim
    elif forced:
        style = {"force_terminal": True, "color_system": "standard"}
    file: Any = None if stderr else _StandardOutput()
    return _Console(stderr=stderr, file=file, highlight=False, **style)


def _is_dumb() -> bool:
    """Whether the terminal can only print lines."""
    return os.environ.get("TERM", "").casefold() in ("dumb", "unknown")


out = _make_console(stderr=False)
err = _make_console(stderr=True)


def finish() -> None:
    """Flush standard output. Raises OutputError; SystemExit when nobody reads it."""
    out.file.flush()


def give_up_output() -> None:
    """After a failure, drop the buffered text, so that the exit does not try it again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _stdout().fileno())
        os.close(nowhere)


def is_live() -> bool:
    """Whether standard error is a terminal that can rewrite a line, with colours or without."""
    return err.file.isatty() and not _is_dumb()


def say(*lines: Text | str) -> None:
    """Print lines on standard output, in one write; strings are not markup."""
    texts = (Text(escape_controls(line)) if isinstance(line, str) else line for line in lines)
    out.print(Text("\n").join(texts), soft_wrap=True)


def say_json(document: Any, *, indent: bool = False) -> None:
    """Print one JSON document on standard output, on one line unless `indent`."""
    if indent:
        text = msgspec.json.format(msgspec.json.encode(document)).decode()
    else:
        text = json.dumps(document, ensure_ascii=False)
    out.file.write(_replace_controls(text, lambda c: json.dumps(c)[1:-1]) + "\n")
    finish()


def write_bytes(data: bytes) -> None:
    """Write bytes unchanged on standard output, for --raw."""
    finish()
    _check_open()
    with _output_errors():
        sys.stdout.buffer.write(data)
    finish()


def warn(text: str, level: str = "info") -> None:
    """Print lines on standard error."""
    if not _print_log_document(text, level):
        err.print(Text(text), soft_wrap=True)


def fail(sentence: str) -> None:
    """Print one red sentence on standard error."""
    if not _print_log_document(sentence, "error"):
        err.print(Text(escape_controls(sentence), style="red"), soft_wrap=True)


def _print_log_document(text: str, level: str) -> bool:
    """Print the text as JSON on one line if JETSPARK_LOG=json; returns whether it is."""
    if os.environ.get("JETSPARK_LOG") != "json":
        return False
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"time": time, "level": level, "message": text})  # all of it in ASCII
    err.file.write(line + "\n")
    err.file.flush()
    return True


@dataclass(frozen=True, slots=True)
class Outcome:
    """Reports the result of `ingest`, `replay` and `run`.

    `quiet`: print only errors, and JSON if requested. `as_json`: print one document at the end, on
    standard output, whether the work is done or was stopped.
    """

    quiet: bool = False
    as_json: bool = False

    def note(self, sentence: str) -> None:
        """Print a line on standard error during the work."""
        if not self.quiet:
            warn(sentence)

    def report(self, *sentences: str, **facts: object) -> None:
        """Print the result: sentences for people, or facts for programs."""
        if self.as_json:
            say_json(facts)
        elif not self.quiet:
            say(*sentences)

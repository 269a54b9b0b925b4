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
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

import jetspark.errors as errors

_BROKEN_PIPE = 128 + 13  # SIGPIPE's number, which Windows lacks


class OutputError(errors.JetsparkError):
    """Standard output cannot be written: a full disk, a terminal that is gone."""


class _StandardOutput:
    """The file that commands print to: whatever `sys.stdout` is at that moment.

    A failure raises OutputError, or SystemExit when nobody reads the output any more.
    """

    def write(self, text: str) -> int:
        """Write a text, as every file does; returns its length.

        An empty text, which rich writes of its own accord, is no error if the output is closed.
        """
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
    """Raise OutputError if standard output is closed: Python then has None for it."""
    if sys.stdout is None:
        raise OutputError("Cannot write to standard output: it is closed.")


def _stdout() -> Any:
    """The standard output, or an object that takes what is written and forgets it."""
    return sys.stdout or io.StringIO()


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
    """Turn an OSError of the block, which writes to standard output, into OutputError.

    When nobody reads the output any more (a broken pipe), the command exits silently instead.
    """
    try:
        yield
    except BrokenPipeError:
        out.on_broken_pipe()  # raises SystemExit; rich calls it for its own writes
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"Cannot write to standard output: {reason}.") from error


class _Console(Console):
    """A console of rich that prints no control characters of texts, and exits at a broken pipe."""

    def on_broken_pipe(self) -> None:
        """Exit silently, as nobody reads the output: with the code of a tool killed by SIGPIPE."""
        give_up_output()
        raise SystemExit(_BROKEN_PIPE)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, but with escapes for control characters in the texts.

        Without that, a message's text could control the terminal. Segments of rich's own control
        codes stay as they are.
        """
        for segment in super().render(renderable, options):
            yield (
                segment if segment.control else segment._replace(text=escape_controls(segment.text))
            )


def escape_controls(text: str) -> str:
    """Replace the control characters of a text by escapes such as \\x1b, but no line end or tab."""
    return _replace_controls(text, lambda c: c.encode("unicode_escape").decode())


def escape_to_line(text: str) -> str:
    """Put a text on one line: control characters, line ends and tabs become escapes.

    Otherwise a name or value with a line end could imitate further lines of the command's output.
    """
    return escape_controls(text).replace("\n", "\\n").replace("\t", "\\t")


def _replace_controls(text: str, escape: Callable[[str], str]) -> str:
    """Replace each control character of a text, but no line end or tab, by its `escape`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else escape(c) for c in text)


# No highlighting, since rich would colour digits at random. Lines are not wrapped at the terminal's
# width (soft_wrap below), since people copy URLs and paths from them.
def _make_console(*, stderr: bool) -> Console:
    """Make rich's console for standard output or standard error.

    It has colours on a terminal; always with FORCE_COLOR, never with NO_COLOR or on a dumb
    terminal, which can only print lines.
    """
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
    """Drop the text that standard output still buffers, after writing it has failed.

    Python flushes the buffer when it exits: that now goes to the null device, and cannot fail.
    """
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
    # The encoders leave some control characters as they are, such as DEL.
    out.file.write(_replace_controls(text, lambda c: json.dumps(c)[1:-1]) + "\n")
    finish()


def write_bytes(data: bytes) -> None:
    """Write bytes unchanged on standard output, for --raw."""
    finish()  # texts that were printed before come first
    _check_open()
    with _output_errors():
        sys.stdout.buffer.write(data)
    finish()


def warn(text: str, level: str = "info") -> None:
    """Print lines on standard error; as JSON with this `level` if JETSPARK_LOG=json."""
    if not _print_log_document(text, level):
        err.print(Text(text), soft_wrap=True)


def fail(sentence: str) -> None:
    """Print one red sentence on standard error; as JSON if JETSPARK_LOG=json."""
    if not _print_log_document(sentence, "error"):
        err.print(Text(escape_controls(sentence), style="red"), soft_wrap=True)


def _print_log_document(text: str, level: str) -> bool:
    """Print a text on standard error as a line of JSON if JETSPARK_LOG=json.

    Returns False, and prints nothing, without that setting: the caller then prints the text.
    """
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
        """Print a line on standard error during the work, unless --quiet."""
        if not self.quiet:
            warn(sentence)

    def report(self, *sentences: str, **facts: object) -> None:
        """Print the result of the command: the facts as JSON with --json, else the sentences."""
        if self.as_json:
            say_json(facts)
        elif not self.quiet:
            say(*sentences)

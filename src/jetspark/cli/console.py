"""Where commands print: results on standard output, everything else on standard error.

Everything passes here, whoever wrote it: control characters, which a terminal would execute, are
printed as escapes, in JSON as those of JSON. A test finds what prints by another way.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from jetspark.errors import JetsparkError

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

"""Printing for all commands: results on standard output, everything else on standard error.

All text passes through here, whoever wrote it. A terminal would execute control characters, so they
are printed as escapes (in JSON, as JSON's). A test finds code that prints in another way.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

import jetspark.errors as errors
from jetspark.documents.document import to_wire
from jetspark.wire.headers import Headers, PayloadCodec

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from jetspark.client.messages import Message
    from jetspark.documents.streams import StoredMsg

P = TypeVar("P")
T = TypeVar("T")

_NARROW = 8  # cells of a column that is not cut further
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
    if sys.stdout is None:
        raise OutputError("Cannot write to standard output: it is closed.")


def _stdout() -> Any:
    return sys.stdout or io.StringIO()  # None, if the parent process closed it


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
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
        """rich's rendering with `harmless` text; rich's own control codes are separate segments."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


def harmless(text: str) -> str:
    """The text with control characters as escapes; line ends and tabs stay."""
    return _escaped(text, lambda c: c.encode("unicode_escape").decode())


def one_line(text: str) -> str:
    """`harmless` text without line ends and tabs, by which a name or a value would look like more
    lines, or cells, of ours."""
    return harmless(text).replace("\n", "\\n").replace("\t", "\\t")


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else escape(c) for c in text)


# No highlighting, since rich would colour digits at random. Lines are not wrapped at the terminal's
# width (soft_wrap below), since people copy URLs and paths from them.
def _console(*, stderr: bool) -> Console:
    """Colours on a terminal; always with FORCE_COLOR, never with NO_COLOR or TERM=dumb."""
    style: dict[str, Any] = {}
    forced = bool(os.environ.get("FORCE_COLOR"))
    if os.environ.get("NO_COLOR") or (_is_dumb() and not forced):
        style = {"color_system": None}  # no style at all: rich's `no_color` keeps bold and dim
    elif forced:
        style = {"force_terminal": True, "color_system": "standard"}
    file: Any = None if stderr else _StandardOutput()
    return _Console(stderr=stderr, file=file, highlight=False, **style)


def _is_dumb() -> bool:
    return os.environ.get("TERM", "").casefold() in ("dumb", "unknown")


out = _console(stderr=False)
err = _console(stderr=True)


def finish() -> None:
    """Write the buffered text. Raises OutputError; SystemExit when nobody reads it."""
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
    texts = (Text(harmless(line)) if isinstance(line, str) else line for line in lines)
    out.print(Text("\n").join(texts), soft_wrap=True)


def say_json(document: Any, *, indent: bool = False) -> None:
    """Print one JSON document on standard output, on one line unless `indent`."""
    if indent:
        text = msgspec.json.format(msgspec.json.encode(document)).decode()
    else:
        text = json.dumps(document, ensure_ascii=False)
    out.file.write(_escaped(text, lambda c: json.dumps(c)[1:-1]) + "\n")
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
    if not _logged(text, level):
        err.print(Text(text), soft_wrap=True)


def fail(sentence: str) -> None:
    """Print one red sentence on standard error."""
    if not _logged(sentence, "error"):
        err.print(Text(harmless(sentence), style="red"), soft_wrap=True)


def _logged(text: str, level: str) -> bool:
    """Print a JSON document on one line in place of the text, if JETSPARK_LOG=json; else False."""
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


# -- listings, facts and messages ------------------------------------------------------------------


def show_list(
    items: Sequence[T],
    columns: Mapping[str, Callable[[T], object]],
    *,
    as_json: bool,
    document: Callable[[Any], object] = to_wire,
) -> None:
    """Print a table with a row for each item, or one JSON array of their documents."""
    if as_json:
        say_json([document(item) for item in items], indent=True)
    else:
        rows = ([cell(item) for cell in columns.values()] for item in items)
        show_table(*columns, rows=rows)


def show_infos(
    items: Sequence[T],
    facts: Callable[[T], dict[str, object]],
    parts: Callable[[T], Sequence[P]],
    columns: Mapping[str, Callable[[P], object]],
    *,
    as_json: bool,
    document: Callable[[Any], object] = to_wire,
) -> None:
    """Print facts of each item and a table of its parts, or one JSON array of the documents."""
    if as_json:
        say_json([document(item) for item in items], indent=True)
        return
    for index, item in enumerate(items):
        if index:
            say("")
        show_facts(facts(item))
        if rows := parts(item):
            say("")
            show_list(rows, columns, as_json=False)


def show_result(result: str | dict[str, object], document: object, *, as_json: bool) -> None:
    """Print a sentence or facts for people, or a JSON document."""
    if as_json:
        say_json(document, indent=True)
    elif isinstance(result, str):
        say(result)
    else:
        show_facts(result)


@contextlib.contextmanager
def progress_bar(
    label: str, *columns: ProgressColumn, **task: Any
) -> Iterator[Callable[..., None]]:
    """A bar on the terminal; call the yielded function with the changed fields of rich's task."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not is_live(),
    ) as display:
        yield partial(display.update, display.add_task(label, **task))


def show_table(*headings: str, rows: Iterable[Iterable[object]]) -> None:
    """Print columns as wide as their longest cell, all but the first right-justified.

    On a terminal that is too narrow the widest are cut, but not the first one, which names what the
    row is about, and none so far that different cells look equal.
    """
    cells = [headings, *(tuple(one_line(str(cell)) for cell in row) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    room = out.width - 2 * (len(widths) - 1) if out.is_terminal else sum(widths)
    if sum(widths) > room:
        _narrow(widths, list(zip(*cells, strict=True)), room)
    lines = ["  ".join(_padded(row, widths)) for row in cells]
    say(Text(lines[0], style="bold"), *lines[1:])


def _narrow(widths: list[int], columns: list[tuple[str, ...]], room: int) -> None:
    """Cut the widest columns, until all fit into the room, or no more can be cut."""
    min_widths = [widths[0], *map(_least_width, columns[1:])]
    while sum(widths) > room:
        wide = [index for index, width in enumerate(widths) if width > min_widths[index]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def _least_width(column: Sequence[str]) -> int:
    """The least width at which the cells differ that are different."""
    width, distinct = max(map(cell_len, column)), len({*column})
    while width > _NARROW and len({_cut(cell, width - 1) for cell in column}) == distinct:
        width -= 1
    return width


def _cut(cell: str, width: int) -> str:
    return cell if cell_len(cell) <= width else f"{set_cell_size(cell, width - 1)}…"


def _padded(row: Iterable[str], widths: list[int]) -> Iterator[str]:
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        cell = _cut(cell, width)
        space = " " * (width - cell_len(cell))
        yield space + cell if index else cell + space


def show_facts(facts: dict[str, object], *, title: Text | None = None) -> None:
    """Print names and values in lines, without empty values; below a title, if any."""
    texts = {name: one_line(str(value)) for name, value in facts.items() if value not in (None, "")}
    width = max(map(len, texts))
    lines = [Text.assemble((f"{name:<{width}}  ", "dim"), text) for name, text in texts.items()]
    say(*([title] if title else []), *lines)


def show_message(
    message: Message, *, as_json: bool, raw: bool = False, codec: PayloadCodec | None = None
) -> None:
    """Print one message: for people, as a line of JSON, or only its payload."""
    if raw:
        write_bytes(message.data)
    elif as_json:
        say_json(_document_of(message, message.headers, codec))
    else:
        line = Text.assemble((message.subject, "bold"))
        if message.reply is not None:
            line.append(f"  (reply to {message.reply})", style="dim")
        headers = message.headers.items() if message.headers is not None else ()
        lines = [Text(one_line(f"{name}: {value}"), style="dim") for name, value in headers]
        say(line, *lines, _payload_text(message, codec, message.subject))


def show_stored(message: StoredMsg, *, as_json: bool, codec: PayloadCodec | None = None) -> None:
    """Print one message of a stream: for people, or as a line of JSON."""
    description = f"Message {message.seq:,} on {message.subject}"
    try:
        headers = message.headers or Headers()
    except errors.BadHeaderError as error:
        warn(f"{description}: {error}")
        headers = Headers()
    if as_json:
        position = {"seq": message.seq, "time": message.time.isoformat()}
        say_json(position | _document_of(message, headers, codec))
    else:
        line = Text.assemble(
            (message.subject, "bold"), (f"  {message.seq:,}  {moment(message.time)}", "dim")
        )
        lines = [Text(one_line(f"{name}: {value}"), style="dim") for name, value in headers.items()]
        say(line, *lines, _payload_text(message, codec, description))


def _payload_text(message: Message | StoredMsg, codec: PayloadCodec | None, label: str) -> str:
    payload, reason = _payload_of(message, codec)
    if reason:
        warn(f"{label}: {reason}")
    return payload.decode("utf-8", "backslashreplace")


def _payload_of(message: Message | StoredMsg, codec: PayloadCodec | None) -> tuple[bytes, str]:
    """The payload and ""; with a codec its value in JSON. A bad one as it is, and the reason."""
    try:
        return message.data if codec is None else msgspec.json.encode(message.decode(codec)), ""
    except (errors.CodecError, errors.BadHeaderError) as error:
        return message.data, str(error)


def _document_of(
    message: Message | StoredMsg, headers: Headers | None, codec: PayloadCodec | None
) -> dict[str, object]:
    """subject, reply, headers and data, or data_base64 for a payload that is not UTF-8; `error`
    says why a payload does not decode."""
    document: dict[str, object] = {"subject": message.subject}
    reply = getattr(message, "reply", None)
    if reply is not None:
        document["reply"] = reply
    if headers:
        document["headers"] = headers.to_dict()
    data, reason = _payload_of(message, codec)
    if reason:
        document["error"] = reason
    try:
        document["data"] = data.decode()
    except UnicodeDecodeError:
        document["data_base64"] = base64.b64encode(data).decode()
    return document


# -- values for people -----------------------------------------------------------------------------


def counted(count: int, thing: str) -> str:
    """ "1 row" and "1,000 rows"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def describe_left_out(messages: int) -> str:
    """A sentence about messages that are no rows by their format."""
    noun = counted(messages, "message")
    return (
        f"{noun} left out, as Debezium's that are no changes (tombstones, heartbeats and others)."
    )


def size(count: int) -> str:
    """Bytes in a suitable unit, such as 1.5 MiB."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def limit(value: int | None, show: Callable[[int], str] = "{:,}".format) -> str:
    """A limit; -1, 0 and None are "unlimited"."""
    return "unlimited" if value is None or value <= 0 else show(value)


def moment(time: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "never" if time is None else f"{time.replace(tzinfo=None).isoformat(' ', 'seconds')}Z"


def span(duration: timedelta | None) -> str:
    """A duration; None and zero are "unlimited"."""
    return str(duration) if duration else "unlimited"


# -- the log ---------------------------------------------------------------------------------------
#
# Printed as Python does without logging configuration. A refusal by the server waits for the end,
# since it becomes the error of most commands.


_logger = logging.getLogger("jetspark")
logging.getLogger("jetspark.cli").setLevel(logging.INFO)
_REFUSALS = errors.PermissionsError, errors.NoStreamResponseError
_INBOX = re.compile(r'[\w-]{22}(\.[\d*]+)?(?=")')
"""The end of an inbox's subject in a refusal, which differs for each attempt."""


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.refusals: list[str] | None = []
        """Waiting refusals; None when they are printed at once."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        is_refusal = any(isinstance(argument, _REFUSALS) for argument in record.args or ())
        if is_refusal and self.refusals is not None:
            self.refusals.append(text)
        else:
            warn(text, record.levelname.casefold())


_log = _Log()


@contextlib.contextmanager
def log_shown() -> Iterator[None]:
    """Print the log during the block, unless the program configured logging."""
    if _logger.hasHandlers():
        yield
        return
    _logger.addHandler(_log)
    try:
        yield
    finally:
        show_refusals()
        _logger.removeHandler(_log)


def show_refusals(*, except_in: str = "", at_once: bool = False) -> None:
    """Print each waiting refusal once, except those within the sentence `except_in`.

    `at_once`: print further ones as they come.
    """
    waiting, _log.refusals = _log.refusals or [], None if at_once else []
    printed = _INBOX.sub("", except_in)
    for refusal, text in {_INBOX.sub("", text): text for text in waiting}.items():
        if refusal not in printed:
            warn(text)

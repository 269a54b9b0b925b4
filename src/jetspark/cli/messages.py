"""Shared by `pub`, `sub` and `request`: reading headers and payloads, showing messages."""

from __future__ import annotations

import base64
import io
import os
import select
import stat
import sys
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter
from rich.text import Text

from jetspark.cli import console
from jetspark.cli.signals import StopRequested, run_until_signal
from jetspark.errors import ConfigError
from jetspark.wire.headers import Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from jetspark.client.messages import Message

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
        console.write_bytes(message.data)
        return
    if as_json:
        console.say_json(document_of(message))
        return
    line = Text.assemble((message.subject, "bold"))
    if message.reply is not None:
        line.append(f"  (reply to {message.reply})", style="dim")
    lines = [line]
    if message.headers is not None:
        lines += [Text(f"{n}: {v}", style="dim") for n, v in message.headers.items()]
    console.say(*lines, message.data.decode("utf-8", "backslashreplace"))


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

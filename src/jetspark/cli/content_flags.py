"""The flags --header and --stdin: the content of a message to send."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from jetspark.cli.flags import Repeated, Switch
from jetspark.errors import ConfigError
from jetspark.wire.headers import Headers

_MAX_PAYLOAD_BYTES = 64 << 20  # no server takes more


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ContentFlags:
    """The flags --header and --stdin; the payload may also be an argument."""

    header: Annotated[Repeated, Parameter(name=("--header", "-H"))] = None
    """Header as name:value; may be given again, also with the same name."""
    stdin: Switch = False
    """Read the payload from standard input."""

    def headers(self) -> Headers | None:
        """The headers of all --header flags, or None. Raises ConfigError, BadHeaderError."""
        headers = Headers()
        for text in self.header or ():
            name, colon, value = text.partition(":")
            if not colon:
                raise ConfigError(f"--header {text!r}: write name:value.")
            headers.add(name.strip(), value.strip())
        return headers or None

    def payload(self, text: str) -> bytes:
        """The payload to send: the argument `text`, or with --stdin all of standard input.

        Raises the errors of `read_content`.
        """
        return read_content("payload", text, stdin=self.stdin)


def read_content(noun: str, text: str, *, stdin: bool) -> bytes:
    """The bytes of a payload or value: the argument `text`, or with --stdin standard input.

    `noun`: what it is, for errors. Raises ConfigError for both at once, for a closed standard
    input, and beyond 64 MiB.
    """
    if not stdin:
        return text.encode("utf-8", "surrogateescape")  # the bytes as typed, UTF-8 or not
    if text:
        raise ConfigError(f"Give the {noun} either as an argument or with --stdin.")
    if not sys.stdin:  # None, if the parent process closed it
        raise ConfigError("Standard input is closed: give --stdin a file or a pipe.")
    data = sys.stdin.buffer.read(_MAX_PAYLOAD_BYTES + 1)
    if len(data) > _MAX_PAYLOAD_BYTES:
        raise ConfigError("Standard input has more than 64 MiB, which no server takes.")
    return data


NO_CONTENT = ContentFlags()


def is_stdin_waiting() -> bool:
    """Whether a payload seems to wait on standard input, although --stdin is not given.

    True for a file or a pipe that is not at its end, also for a pipe whose writer has sent nothing
    yet. A socket, which ssh and others leave open, must already have bytes.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return False
        if not select.select([sys.stdin], [], [], 0)[0]:
            return stat.S_ISFIFO(mode)  # no bytes yet: a pipe's writer may still send some
        # Ready to read means bytes or the end; `peek` tells which without taking them.
        return isinstance(sys.stdin.buffer, io.BufferedReader) and bool(sys.stdin.buffer.peek(1))
    except (AttributeError, OSError, ValueError):  # closed, or replaced
        return False

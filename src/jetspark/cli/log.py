"""The log of jetspark in a command: lines on standard error, as Python prints it by default.

A refusal by the server waits for the end of the command, since it becomes the error of most.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import jetspark.errors as errors
from jetspark.cli import console

_logger = logging.getLogger("jetspark")
logging.getLogger("jetspark.cli").setLevel(logging.INFO)
_REFUSALS = errors.PermissionsError, errors.NoStreamResponseError
_INBOX = re.compile(r'[\w-]{22}(\.[\d*]+)?(?=")')
"""The end of an inbox's subject in a refusal, which differs for each attempt."""


class _LogPrinter(logging.Handler):
    """Prints jetspark's log records on standard error, most of them at once.

    A refusal (the server's, of a subject that the user may not use, or for lack of a stream) is
    kept back until `print_refusals`: it often becomes the command's error, and is then printed as
    that.
    """

    def __init__(self) -> None:
        """Begin with refusals kept back, in `waiting_refusals`; `prints_refusals` ends that."""
        super().__init__(logging.INFO)
        self.waiting_refusals: list[str] = []
        self.prints_refusals = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log record; or keep it back if it is about a refusal by the server.

        Such a record has the error, of a missing permission or stream, among its arguments.
        """
        text = self.format(record)
        is_refusal = any(isinstance(argument, _REFUSALS) for argument in record.args or ())
        if is_refusal and not self.prints_refusals:
            self.waiting_refusals.append(text)
        else:
            console.warn(text, record.levelname.casefold())


_printer = _LogPrinter()


@contextmanager
def printing_log() -> Iterator[None]:
    """Print jetspark's log on standard error during the block, which is a whole command.

    Refusals by the server (no permission for a subject, no stream for it) are kept back meanwhile,
    and printed at the end. Does nothing if the program around it has configured logging.
    """
    if _logger.hasHandlers():
        yield
        return
    _logger.addHandler(_printer)
    try:
        yield
    finally:
        print_refusals()
        _logger.removeHandler(_printer)


def print_refusals(*, except_in: str = "", at_once: bool = False) -> None:
    """Print the server's refusals that the log has kept back so far, each once.

    A refusal is an error such as "no permission to publish to S", which a command often ends with.
    `except_in`: an error's sentence that the user sees anyway; refusals in it are left out.
    `at_once`: print further refusals as they come.
    """
    waiting, _printer.waiting_refusals = _printer.waiting_refusals, []
    _printer.prints_refusals = at_once
    printed = _INBOX.sub(
        "", except_in
    )  # without the random part of inboxes, so that repeated refusals are equal
    for refusal, text in {_INBOX.sub("", text): text for text in waiting}.items():
        if refusal not in printed:
            console.warn(text)

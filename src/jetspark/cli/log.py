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
    """Prints records, but keeps refusals by the server back until `print_refusals`."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.waiting_refusals: list[str] = []
        self.prints_refusals = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record now, or keep it back."""
        text = self.format(record)
        is_refusal = any(isinstance(argument, _REFUSALS) for argument in record.args or ())
        if is_refusal and not self.prints_refusals:
            self.waiting_refusals.append(text)
        else:
            console.warn(text, record.levelname.casefold())


_printer = _LogPrinter()


@contextmanager
def printing_log() -> Iterator[None]:
    """Print the log during the block, unless the program configured logging."""
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
    """Print each waiting refusal once, except those within the sentence `except_in`.

    `at_once`: print further ones as they come.
    """
    waiting, _printer.waiting_refusals = _printer.waiting_refusals, []
    _printer.prints_refusals = at_once
    printed = _INBOX.sub("", except_in)
    for refusal, text in {_INBOX.sub("", text): text for text in waiting}.items():
        if refusal not in printed:
            console.warn(text)

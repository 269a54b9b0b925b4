"""What is logged while a command runs, as Python prints it without any configuration of logging.

But a refusal by the server waits for the end, since most commands end with it as their error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

from jetspark.cli import console
from jetspark.errors import PermissionsError

_logger = logging.getLogger("jetspark")
_INBOX = re.compile(r'[\w-]{22}(\.[\d*]+)?(?=")')
"""The end of an inbox in a refusal: each is new, so another attempt is told with another one."""


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.waiting: list[str] | None = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        refusal = any(isinstance(one, PermissionsError) for one in record.args or ())
        if refusal and self.waiting is not None:
            self.waiting.append(text)
        else:
            console.err.print(Text(text), soft_wrap=True)


@contextmanager
def log_shown() -> Iterator[None]:
    """In the block what is logged is shown, unless somebody else looks after the log."""
    if _logger.hasHandlers():
        yield
        return
    log = _Log()
    _logger.addHandler(log)
    try:
        yield
    finally:
        show_refusals()
        _logger.removeHandler(log)


def show_refusals(*, told: str = "", at_once: bool = False) -> None:
    """Show those that wait, each once, but for what is `told`; `at_once`: and further ones as they
    come."""
    told = _INBOX.sub("", told)
    for log in _logger.handlers:
        if isinstance(log, _Log):
            waiting, log.waiting = log.waiting or [], None if at_once else []
            for known, text in {_INBOX.sub("", text): text for text in waiting}.items():
                if known not in told:
                    console.err.print(Text(text), soft_wrap=True)

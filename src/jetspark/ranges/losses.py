"""Messages that are left out because `failOnDataLoss` is false.

Each loss is logged, and reported to the command that reads. Spark's processes log to Spark's log,
which a command removes at its end. So a command names a file in its environment, which those
processes inherit, and each loss becomes a line of it.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from jetspark.errors import DataLossError, switching

LOSSES_VARIABLE = "JETSPARK_LOSSES"
"""The environment variable with the file."""
CONTINUE_ADVICE = f"{switching('fail_on_data_loss', False)} to go on with what there is."
"""The end of an error's message, where that option alone lets the query go on."""


class Loss(msgspec.Struct, frozen=True):
    """A report that messages were lost, and left out by the reader of a range."""

    stream: str
    text: str
    """A sentence or, if there are sequences, only what happened to them."""
    key: str = ""
    """Identity of the loss, when it may be reported again in other words; default: the text."""
    first: int = 0
    """The first lost sequence; 0 if it is not known."""
    last: int = 0


def raise_or_report(
    logger: logging.Logger, loss: Loss, first: int, last: int, *, fail: bool, advice: str
) -> None:
    """Raise DataLossError for a loss if the read shall fail (`failOnDataLoss`), or else report it.

    `loss`: its text is a sentence; `first`, `last`: the sequences that the error names; `advice`:
    the end of its message.
    """
    if fail:
        raise DataLossError(loss.stream, first, last, f"{loss.text} {advice}")
    report_loss(logger, loss.text, loss)


def report_loss(logger: logging.Logger, sentence: str, loss: Loss) -> None:
    """Log a loss as a warning, and write it to the file in which a command collects losses.

    That is the file in the environment variable JETSPARK_LOSSES; without it, the loss is only
    logged.
    """
    logger.warning("%s", sentence)
    if file := os.environ.get(LOSSES_VARIABLE):
        with suppress(OSError), Path(file).open("ab", buffering=0) as opened:
            opened.write(msgspec.json.encode(loss) + b"\n")  # one write, so that lines do not mix

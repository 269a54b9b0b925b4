"""Messages that are left out because `failOnDataLoss` is false: each loss is logged, and told to
the command that reads.

The processes of Spark log to Spark's log, which a command removes at its end. So a command names a
file in its environment, which those processes inherit, and each loss becomes a line of it.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec

VARIABLE = "JETSPARK_LOSSES"
"""The environment variable with the file."""


class Loss(msgspec.Struct, frozen=True):
    """What was left out: of a range each of its readers tells its own part."""

    stream: str
    said: str
    """A sentence; with sequences only what happened to them."""
    key: str = ""
    """The same for a loss that is found again, in other words; else the sentence tells."""
    first: int = 0
    last: int = 0


def left_out(logger: logging.Logger, sentence: str, loss: Loss) -> None:
    """Log the sentence, and tell the loss to the command."""
    logger.warning("%s", sentence)
    if file := os.environ.get(VARIABLE):
        with suppress(OSError), Path(file).open("ab", buffering=0) as opened:
            opened.write(msgspec.json.encode(loss) + b"\n")  # one write: no other one is within

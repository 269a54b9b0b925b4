"""The switch of everything that only makes Spark start faster."""

from __future__ import annotations

import os

VARIABLE = "JETSPARK_FAST_START"
"""The environment variable with the switch: on or off. Unset: on, but off on clusters."""


def is_on(master: str = "local") -> bool:
    """Whether Spark with this master shall use what makes it start faster.

    By default only a local one does; the environment variable `VARIABLE` may say on or off.
    """
    chosen = os.environ.get(VARIABLE, "").strip().lower()
    return chosen != "off" and (chosen == "on" or master.startswith("local"))

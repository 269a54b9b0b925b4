"""The years 1 to 9999: Python, and many readers of tables, have no other dates and times."""

from __future__ import annotations

from typing import Final

FIRST_DAY: Final = -719_162
"""The first day of the year 1, in days since 1970."""
LAST_DAY: Final = 2_932_896
DAY_SECONDS: Final = 86_400
FIRST_SECOND: Final = FIRST_DAY * DAY_SECONDS
LAST_SECOND: Final = (LAST_DAY + 1) * DAY_SECONDS - 1
FIRST_MICROS: Final = FIRST_SECOND * 1_000_000
LAST_MICROS: Final = (LAST_SECOND + 1) * 1_000_000 - 1

"""The known name that a person meant who wrote an unknown one, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from jetspark.errors import ConfigError


def nearest_name(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that a person most likely meant, or None."""
    by_folded = {_folded(candidate): candidate for candidate in known}
    close = difflib.get_close_matches(_folded(name), by_folded, n=1, cutoff=cutoff)
    return by_folded[close[0]] if close else None


def _folded(name: str) -> str:
    return name.casefold().replace("_", "")


def meant(name: str, known: Iterable[str], otherwise: str = ".") -> str:
    """The end of a sentence about an unknown name: the known one that a person meant, if any."""
    near = nearest_name(name, known)
    return f"; did you mean {near!r}?" if near else otherwise


def instead(name: str, known: Collection[str]) -> str:
    """The same; without a near one, with all."""
    return meant(name, known, f"; there are {', '.join(known) or 'none'}.")


def check_column(said: str, name: str, known: Collection[str]) -> None:
    """Raise ConfigError, which begins with `said`, for a column that there is not."""
    if name not in known:
        raise ConfigError(f"{said}: there is no column {name!r}{instead(name, known)}")

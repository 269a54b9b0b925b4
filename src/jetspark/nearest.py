"""The known name that a person meant who wrote an unknown one, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from jetspark.errors import ConfigError


def nearest_name(name: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that a person most likely meant, or None."""
    by_folded = {_folded(candidate): candidate for candidate in candidates}
    close = difflib.get_close_matches(_folded(name), by_folded, n=1, cutoff=cutoff)
    return by_folded[close[0]] if close else None


def _folded(name: str) -> str:
    return name.casefold().replace("_", "")


def did_you_mean(name: str, candidates: Iterable[str], otherwise: str = ".") -> str:
    """The end of a sentence about an unknown name: the known one that a person meant, if any."""
    near = nearest_name(name, candidates)
    return f"; did you mean {near!r}?" if near else otherwise


def did_you_mean_or_list(name: str, candidates: Collection[str]) -> str:
    """The end of a sentence about an unknown name: the near one, or without one all of them."""
    return did_you_mean(name, candidates, f"; there are {', '.join(candidates) or 'none'}.")


def check_column(prefix: str, name: str, columns: Collection[str]) -> None:
    """Raise ConfigError, which begins with `prefix`, for a column that there is not."""
    if name not in columns:
        raise ConfigError(
            f"{prefix}: there is no column {name!r}{did_you_mean_or_list(name, columns)}"
        )

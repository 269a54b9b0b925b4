"""Arguments of the wrong kind: one sentence that names the argument, before anything happens.

For calls that are not made for each message: there a check by failure costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from jetspark.errors import ConfigError


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Raises ConfigError unless it is a whole number of at least `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name} is a whole number, not {value!r:.80}.")
    if value.__index__() < least:
        what = "cannot be negative" if least == 0 else f"must be at least {least}"
        raise ConfigError(f"{name} {what}.")


def check_callable(name: str, value: object) -> None:
    """Raises ConfigError unless it is None or can be called."""
    if value is not None and not callable(value):
        raise ConfigError(f"{name} is a function, not {value!r:.80}.")


def check_text(name: str, value: object) -> None:
    """Raises ConfigError unless it is None or a str."""
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name} is a str, not {value!r:.80}.")


def texts_of(name: str, value: Mapping[str, str] | None) -> dict[str, str] | None:
    """A copy. Raises ConfigError unless it is None, or texts by text.

    Another kind of value could be stored as JSON, but not be read again.
    """
    if value is None:
        return None
    try:
        texts = dict(value)
        if all(isinstance(one, str) for pair in texts.items() for one in pair):
            return texts
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"{name} is a mapping of texts to texts, not {value!r:.80}.")

"""The options of a publisher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from jetspark.arguments import check_whole
from jetspark.errors import ConfigError

DisconnectPolicy: TypeAlias = Literal["auto", "fail", "resend"]

RETRY_FOR: Final = 30.0
"""Seconds; several times what a cluster needs for a new leader."""


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    """What `JetStream.publisher` takes. Raises ConfigError for what cannot work."""

    window: int
    timeout: float
    on_disconnect: DisconnectPolicy
    retry_for: float
    raise_failures: bool

    def __post_init__(self) -> None:
        check_whole("window", self.window)
        if not self.timeout > 0:
            raise ConfigError("timeout must be more than 0 seconds.")
        if self.on_disconnect not in ("auto", "fail", "resend"):
            raise ConfigError('on_disconnect must be "auto", "fail" or "resend".')
        if not self.retry_for >= 0:
            raise ConfigError("retry_for cannot be negative.")

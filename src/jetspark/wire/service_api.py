"""Subjects and types of ADR-32, with which services are found."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

DEFAULT_PREFIX: Final = "$SRV"


class Verb(StrEnum):
    """The questions that services answer."""

    PING = "PING"
    INFO = "INFO"
    STATS = "STATS"

    @property
    def type(self) -> str:
        """The type of the answer."""
        return f"io.nats.micro.v1.{self.lower()}_response"


def verb_subjects(
    verb: Verb, name: str = "*", id: str = "*", prefix: str = DEFAULT_PREFIX
) -> tuple[str, str, str]:
    """The subjects for all services, for those of a name, and for one instance."""
    return f"{prefix}.{verb}", f"{prefix}.{verb}.{name}", f"{prefix}.{verb}.{name}.{id}"

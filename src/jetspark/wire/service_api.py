"""Subjects and types of ADR-32, by which services are found."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

DEFAULT_PREFIX: Final = "$SRV"


class Verb(StrEnum):
    """What services are asked for."""

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
    """Where all services, those of a name, and one instance are asked."""
    return f"{prefix}.{verb}", f"{prefix}.{verb}.{name}", f"{prefix}.{verb}.{name}.{id}"

"""Subjects and types of ADR-32, with which services are found, and errors in their answers."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from jetspark.errors import ServiceError
from jetspark.wire.headers import Headers

DEFAULT_PREFIX: Final = "$SRV"
ERROR_HEADER: Final = "Nats-Service-Error"
ERROR_CODE_HEADER: Final = "Nats-Service-Error-Code"


class ServiceVerb(StrEnum):
    """The questions that services answer."""

    PING = "PING"
    INFO = "INFO"
    STATS = "STATS"

    @property
    def type(self) -> str:
        """The type of the answer."""
        return f"io.nats.micro.v1.{self.lower()}_response"


def verb_subjects(
    verb: ServiceVerb, name: str = "*", id: str = "*", prefix: str = DEFAULT_PREFIX
) -> tuple[str, str, str]:
    """The subjects for all services, for those of a name, and for one instance."""
    return f"{prefix}.{verb}", f"{prefix}.{verb}.{name}", f"{prefix}.{verb}.{name}.{id}"


_CODE = re.compile("[0-9]{1,9}")


def service_error(headers: Headers | None, data: bytes = b"") -> ServiceError | None:
    """The error in an answer with these headers and payload; None: it is not an error.

    A code that is not a number of at most nine digits is read as 0.
    """
    if headers is None:
        return None
    code, description = headers.get(ERROR_CODE_HEADER), headers.get(ERROR_HEADER)
    if code is None and description is None:
        return None
    number = int(code) if code is not None and _CODE.fullmatch(code) else 0
    return ServiceError(number, description or "", data)

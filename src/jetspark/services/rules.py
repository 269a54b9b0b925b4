"""What the parts of a service may be called (ADR-32). Pure.

Every rule raises ConfigError with one sentence, before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from jetspark.errors import BadNameError, ConfigError, shown
from jetspark.subjects import check_queue, check_subscribe_subject

_NAME = re.compile(r"[A-Za-z0-9_-]+")
# Semantic versions 2.0.0: identifiers that are numbers have no leading zeros.
_NUMBER = r"(?:0|[1-9][0-9]*)"
_PRE_RELEASE = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-{_PRE_RELEASE}(?:\.{_PRE_RELEASE})*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_RESERVED: Final = "_nats"


def check_service_name(kind: str, name: str) -> str:
    """The name of a service or an endpoint, or BadNameError. `kind` is for the message."""
    if not isinstance(name, str):
        raise BadNameError(kind, name, f"it is a str, not {type(name).__name__}")
    if not _NAME.fullmatch(name):
        raise BadNameError(kind, name, "letters, digits, - and _ make a name, at least one of them")
    return name


def check_version(version: str) -> str:
    """The version, or ConfigError unless it is a semantic one."""
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise ConfigError(
            f'version is a semantic version such as "1.2.0" or "2.0.0-rc.1", not {shown(version)}.'
        )
    return version


def checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """A copy, which nobody changes any more. Raises ConfigError for a key that ADR-33 refuses."""
    for key in metadata or ():
        if not key:
            raise ConfigError("A key of the metadata is empty.")
        if key.startswith(_RESERVED):
            raise ConfigError(
                f'The key {shown(key)} of the metadata begins with "{_RESERVED}", '
                "which is reserved for the server."
            )
    return dict(metadata or {})


def check_queue_group(queue_group: str) -> str:
    """The name of a queue group, or BadQueueError; "" stands for none."""
    check_queue(queue_group)
    return queue_group


def joined(prefix: str, subject: str) -> str:
    """A group's prefix, which may be empty, and what comes after it."""
    return f"{prefix}.{subject}" if prefix and subject else prefix or subject


def check_group(prefix: str, name: str) -> str:
    """The prefix of the group `name` in the group `prefix`. Raises BadSubjectError, ConfigError."""
    if name:
        check_subscribe_subject(name)
        if ">" in name.split("."):
            raise ConfigError(f"The group {shown(name)} is a prefix, so it cannot contain '>'.")
    return joined(prefix, name)


def check_endpoint_subject(prefix: str, subject: str) -> str:
    """The whole subject of an endpoint in the group `prefix`. Raises BadSubjectError."""
    check_subscribe_subject(subject)
    return joined(prefix, subject)

"""The server version that a configuration or call needs, checked before it is sent.

Servers before 2.12 ignore unknown fields, so they would create a stream without the feature. The
check uses the connected server's version. Behind a domain or an imported API another server
answers, whose version is unknown, so the request also names the API level that it needs (ADR-44): a
server from 2.12 on refuses one above its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from jetspark.errors import ConfigError, UnsupportedByServerError
from jetspark.timestamps import NANOSECONDS, ns_from_now
from jetspark.wire.documents import ServerInfo

API_LEVELS: Final[Mapping[tuple[int, int], int]] = {
    (2, 10): 0,
    (2, 11): 1,
    (2, 12): 2,  # 3 in later patches
    (2, 14): 4,
    (2, 15): 5,
}
"""The API level of each version's first release."""


class Requirement(NamedTuple):
    """A feature, and the first version that has it. The greatest one needs the newest server."""

    version: tuple[int, int]
    feature: str

    def unsupported_error(self, server: str) -> UnsupportedByServerError:
        """The error for a server that is too old. `server`: its version, or what is known of
        it."""
        major, minor = self.version
        return UnsupportedByServerError(self.feature, f"{major}.{minor}", server)


STREAM_FIELDS: Final[Mapping[str, tuple[int, int]]] = {
    "compression": (2, 10),
    "first_seq": (2, 10),
    "subject_transform": (2, 10),
    "consumer_limits": (2, 10),
    "metadata": (2, 10),
    "allow_msg_ttl": (2, 11),
    "subject_delete_marker_ttl": (2, 11),
    "allow_msg_counter": (2, 12),
    "allow_atomic": (2, 12),
    "allow_msg_schedules": (2, 12),
    "persist_mode": (2, 12),
    "allow_batched": (2, 14),
}

SOURCE_FIELDS: Final[Mapping[str, tuple[int, int]]] = {
    "subject_transforms": (2, 10),
    "consumer": (2, 14),
}

CONSUMER_FIELDS: Final[Mapping[str, tuple[int, int]]] = {
    "filter_subjects": (2, 10),
    "metadata": (2, 10),
    "pause_until": (2, 11),
    "priority_groups": (2, 11),
    "priority_policy": (2, 11),
    "priority_timeout": (2, 11),
    "sourcing": (2, 14),
}

_AS_WITHOUT: Final = ("none", "default")  # the same as not given


def check_stream(wire: Mapping[str, Any], server: ServerInfo | None) -> None:
    """Raise UnsupportedByServerError for fields that the server would ignore, ConfigError for a
    marker that would be gone at once."""
    _check(stream_needs(wire), server)
    if isinstance(marker_ttl := wire.get("subject_delete_marker_ttl"), int):
        ns_from_now("subject_delete_marker_ttl", marker_ttl / NANOSECONDS)


def check_consumer(wire: Mapping[str, Any], server: ServerInfo | None) -> None:
    """Raise UnsupportedByServerError for fields that the server would ignore, ConfigError for a
    negative time, which it would take for none."""
    threshold = wire.get("inactive_threshold")
    if isinstance(threshold, int) and threshold < 0:
        raise ConfigError("inactive_threshold cannot be negative.")
    _check(consumer_needs(wire), server)


def check_feature(
    feature: str, version: tuple[int, int], server: ServerInfo | None
) -> list[Requirement]:
    """The requirement of a request for a feature.

    Raises UnsupportedByServerError when the server is known, and older than `version`.
    """
    needs = [Requirement(version, feature)]
    _check(needs, server)
    return needs


def stream_needs(wire: Mapping[str, Any]) -> list[Requirement]:
    """The requirements of a stream's configuration."""
    needs = list(_needs(wire, STREAM_FIELDS, ""))
    for source in [wire.get("mirror"), *(wire.get("sources") or [])]:
        if source:
            needs += _needs(source, SOURCE_FIELDS, "a source's ")
    if (wire.get("placement") or {}).get("preferred"):
        needs.append(Requirement((2, 11), "placement's preferred"))
    return needs


def consumer_needs(wire: Mapping[str, Any]) -> list[Requirement]:
    """The requirements of a consumer's configuration."""
    needs = list(_needs(wire, CONSUMER_FIELDS, ""))
    if wire.get("priority_policy") == "prioritized":
        needs.append(Requirement((2, 12), "priority_policy 'prioritized'"))
    return needs


def _needs(
    wire: Mapping[str, Any], table: Mapping[str, tuple[int, int]], prefix: str
) -> Iterator[Requirement]:
    for name, version in table.items():
        value = wire.get(name)
        if value and value not in _AS_WITHOUT:
            yield Requirement(version, prefix + name)


def _check(needs: list[Requirement], server: ServerInfo | None) -> None:
    if server is None:
        return
    for need in needs:
        if not server.at_least(*need.version):
            raise need.unsupported_error(server.version)

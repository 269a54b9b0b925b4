"""The server version that a configuration or call needs, checked before it is sent.

Servers before 2.12 ignore unknown fields: the stream would be created without what was wanted. The
connected server's version is compared. Behind a domain or an imported API another server answers,
whose version is unknown, so nothing is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jetspark.errors import ConfigError, UnsupportedByServerError
from jetspark.timestamps import NANOSECONDS, ns_from_now
from jetspark.wire.documents import ServerInfo

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
    """Raises UnsupportedByServerError for what the server would ignore, ConfigError for a marker
    that would be gone at once."""
    needs = list(_needs(wire, STREAM_FIELDS, ""))
    for source in [wire.get("mirror"), *(wire.get("sources") or [])]:
        if source:
            needs += _needs(source, SOURCE_FIELDS, "a source's ")
    if (wire.get("placement") or {}).get("preferred"):
        needs.append(("placement's preferred", (2, 11)))
    _check(needs, server)
    if isinstance(marker_ttl := wire.get("subject_delete_marker_ttl"), int):
        ns_from_now("subject_delete_marker_ttl", marker_ttl / NANOSECONDS)


def check_consumer(wire: Mapping[str, Any], server: ServerInfo | None) -> None:
    """Raises UnsupportedByServerError for what the server would ignore, ConfigError for a negative
    time, which it would take for none."""
    threshold = wire.get("inactive_threshold")
    if isinstance(threshold, int) and threshold < 0:
        raise ConfigError("inactive_threshold cannot be negative.")
    needs = list(_needs(wire, CONSUMER_FIELDS, ""))
    if wire.get("priority_policy") == "prioritized":
        needs.append(("priority_policy 'prioritized'", (2, 12)))
    _check(needs, server)


def check_feature(feature: str, version: tuple[int, int], server: ServerInfo | None) -> None:
    """Raises UnsupportedByServerError when the server is known, and older than `version`."""
    _check([(feature, version)], server)


def _needs(
    wire: Mapping[str, Any], table: Mapping[str, tuple[int, int]], where: str
) -> Iterator[tuple[str, tuple[int, int]]]:
    for name, version in table.items():
        value = wire.get(name)
        if value and value not in _AS_WITHOUT:
            yield where + name, version


def _check(needs: list[tuple[str, tuple[int, int]]], server: ServerInfo | None) -> None:
    if server is None:
        return
    for name, (major, minor) in needs:
        if not server.at_least(major, minor):
            raise UnsupportedByServerError(name, f"{major}.{minor}", server.version)

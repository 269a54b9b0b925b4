"""Permissions of a user, as a nats-server configuration has them.

Contract: pure. Only what is listed is allowed. `|` joins two sets: allowed is what either allows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from jetspark.errors import ConfigError
from jetspark.timestamps import Seconds, in_seconds
from jetspark.validation import check_whole


@dataclass(frozen=True, slots=True)
class Responses:
    """Permission to respond to received messages (`allow_responses`), instead of ack subjects.

    `max`: responses to one message; each in_progress counts. `expires`: how long after its
    delivery, in seconds or as a timedelta, at least the consumer's ack_wait. Raises ConfigError.
    """

    max: int = 10
    expires: Seconds = timedelta(minutes=10)

    def __post_init__(self) -> None:
        check_whole("max", self.max)
        if in_seconds(self.expires) < 1:
            raise ConfigError("expires must be at least 1 second.")

    def __or__(self, other: Self) -> Responses:
        return Responses(max(self.max, other.max), max(self.expires, other.expires, key=in_seconds))

    def to_dict(self) -> dict[str, Any]:
        """The value of `allow_responses` in a server's configuration."""
        return {"max": self.max, "expires": f"{round(in_seconds(self.expires))}s"}


@dataclass(frozen=True, slots=True)
class Permissions:
    """The subjects that may be published and subscribed to, and no others.

    A subscription allowed for a queue group only is written "subject group".
    """

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    responses: Responses | None = None

    def __or__(self, other: Permissions) -> Permissions:
        responses = self.responses or other.responses
        if self.responses is not None and other.responses is not None:
            responses = self.responses | other.responses
        return Permissions(
            _joined(self.publish, other.publish),
            _joined(self.subscribe, other.subscribe),
            responses,
        )

    def to_dict(self) -> dict[str, Any]:
        """The value of `permissions` in a server's configuration."""
        document: dict[str, Any] = {
            "publish": _side(self.publish),
            "subscribe": _side(self.subscribe),
        }
        if self.responses is not None:
            document["allow_responses"] = self.responses.to_dict()
        return document

    def to_json(self) -> str:
        """`to_dict` as JSON, which a server's configuration may contain too."""
        return json.dumps(self.to_dict(), indent=2)

    def to_config(self) -> str:
        """The block `permissions: { … }` for a user in a nats-server configuration."""
        lines = ["permissions: {"]
        for name, side in self.to_dict().items():
            if name == "allow_responses":
                lines.append(f'  {name}: {{ max: {side["max"]}, expires: "{side["expires"]}" }}')
                continue
            for word, subjects in side.items():
                lines.append(f"  {name}: {{ {word}: [")
                lines += [f"    {json.dumps(subject, ensure_ascii=False)}" for subject in subjects]
                lines.append("  ] }")
        return "\n".join([*lines, "}"])


def _joined(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*one, *other]))


def _side(subjects: tuple[str, ...]) -> dict[str, list[str]]:
    # To a server an empty allow list may mean everything.
    return {"allow": list(subjects)} if subjects else {"deny": [">"]}

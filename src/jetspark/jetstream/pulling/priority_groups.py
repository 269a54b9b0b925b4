"""Pull requests of priority groups (ADR-42; server 2.11, "prioritized" 2.12).

Contract: what the consumer's configuration does not allow is refused before anything is sent. The
`PullConsumer` keeps the pin id of each group: the server sends it in a header of every delivery,
later requests repeat it, and a status 423 removes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetspark.errors import ConfigError
from jetspark.jetstream.documents.consumers import PriorityPolicy
from jetspark.jetstream.requirements import check_feature
from jetspark.wire.headers import VERSION

if TYPE_CHECKING:
    from jetspark.jetstream.documents.consumers import ConsumerConfig
    from jetspark.wire.documents import ServerInfo
    from jetspark.wire.events import MessageFrame

GROUPS_SINCE = (2, 11)
_PRIORITIZED_SINCE = (2, 12)
_HIGHEST = 9
_PIN = b"\r\nNats-Pin-Id: "


class Priority:
    """The group's fields of a request. `pins`: pin ids by group, shared by all of a consumer."""

    __slots__ = ("_fields", "_group", "_pins", "pinned")

    def __init__(self, fields: dict[str, Any], pins: dict[str, bytes], *, pinned: bool) -> None:
        self._fields = fields
        self._group: str = fields["group"]
        self._pins = pins
        self.pinned = pinned
        """Whether deliveries carry a pin id for `notice`."""

    def fields(self) -> dict[str, Any]:
        """The fields of the next `PullRequest`."""
        pin = self._pins.get(self._group)
        return self._fields if pin is None else {**self._fields, "id": pin.decode()}

    def notice(self, frame: MessageFrame) -> None:
        """Keep the pin id of a delivery."""
        block = frame.headers
        if block is None:
            return
        pin = self._pins.get(self._group)
        # Nearly always the one that is known: one comparison, no copy.
        if pin is not None and block.endswith(_PIN + pin + b"\r\n\r\n"):
            return
        begin = block.rfind(_PIN)
        if begin >= 0:
            begin += len(_PIN)
            self._pins[self._group] = block[begin : block.index(b"\r\n", begin)]

    def added(self, frame: MessageFrame) -> int:
        """Bytes of the pin id's header, which the server does not count for max_bytes."""
        block = frame.headers or b""
        begin = block.rfind(_PIN)
        if begin < 0:
            return 0
        # Without headers of the publisher the whole block was added.
        return len(block) if begin == len(VERSION) else len(block) - begin - 4

    def lost(self) -> None:
        """Another client is pinned: later requests have no pin id."""
        self._pins.pop(self._group, None)


def make_priority(
    config: ConsumerConfig,
    server: ServerInfo | None,
    pins: dict[str, bytes],
    *,
    group: str | None,
    min_pending: int | None,
    min_ack_pending: int | None,
    priority: int | None,
) -> Priority | None:
    """None for a consumer without groups. Raises ConfigError, UnsupportedByServerError."""
    if group is not None:
        check_feature("a pull of a priority group", GROUPS_SINCE, server)
    if priority is not None:
        check_feature("a pull's priority", _PRIORITIZED_SINCE, server)
    groups, policy = config.priority_groups or [], config.priority_policy
    known = ", ".join(map(repr, groups))
    if group is None and groups:
        raise ConfigError(f"The consumer has priority groups; name one as group: {known}.")
    if group is not None and not groups:
        raise ConfigError("group: the consumer has no priority groups.")
    if group is not None and group not in groups:
        raise ConfigError(f"The consumer has no priority group {group!r}; it has {known}.")
    for name, value in (("min_pending", min_pending), ("min_ack_pending", min_ack_pending)):
        if value is not None and policy != PriorityPolicy.OVERFLOW:
            raise ConfigError(f"{name} needs a consumer with priority_policy 'overflow'.")
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1.")
    if priority is not None and policy != PriorityPolicy.PRIORITIZED:
        raise ConfigError("priority needs a consumer with priority_policy 'prioritized'.")
    if priority is not None and not 0 <= priority <= _HIGHEST:
        raise ConfigError(f"priority must be from 0 (served first) to {_HIGHEST}.")
    if group is None:
        return None
    given = {"min_pending": min_pending, "min_ack_pending": min_ack_pending, "priority": priority}
    said = {name: value for name, value in given.items() if value is not None}
    return Priority({"group": group, **said}, pins, pinned=policy == PriorityPolicy.PINNED_CLIENT)

"""What `jetspark stream edit` would change of a stream, and what no server changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from jetspark.documents.configuration import changes_to_wire, comparable, merged
from jetspark.documents.document import time_fields
from jetspark.documents.streams import StreamConfig
from jetspark.errors import ConfigError
from jetspark.wire.documents import encode_document

REMAKE = (
    "To have another, back the stream up, remove it, and restore it with `jetspark stream restore "
    "FOLDER --config FILE`."
)

_FIXED = ("storage", "template_owner")
_ONLY_ON = ("deny_delete", "deny_purge", "sealed")
_TIMES = dict(time_fields(StreamConfig))


def find_changes(
    current: Mapping[str, Any], config: Any, options: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """The fields that an update would change: their values in the server's document and the new.

    `current`: the stream's configuration as the server has it; `config`: a JSON file, or None;
    `options`: further fields. Raises ConfigError, also for another name in the file.
    """
    changes = changes_to_wire(StreamConfig, config, options)
    if changes.get("name", current["name"]) != current["name"]:
        raise ConfigError(
            f'A stream cannot be renamed: {config} is of stream "{changes["name"]}", not '
            f'"{current["name"]}".'
        )
    before = comparable(StreamConfig, current)
    after = comparable(StreamConfig, merged(current, changes))
    return {
        name: (current.get(name), changes.get(name))
        for name in changes
        if _significant(name, before.get(name)) != _significant(name, after.get(name))
    }


def check_changes(name: str, changes: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise ConfigError for a change of the stream `name` that no server makes."""
    for field, (before, after) in changes.items():
        is_queue = field == "retention" and "workqueue" in (before, after)
        if field in _FIXED or is_queue or (field in _ONLY_ON and before):
            raise ConfigError(
                f"The {field} of stream {name} is {describe_value(field, before)}, and no server "
                f"changes that. {REMAKE}"
            )


def describe_value(field: str, value: Any) -> str:
    """A value of a stream's configuration for people."""
    if field in _TIMES and isinstance(value, int):
        return str(timedelta(microseconds=value // 1000)) if value else "unlimited"
    if field.startswith("max_") and value in (None, 0, -1):
        return "unlimited"
    if value in (None, "", [], {}):
        return "unset"
    return value if isinstance(value, str) else encode_document(value).decode()


def _significant(field: str, value: Any) -> Any:
    """The value; None for each of those that mean "not set", as servers fill them in."""
    if field.startswith("max_") and value in (0, -1):
        return None
    return value or None

"""Values of partition columns as strings and as folder names."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import quote

_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_value(value: Any) -> str | None:
    """A value as it is written to Delta's log (Delta protocol, "Partition Value Serialization")."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            instant = value.astimezone(UTC) if value.tzinfo is not None else value
            return instant.strftime("%Y-%m-%d %H:%M:%S.%f")
        case date():
            return value.isoformat()
        case float():
            return repr(value)
        case _:
            return str(value)


def folders(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """The folders of a partition in Hive's naming, since some readers take the values from it."""
    texts = map(partition_value, values)
    return "".join(
        f"{quote(name, safe='')}={_NULL if text is None else quote(text, safe='')}/"
        for name, text in zip(names, texts, strict=True)
    )

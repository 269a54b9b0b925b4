"""How an existing stream or consumer differs from the wanted one, for NameInUseError."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import jetspark.errors as errors
from jetspark.documents.configuration import comparable
from jetspark.documents.consumers import ConsumerConfig
from jetspark.documents.document import Document, time_fields
from jetspark.documents.streams import StreamConfig
from jetspark.wire import js_api
from jetspark.wire.documents import encode_document

_TIMES: Final = dict(time_fields(StreamConfig)) | dict(time_fields(ConsumerConfig))
_ANOTHER: Final = "another configuration"
_OF_SERVER: Final = "_nats."  # metadata that the server adds
# What a server fills in for a missing field, besides nothing, 0 and -1; and the fields that it
# computes from others or from its configuration.
_FILLED: Final[Mapping[str, Any]] = {
    "retention": "limits",
    "discard": "old",
    "storage": "file",
    "compression": "none",
    "num_replicas": 1,
    "deliver_policy": "all",
    "replay_policy": "instant",
}
_COMPUTED: Final = frozenset(
    {*("subjects", "duplicate_window", "allow_direct", "mirror_direct", "allow_msg_ttl")}
    | {*("ack_wait", "max_ack_pending", "max_waiting", "max_deliver", "inactive_threshold")}
)


def differing(
    cls: type[Document], existing: Mapping[str, Any], requested: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """The fields in which two wire documents surely differ: existing and wanted values.

    `cls`: the class of both.
    """
    existing_fields, requested_fields = comparable(cls, existing), comparable(cls, requested)
    differences = {}
    for name in dict.fromkeys([*requested, *existing]):
        actual, expected = (
            _plain(name, existing_fields.get(name)),
            _plain(name, requested_fields.get(name)),
        )
        if name == "name" or actual == expected or (expected is None and name in _COMPUTED):
            continue
        if expected is not None and _holds(actual, expected):  # with the server's defaults
            continue
        differences[name] = existing.get(name), requested.get(name)
    return differences


def _plain(name: str, value: Any) -> Any:
    """The value; None for one that means "not given"."""
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if not k.startswith(_OF_SERVER)}
    return None if not value or value == -1 or value == _FILLED.get(name) else value


def _holds(actual: Any, expected: Any) -> bool:
    if isinstance(actual, dict) and isinstance(expected, dict):
        return all(_holds(actual.get(name), value) for name, value in expected.items())
    if isinstance(actual, list) and isinstance(expected, list):
        return len(actual) == len(expected) and all(map(_holds, actual, expected))
    return bool(actual == expected)


def with_differences(
    error: errors.NameInUseError, differences: Mapping[str, tuple[Any, Any]]
) -> errors.NameInUseError:
    """The error with the differences in its sentence."""
    return _error(error, str(error), differences, {})


def known_as(
    error: errors.NameInUseError, label: str, names: Mapping[str, str]
) -> errors.NameInUseError:
    """The error about a stream in terms of what it is to the caller, such as a bucket.

    `names`: the fields' names there; "" for fields that do not exist there.
    """
    differences = {name: pair for name, pair in error.differences.items() if names.get(name, name)}
    sentence = f"{label} exists with {_ANOTHER}: {js_api.UPDATE}."
    return _error(error, sentence, differences, names)


def _error(
    error: errors.NameInUseError,
    sentence: str,
    differences: Mapping[str, tuple[Any, Any]],
    names: Mapping[str, str],
) -> errors.NameInUseError:
    description = "; ".join(
        f"{names.get(name, name)} is {_display_value(name, actual)}, "
        + (f"not {_display_value(name, expected)}" if expected is not None else "and was not given")
        for name, (actual, expected) in differences.items()
    )
    if description:
        sentence = sentence.replace(_ANOTHER, f"{_ANOTHER} ({description})", 1)
    named = type(error)(error.code, error.err_code, error.description, sentence)
    named.differences = {names.get(name, name): pair for name, pair in differences.items()}
    return named


def _display_value(name: str, value: Any) -> str:
    if name in _TIMES and isinstance(value, int):
        return str(timedelta(microseconds=value // 1000))
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if not k.startswith(_OF_SERVER)}
    return "unset" if value in (None, "", [], {}) else encode_document(value).decode()

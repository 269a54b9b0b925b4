"""What an existing stream or consumer has in place of what a caller wanted, for NameInUseError."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from jetspark.errors import NameInUseError
from jetspark.jetstream.documents import ConsumerConfig, StreamConfig
from jetspark.jetstream.documents.document import time_fields
from jetspark.wire import js_api
from jetspark.wire.documents import encode_document

_TIMES: Final = dict(time_fields(StreamConfig)) | dict(time_fields(ConsumerConfig))
_NAMES: Final = frozenset({"name", "durable_name"})
_ANOTHER: Final = "another configuration"
_OF_SERVER: Final = "_nats."  # metadata that the server adds
# What a server fills in for a field that was not given, besides nothing, 0 and -1; and the fields
# that it computes from others or from its own configuration.
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


def differing(existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields of two wire documents that surely differ: what is there, and what is wanted."""
    found = {}
    for name in dict.fromkeys([*wanted, *existing]):
        there, here = _plain(name, existing.get(name)), _plain(name, wanted.get(name))
        if name in _NAMES or there == here or (here is None and name in _COMPUTED):
            continue
        if here is not None and _holds(there, here):  # with what the server has filled in
            continue
        found[name] = existing.get(name), wanted.get(name)
    return found


def _plain(name: str, value: Any) -> Any:
    """None for what is as good as not given."""
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if not k.startswith(_OF_SERVER)}
    return None if not value or value == -1 or value == _FILLED.get(name) else value


def _holds(there: Any, here: Any) -> bool:
    if isinstance(there, dict) and isinstance(here, dict):
        return all(_holds(there.get(name), value) for name, value in here.items())
    if isinstance(there, list) and isinstance(here, list):
        return len(there) == len(here) and all(map(_holds, there, here))
    return bool(there == here)


def with_differences(
    error: NameInUseError,
    differences: Mapping[str, tuple[Any, Any]],
) -> NameInUseError:
    """The error with what differs in its sentence."""
    return _error(error, str(error), differences, {})


def known_as(error: NameInUseError, what: str, names: Mapping[str, str]) -> NameInUseError:
    """The error about a stream in the words of what it is to the caller, such as a bucket.

    `names`: of fields that have other names there; "" for those that it has not.
    """
    told = {name: pair for name, pair in error.differences.items() if names.get(name, name)}
    sentence = f"{what} exists with {_ANOTHER}: {js_api.UPDATE}."
    return _error(error, sentence, told, names)


def _error(
    error: NameInUseError,
    sentence: str,
    differences: Mapping[str, tuple[Any, Any]],
    names: Mapping[str, str],
) -> NameInUseError:
    listed = "; ".join(
        f"{names.get(name, name)} is {_said(name, there)}, "
        + (f"not {_said(name, here)}" if here is not None else "and was not given")
        for name, (there, here) in differences.items()
    )
    if listed:
        sentence = sentence.replace(_ANOTHER, f"{_ANOTHER} ({listed})", 1)
    found = NameInUseError(error.code, error.err_code, error.description, sentence)
    found.differences = {names.get(name, name): pair for name, pair in differences.items()}
    return found


def _said(name: str, value: Any) -> str:
    if name in _TIMES and isinstance(value, int):
        return str(timedelta(microseconds=value // 1000))
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if not k.startswith(_OF_SERVER)}
    return "unset" if value in (None, "", [], {}) else encode_document(value).decode()

"""The options and the status that buckets and object stores take from their stream."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Final, TypedDict, TypeVar

from jetspark.documents.document import Document, Span, field_names
from jetspark.documents.streams import Placement, StorageType, StreamConfig, StreamInfo
from jetspark.errors import ConfigError
from jetspark.subjects import subjects_overlap
from jetspark.timestamps import Seconds

_DUPLICATES: Final = timedelta(minutes=2)


class BackedConfig(Document, frozen=True, kw_only=True):
    """The options that a bucket and an object store share; None when not given."""

    description: str | None = None
    ttl: Span | None = None
    """Maximum age of an entry or object; 0 (the default): kept for ever."""
    storage: Annotated[str, StorageType] | None = None
    """A StorageType: "file" (default) or "memory"."""
    replicas: int | None = None
    """Servers that hold it, 1 (default) to 5."""
    placement: Placement | None = None
    compression: bool | None = None
    """Whether to compress files (2.10)."""
    metadata: dict[str, str] | None = None
    """Notes of your own (2.10)."""


BackedT = TypeVar("BackedT", bound=BackedConfig)


class BackedOptions(TypedDict, total=False):
    """The fields of BackedConfig as options, for type checkers. Times may be seconds."""

    description: str | None
    ttl: Seconds | None
    storage: str | None
    replicas: int | None
    placement: Placement | Mapping[str, Any] | None
    compression: bool | None
    metadata: Mapping[str, str] | None
    extra: dict[str, Any]


def check_backed(config: BackedConfig) -> None:
    """Raise ConfigError for values that cannot work."""
    if config.ttl is not None and config.ttl < timedelta(0):
        raise ConfigError("ttl cannot be negative.")
    if config.replicas is not None and not 1 <= config.replicas <= 5:
        raise ConfigError("replicas must be from 1 to 5.")


def check_limit(name: str, limit: int | None) -> None:
    """Raise ConfigError for 0, which the server takes for no limit, and below -1."""
    if limit is not None and limit < 1 and limit != -1:
        raise ConfigError(f"{name} must be at least 1, or -1 for no limit.")


STREAM_FIELDS: Final[Mapping[str, str]] = {
    "max_age": "ttl",
    "num_replicas": "replicas",
    "duplicate_window": "",  # set from the ttl
}
"""The stream's names of shared options, where they differ."""


def _names(cls: type[BackedConfig], names: Mapping[str, str]) -> dict[str, str]:
    """The fields of a configuration that are options of the stream, with their names there."""
    fields_by_option = {own: name for name, own in names.items()}
    option_names = {field: fields_by_option.get(field, field) for field in field_names(cls)}
    return {
        field: name for field, name in option_names.items() if name in field_names(StreamConfig)
    }


def stream_options_of(config: BackedConfig, names: Mapping[str, str]) -> dict[str, Any]:
    """The stream's options for those that were given; those to remove are None.

    `names`: such as STREAM_FIELDS.
    """
    own = _names(type(config), names)
    options = {name: getattr(config, field) for field, name in own.items()}
    if config.ttl is not None:
        # A server refuses a duplicate window longer than max_age.
        options["duplicate_window"] = min(config.ttl, _DUPLICATES) if config.ttl else _DUPLICATES
    if config.compression is not None:
        options["compression"] = "s2" if config.compression else "none"
    removed = {name for field, name in own.items() if field in config.extra}
    if "max_age" in removed:
        removed.add("duplicate_window")
    return {name: v for name, v in options.items() if v is not None} | dict.fromkeys(removed)


def config_of(
    cls: type[BackedT], stream: StreamConfig, names: Mapping[str, str], **derived: Any
) -> BackedT:
    """The configuration that a stream has. `names`: such as STREAM_FIELDS."""
    options = {field: getattr(stream, name) for field, name in _names(cls, names).items()}
    return cls(**options | {"compression": is_compressed(stream)} | derived)


def takes_in(stream: StreamConfig, subjects: str) -> bool:
    """Whether a stream may have messages on these subjects; those from elsewhere may be on any.

    A user's own stream may have the name that a bucket or store would need.
    """
    if stream.mirror or stream.sources or stream.subject_transform:
        return True
    return any(subjects_overlap(subjects, own) for own in stream.subjects or ())


def is_compressed(stream: StreamConfig) -> bool:
    """Whether files are compressed."""
    return stream.compression not in (None, "none")


class BackedStatus:
    """A view of the stream's information, `stream_info`."""

    _PREFIX: ClassVar[str]

    def __init__(self, info: StreamInfo) -> None:
        self.stream_info: StreamInfo = info

    @property
    def bucket(self) -> str:
        """The name of the bucket or store."""
        return self.stream_info.name.removeprefix(self._PREFIX)

    @property
    def ttl(self) -> timedelta:
        """Maximum age of an entry; 0: kept for ever."""
        return self.stream_info.config.max_age or timedelta(0)

    @property
    def is_compressed(self) -> bool:
        """Whether files are compressed."""
        return is_compressed(self.stream_info.config)

    @property
    def backing_store(self) -> str:
        """The kind of store: "JetStream"."""
        return "JetStream"

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata in its configuration."""
        return self.stream_info.config.metadata or {}

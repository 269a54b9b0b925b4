"""The configuration and status of a bucket (ADR-8, ADR-48, ADR-57). Pure.

Contract: only given options are set in the stream's configuration, so an update keeps the rest;
`NEW_BUCKET` adds what makes a stream a bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from jetspark.documents.configuration import document_of
from jetspark.documents.document import Span
from jetspark.documents.streams import (
    External,
    Republish,
    Source,
    StreamConfig,
    StreamState,
    SubjectTransform,
)
from jetspark.errors import ConfigError
from jetspark.jetstream.backing import (
    STREAM_FIELDS,
    BackedConfig,
    BackedOptions,
    BackedStatus,
    check_backed,
    check_limit,
    config_of,
    stream_options_of,
    takes_in,
)
from jetspark.kv_rules import MAX_HISTORY, STREAM_PREFIX, check_bucket, check_filter
from jetspark.timestamps import Seconds, ns_from_now
from jetspark.validation import texts_of

BUCKET_OPTIONS: Final[Mapping[str, str]] = {
    **STREAM_FIELDS,
    "max_msgs_per_subject": "history",
    "max_msg_size": "max_value_size",
    "max_bytes": "max_bucket_size",
    "subject_delete_marker_ttl": "limit_marker_ttl",
}
"""The stream's names of options, where they differ."""

NEW_BUCKET: Final[Mapping[str, Any]] = {
    "max_msgs_per_subject": 1,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "deny_purge": False,
    "allow_direct": True,
}


class BucketConfig(BackedConfig, frozen=True, kw_only=True):
    """A bucket's configuration. None: not given (the default, or unchanged)."""

    max_value_size: int | None = None
    """Most bytes of a value with its headers; -1 (the default): no limit."""
    history: int | None = None
    """Entries kept of each key, 1 (default) to 64."""
    max_bucket_size: int | None = None
    """Most bytes of the bucket, which refuses writes when full; -1 (the default): no limit."""
    republish: Republish | None = None
    limit_marker_ttl: Span | None = None
    """Allows keys with a time to live. When a limit removes a value, watchers get a PURGE marker,
    which stays for so long, at least a second (2.11). It cannot be turned off again."""
    mirror_name: str | None = None
    """Makes it a mirror of another bucket. Deprecated: use `create_bucket_mirror`."""
    mirror_domain: str | None = None
    """The JetStream domain of the bucket `mirror_name`."""


class BucketSettings(BackedOptions, total=False):
    """Options of an aggregate or a mirror."""

    max_value_size: int | None
    history: int | None
    max_bucket_size: int | None
    republish: Republish | Mapping[str, Any] | None
    limit_marker_ttl: Seconds | None


class BucketOptions(BucketSettings, total=False):
    """The fields of BucketConfig as options, for type checkers. Times may be seconds."""

    mirror_name: str | None
    mirror_domain: str | None


@dataclass(frozen=True, slots=True)
class Origin:
    """The bucket from which an aggregate or a mirror takes its entries.

    `keys`: only those that match one of these filters. `domain`: its JetStream domain; or `api`,
    the prefix of an imported API, when it belongs to another account. `deliver`: the subject prefix
    of its entries, if the import needs one. `stream`: the stream's name, when the origin is a
    mirror of the bucket.
    """

    bucket: str
    keys: Sequence[str] | None = None
    domain: str | None = None
    api: str | None = None
    deliver: str | None = None
    stream: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bucket", check_bucket(self.bucket))
        if self.keys is not None:
            keys = tuple(map(check_filter, texts_of("keys", self.keys)))
            object.__setattr__(self, "keys", keys)
        if self.domain is not None and self.api is not None:
            raise ConfigError("Give either domain or api, not both.")
        if self.deliver is not None and self.domain is None and self.api is None:
            raise ConfigError("deliver needs domain or api.")

    def source_of(self, bucket: str) -> Source:
        return self._source(bucket, self.keys or [">"])

    def mirror(self) -> Source:
        return self._source(self.bucket, self.keys or [])

    def _source(self, bucket: str, keys: Iterable[str]) -> Source:
        transforms = [
            SubjectTransform(
                src=f"$KV.{self.bucket}.{text}", dest=f"$KV.{bucket}.{_destination(text)}"
            )
            for text in keys
        ]
        external, deliver = None, self.deliver or ""
        if self.domain is not None:
            external = External.of_domain(self.domain, deliver=deliver)
        elif self.api is not None:
            external = External(api=self.api, deliver=deliver)
        return Source(
            name=self.stream or STREAM_PREFIX + self.bucket,
            subject_transforms=transforms or None,
            external=external,
        )


def _destination(text: str) -> str:
    """The tokens as the destination of a subject transform."""
    tokens, stars = text.split("."), 0
    for index, token in enumerate(tokens):
        if token == "*":
            stars += 1
            tokens[index] = f"{{{{wildcard({stars})}}}}"
    return ".".join(tokens)


def bucket_config(config: BucketConfig | None, options: Mapping[str, Any]) -> BucketConfig:
    bucket = document_of(BucketConfig, config, options)
    if bucket.history is not None and not 1 <= bucket.history <= MAX_HISTORY:
        raise ConfigError(f"history must be from 1 to {MAX_HISTORY}.")
    check_backed(bucket)
    if bucket.limit_marker_ttl is not None:
        if bucket.limit_marker_ttl < timedelta(seconds=1):
            raise ConfigError("limit_marker_ttl must be at least one second.")
        ns_from_now("limit_marker_ttl", bucket.limit_marker_ttl)
    for name in ("max_value_size", "max_bucket_size"):
        check_limit(name, getattr(bucket, name))
    if bucket.mirror_domain is not None and bucket.mirror_name is None:
        raise ConfigError("mirror_domain needs mirror_name.")
    if bucket.mirror_name is not None:
        check_bucket(bucket.mirror_name)
    return bucket


def stream_options(bucket: BucketConfig) -> dict[str, Any]:
    options = {
        name: NEW_BUCKET.get(name) if value is None else value
        for name, value in stream_options_of(bucket, BUCKET_OPTIONS).items()
    }
    if bucket.limit_marker_ttl is not None:
        options["allow_msg_ttl"] = True
    return options


def is_bucket(stream: StreamConfig) -> bool:
    """Whether a stream with a bucket's name is a bucket."""
    name = stream.name or ""
    # A promoted mirror may have only the server's default.
    takes_keys = stream.subjects == [name] or takes_in(
        stream, f"$KV.{name.removeprefix(STREAM_PREFIX)}.>"
    )
    return takes_keys and (stream.max_msgs_per_subject or 0) > 0


class BucketStatus(BackedStatus):
    """A bucket's configuration and state: a view of its stream's information, `stream_info`."""

    _PREFIX = STREAM_PREFIX

    @property
    def config(self) -> BucketConfig:
        """The bucket's options, as `create_bucket` takes them."""
        return config_of(
            BucketConfig,
            self.stream_info.config,
            BUCKET_OPTIONS,
            mirror_name=self.mirror_name,
            mirror_domain=self.mirror_domain,
        )

    @property
    def values(self) -> int:
        """The number of entries, with history and delete markers."""
        return self.stream_info.state.messages

    @property
    def bytes(self) -> int:
        """Bytes of all entries."""
        return self.stream_info.state.bytes

    @property
    def history(self) -> int:
        """Entries kept of each key."""
        return self.stream_info.config.max_msgs_per_subject or 1

    @property
    def limit_marker_ttl(self) -> timedelta:
        """Time that markers of limits stay; 0 without markers."""
        return self.stream_info.config.subject_delete_marker_ttl or timedelta(0)

    @property
    def mirror_name(self) -> str | None:
        """The bucket that it mirrors."""
        mirror = self.stream_info.config.mirror
        return None if mirror is None else mirror.name.removeprefix(STREAM_PREFIX)

    @property
    def mirror_domain(self) -> str | None:
        """The JetStream domain of that bucket."""
        mirror = self.stream_info.config.mirror
        external = None if mirror is None else mirror.external
        tokens = [] if external is None else external.api.split(".")
        return tokens[1] if len(tokens) == 3 and (tokens[0], tokens[2]) == ("$JS", "API") else None

    @property
    def stream_config(self) -> StreamConfig:
        """The stream's configuration."""
        return self.stream_info.config

    @property
    def stream_state(self) -> StreamState:
        """The stream's state."""
        return self.stream_info.state

    def __repr__(self) -> str:
        return f"BucketStatus({self.bucket!r}, values={self.values}, bytes={self.bytes})"

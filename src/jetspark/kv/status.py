"""The status of a bucket: its configuration and state at a moment."""

from __future__ import annotations

from datetime import timedelta

from jetspark.jetstream.documents import StreamConfig, StreamState
from jetspark.jetstream.streams.backing import BackedStatus
from jetspark.kv.config import BucketConfig, config_of, domain_of
from jetspark.kv_rules import STREAM_PREFIX


class BucketStatus(BackedStatus):
    """A bucket's configuration and state: a view of its stream's information, `stream_info`."""

    __slots__ = ()

    _PREFIX = STREAM_PREFIX

    @property
    def config(self) -> BucketConfig:
        """Its options, as `create_bucket` takes them."""
        return config_of(self.stream_info.config)

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
        """How long markers of limits stay; 0: there are none."""
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
        return None if mirror is None else domain_of(mirror)

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

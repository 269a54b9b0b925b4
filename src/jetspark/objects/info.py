"""The info of an object, and the status of a store (ADR-20)."""

from __future__ import annotations

from jetspark.errors import DocumentError
from jetspark.jetstream.documents import StoredMsg
from jetspark.jetstream.documents.configuration import json_of
from jetspark.jetstream.documents.document import Document, Moment, from_wire, to_wire
from jetspark.jetstream.streams.backing import BackedStatus
from jetspark.objects.config import ObjectStoreConfig, config_of
from jetspark.objects.names import STREAM_PREFIX
from jetspark.wire.documents import decode_document


class ObjectLink(Document, frozen=True, kw_only=True):
    """The target of a link: an object, or without a name a whole store."""

    bucket: str
    name: str | None = None


class ObjectOptions(Document, frozen=True, kw_only=True):
    """How an object is stored."""

    link: ObjectLink | None = None
    max_chunk_size: int | None = None
    """Bytes of each chunk except the last."""


class ObjectInfo(Document, frozen=True, kw_only=True):
    """The info of an object or link. Fields that this client does not know are in `extra`."""

    name: str
    bucket: str
    """The store's name."""
    nuid: str = ""
    """The id in the subject of its chunks; a new one with each `put`."""
    size: int = 0
    """Bytes."""
    chunks: int = 0
    digest: str | None = None
    """The digest of the content: "SHA-256=" and base64url."""
    description: str | None = None
    headers: dict[str, list[str]] | None = None
    metadata: dict[str, str] | None = None
    options: ObjectOptions | None = None
    deleted: bool = False
    mtime: Moment | None = None
    """When it was written: in the result of a write by this client's clock, else the server's."""

    @property
    def link(self) -> ObjectLink | None:
        """The target, if it is a link."""
        return None if self.options is None else self.options.link


def info_of(data: bytes, mtime: Moment) -> ObjectInfo:
    """The info in a stored payload. Raises JetStreamError."""
    raw = decode_document(data, "ObjectInfo")
    raw.pop("mtime", None)  # the message's time counts; clients write this one differently
    return from_wire(ObjectInfo, raw).replace(mtime=mtime)


def info_of_stored(stored: StoredMsg) -> ObjectInfo:
    """The info in a stored message. Raises DocumentError, which names the message."""
    try:
        return info_of(stored.data, stored.time)
    except DocumentError as error:
        where = f"ObjectInfo on {stored.subject!r}, message {stored.seq} of the store's stream"
        raise DocumentError(where, f"{error.why}: delete that message") from None


def to_stored(info: ObjectInfo) -> bytes:
    """The payload for an info."""
    return json_of(to_wire(info.replace(mtime=None)))


class ObjectStoreStatus(BackedStatus):
    """A store's configuration and state: a view of its stream's information, `stream_info`."""

    __slots__ = ()

    _PREFIX = STREAM_PREFIX

    @property
    def config(self) -> ObjectStoreConfig:
        """Its options, as `create_object_store` takes them."""
        return config_of(self.stream_info.config)

    @property
    def description(self) -> str:
        """The description in its configuration."""
        return self.stream_info.config.description or ""

    @property
    def storage(self) -> str:
        """A StorageType: "file" or "memory"."""
        return self.stream_info.config.storage or "file"

    @property
    def replicas(self) -> int:
        """Servers that hold it."""
        return self.stream_info.config.num_replicas or 1

    @property
    def sealed(self) -> bool:
        """Whether it allows no more changes."""
        return bool(self.stream_info.config.sealed)

    @property
    def size(self) -> int:
        """Bytes of all objects and their infos."""
        return self.stream_info.state.bytes

    def __repr__(self) -> str:
        return f"ObjectStoreStatus({self.bucket!r}, size={self.size}, sealed={self.sealed})"

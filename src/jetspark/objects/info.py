"""What a store says about an object and about itself (ADR-20)."""

from __future__ import annotations

import msgspec

from jetspark.errors import JetStreamError
from jetspark.jetstream.documents import StoredMsg
from jetspark.jetstream.documents.document import Document, Moment, from_wire, json_of, to_wire
from jetspark.jetstream.streams.backing import BackedStatus
from jetspark.objects.config import ObjectStoreConfig, said_by
from jetspark.objects.names import STREAM_PREFIX


class ObjectLink(Document, frozen=True, kw_only=True):
    """Where a link leads: to an object, or without a name to a whole store."""

    bucket: str
    name: str | None = None


class ObjectOptions(Document, frozen=True, kw_only=True):
    """How an object is stored."""

    link: ObjectLink | None = None
    max_chunk_size: int | None = None
    """Bytes of each chunk but the last."""


class ObjectInfo(Document, frozen=True, kw_only=True):
    """What a store says about an object. Fields of other clients are in `extra`."""

    name: str
    bucket: str
    """The store."""
    nuid: str = ""
    """Under which its chunks are; new with each `put`."""
    size: int = 0
    """Bytes."""
    chunks: int = 0
    digest: str | None = None
    """Of the whole content: "SHA-256=" and base64url."""
    description: str | None = None
    headers: dict[str, list[str]] | None = None
    metadata: dict[str, str] | None = None
    options: ObjectOptions | None = None
    deleted: bool = False
    mtime: Moment | None = None
    """When this was stored; after a write by this client's clock, later by the server's."""

    @property
    def link(self) -> ObjectLink | None:
        """Where it leads, if it is a link."""
        return None if self.options is None else self.options.link


def info_of(data: bytes, mtime: Moment) -> ObjectInfo:
    """The information that lies in a store. Raises JetStreamError."""
    try:
        raw = msgspec.json.decode(data, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise JetStreamError(f"Unreadable ObjectInfo: {error}.") from None
    raw.pop("mtime", None)  # the message's own time counts, and clients write it variously
    return from_wire(ObjectInfo, raw).replace(mtime=mtime)


def info_of_stored(stored: StoredMsg) -> ObjectInfo:
    """The information in a stored message. Raises JetStreamError."""
    return info_of(stored.data, stored.time)


def to_stored(info: ObjectInfo) -> bytes:
    """What is written for it."""
    return json_of(to_wire(info.replace(mtime=None)))


class ObjectStoreStatus(BackedStatus):
    """A store's configuration and state: a view of its stream's information, `stream_info`."""

    __slots__ = ()

    _PREFIX = STREAM_PREFIX

    @property
    def config(self) -> ObjectStoreConfig:
        """Its options, as `create_object_store` takes them."""
        return said_by(self.stream_info.config)

    @property
    def description(self) -> str:
        """What it is for."""
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
        """Whether nothing in it can be changed any more."""
        return bool(self.stream_info.config.sealed)

    @property
    def size(self) -> int:
        """Bytes of all it holds, information about objects too."""
        return self.stream_info.state.bytes

    def __repr__(self) -> str:
        return f"ObjectStoreStatus({self.bucket!r}, size={self.size}, sealed={self.sealed})"

"""The info of an object, and the configuration and status of a store (ADR-20). Pure.

Contract: only given options are set in the stream's configuration, so an update keeps the rest;
`new_store` adds what makes a stream a store.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from jetspark.documents.configuration import document_of, document_to_wire, json_of
from jetspark.documents.document import Document, Moment, from_wire
from jetspark.documents.streams import StoredMsg
from jetspark.errors import BadNameError, DocumentError
from jetspark.jetstream.backing import (
    STREAM_FIELDS,
    BackedConfig,
    BackedOptions,
    BackedStatus,
    check_backed,
    check_limit,
    config_of,
    stream_options_of,
)
from jetspark.subjects import is_like, plain_text
from jetspark.validation import check_text
from jetspark.wire.documents import decode_document

STREAM_PREFIX: Final = "OBJ_"
"""The beginning of the name of a store's stream; the store's name follows."""

LONGEST_NAME: Final = 2048
"""Most bytes of an object's name, which is part of a subject of limited length."""

_ALGORITHM: Final = "SHA-256"
_NUID = re.compile(r"[^\s.*>]*")
_STORE = re.compile(r"[-_a-zA-Z0-9]+")


def check_store(name: str) -> str:
    if not is_like(_STORE, name):
        raise BadNameError("object store", name, "only letters, digits, - and _ are allowed")
    return plain_text(name)


def quoted(text: str) -> str:
    """A name or digest for a message: on one line and cut, since others may have chosen it."""
    return json.dumps(text if len(text) <= 100 else f"{text[:99]}…", ensure_ascii=False)


def info_subject(store: str, name: str) -> str:
    check_text("The name of an object", name)
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise BadNameError("object", name, "it has a lone surrogate") from None
    if not raw:
        raise BadNameError("object", name, "it is empty")
    if len(raw) > LONGEST_NAME:
        raise BadNameError("object", name, f"it has more than {LONGEST_NAME} bytes")
    return _info_subject(store, raw)


def latin_info_subject(store: str, name: str) -> str | None:
    """The JavaScript client's subject, if it differs: that client encodes as Latin-1."""
    try:
        return None if name.isascii() else _info_subject(store, name.encode("latin-1"))
    except UnicodeEncodeError:
        return None


def _info_subject(store: str, name: bytes) -> str:
    return f"$O.{store}.M.{base64.urlsafe_b64encode(name).decode()}"


def all_infos(store: str) -> str:
    return f"$O.{store}.M.>"


def chunk_subject(store: str, nuid: str) -> str:
    return f"$O.{store}.C.{nuid}"


def digest_text(sha256: bytes) -> str:
    return f"{_ALGORITHM}={base64.urlsafe_b64encode(sha256).decode()}"


def is_digest(text: str, sha256: bytes) -> bool:
    """Whether this is the digest, in any client's form, with padding or without."""
    algorithm, _, value = text.partition("=")
    urlsafe = value.replace("+", "-").replace("/", "_")
    return f"{algorithm.upper()}={urlsafe}".rstrip("=") == digest_text(sha256).rstrip("=")


class ObjectStoreConfig(BackedConfig, frozen=True, kw_only=True):
    """An object store's configuration. None: not given (the default, or unchanged)."""

    max_bytes: int | None = None
    """Most bytes of the store, which refuses objects when full; -1 (the default): no limit."""
    allow_batched: bool | None = None
    """Whether large objects are put by fast ingest (2.14), which is faster. Off by default, since
    other clients that create the same store expect its usual configuration."""


class ObjectStoreOptions(BackedOptions, total=False):
    """The fields of ObjectStoreConfig as options, for type checkers."""

    max_bytes: int | None
    allow_batched: bool | None


def store_config(config: ObjectStoreConfig | None, options: Mapping[str, Any]) -> ObjectStoreConfig:
    store = document_of(ObjectStoreConfig, config, options)
    check_backed(store)
    check_limit("max_bytes", store.max_bytes)
    return store


def new_store(name: str, config: ObjectStoreConfig) -> dict[str, Any]:
    return {
        "subjects": [f"$O.{name}.C.>", f"$O.{name}.M.>"],
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        **stream_options_of(config, STREAM_FIELDS),
    }


class ObjectLink(Document, frozen=True, kw_only=True):
    """The target of a link: an object or, without a name, a whole store."""

    bucket: str
    name: str | None = None


class ObjectOptions(Document, frozen=True, kw_only=True):
    """An object's link or chunk size."""

    link: ObjectLink | None = None
    max_chunk_size: int | None = None
    """Bytes of each chunk except the last."""


class ObjectInfo(Document, frozen=True, kw_only=True):
    """The info of an object or link. Unknown fields are in `extra`."""

    name: str
    bucket: str
    """The store's name."""
    nuid: str = ""
    """The id in the subject of its chunks, new for each `put`."""
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
    """When it was written: by this client's clock in the result of a write, else by the server's.
    """

    @property
    def link(self) -> ObjectLink | None:
        """The target, if it is a link."""
        return None if self.options is None else self.options.link


def info_of(data: bytes, mtime: Moment) -> ObjectInfo:
    raw = decode_document(data, "ObjectInfo")
    raw.pop("mtime", None)  # clients differ here, so the message's time counts
    if isinstance(headers := raw.get("headers"), dict):  # nats-py writes one text for each
        raw["headers"] = {
            name: [value] if isinstance(value, str) else value for name, value in headers.items()
        }
    info = from_wire(ObjectInfo, raw)
    # With a wildcard it would be the chunks of others.
    if _NUID.fullmatch(info.nuid) is None or (info.chunks and not info.nuid):
        raise DocumentError("ObjectInfo", f"{quoted(info.nuid)} is no id of chunks")
    return info.replace(mtime=mtime)


def info_of_stored(stored: StoredMsg) -> ObjectInfo:
    """The info in a stored message. Raises DocumentError, which names the message."""
    try:
        return info_of(stored.data, stored.time)
    except DocumentError as error:
        source = f"ObjectInfo on {stored.subject!r}, message {stored.seq} of the store's stream"
        raise DocumentError(source, f"{error.reason}: delete that message") from None


def to_stored(info: ObjectInfo) -> bytes:
    """The payload for an info. Raises ConfigError for an info that other clients could not read."""
    return json_of(document_to_wire(info.replace(mtime=None)))


class ObjectStoreStatus(BackedStatus):
    """A store's configuration and state: a view of its stream's information, `stream_info`."""

    _PREFIX = STREAM_PREFIX

    @property
    def config(self) -> ObjectStoreConfig:
        """The store's options, as `create_object_store` takes them."""
        return config_of(ObjectStoreConfig, self.stream_info.config, STREAM_FIELDS)

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
        """True when the store allows no more changes."""
        return bool(self.stream_info.config.sealed)

    @property
    def size(self) -> int:
        """Bytes of all objects and their infos."""
        return self.stream_info.state.bytes

    def __repr__(self) -> str:
        return f"ObjectStoreStatus({self.bucket!r}, size={self.size}, sealed={self.sealed})"

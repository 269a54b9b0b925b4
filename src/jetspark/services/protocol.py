"""The wire form of ADR-32: subjects, documents as JSON, headers of errors. Pure.

Contract: other clients, some of them strict, read these documents: they have every field, even
empty ones and `data` as null, and times with six fractional digits. It accepts nulls, missing
fields and fractions of nanoseconds from others. Field names are those of the wire; unknown fields
are in `extra`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from jetspark.connection.locks import new_lock
from jetspark.documents.document import Document, Moment, Span, from_wire, to_wire
from jetspark.errors import BadNameError, ConfigError, DocumentError, safe_repr
from jetspark.subjects import check_subscribe_subject, is_like
from jetspark.validation import check_text, check_whole, texts_by_name
from jetspark.wire.documents import decode_document, encode_document
from jetspark.wire.headers import Headers, HeadersLike
from jetspark.wire.service_api import (
    DEFAULT_PREFIX,
    ERROR_CODE_HEADER,
    ERROR_HEADER,
    ServiceVerb,
    verb_subjects,
)

DEFAULT_QUEUE_GROUP: Final = "q"
_LONGEST_DESCRIPTION: Final = 1000
_SPANS: Final = ("processing_time", "average_processing_time")

AnswerT = TypeVar("AnswerT", bound=Document)

# -- names -----------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9_-]+")
# Semantic versions 2.0.0: identifiers that are numbers have no leading zeros.
_NUMBER = r"(?:0|[1-9][0-9]*)"
_PRE_RELEASE = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-{_PRE_RELEASE}(?:\.{_PRE_RELEASE})*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_RESERVED: Final = "_nats"


def check_service_name(kind: str, name: str) -> str:
    if not is_like(_NAME, name):
        raise BadNameError(kind, name, "a name has letters, digits, - and _, at least one")
    return name


def check_version(version: str) -> str:
    if not is_like(_VERSION, version):
        raise ConfigError(
            f'version is a semantic version such as "1.2.0" or "2.0.0-rc.1", not '
            f"{safe_repr(version)}."
        )
    return version


def checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """A copy. Raises ConfigError for a key that ADR-33 forbids."""
    copied = texts_by_name("metadata", metadata)
    for key, value in copied.items():
        check_text(f"metadata[{key!r}]", value)
        if not key:
            raise ConfigError("A key of the metadata is empty.")
        if key.startswith(_RESERVED):
            raise ConfigError(
                f'The key {safe_repr(key)} of the metadata begins with "{_RESERVED}", '
                "which is reserved for the server."
            )
    return copied


def joined(prefix: str, subject: str) -> str:
    return f"{prefix}.{subject}" if prefix and subject else prefix or subject


def check_group(prefix: str, name: str) -> str:
    """The prefix of the group `name` in the group `prefix`. Raises BadSubjectError, ConfigError."""
    if name:
        check_subscribe_subject(name)
        if ">" in name.split("."):
            raise ConfigError(f"The group {safe_repr(name)} is a prefix, so it cannot contain '>'.")
    return joined(prefix, name)


def check_endpoint_subject(prefix: str, subject: str) -> str:
    check_subscribe_subject(subject)
    return joined(prefix, subject)


# -- the answers to PING, INFO and STATS -----------------------------------------------------------


class _Instance(Document, frozen=True, kw_only=True):
    name: str
    """The service's name, shared by its instances."""
    id: str
    """The id of the instance."""
    version: str
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    type: str = ""


class ServicePing(_Instance, frozen=True, kw_only=True):
    """One instance of a service."""

    rtt: Span | None = None
    """Round-trip time of the answer, measured here; not on the wire."""


class EndpointInfo(Document, frozen=True, kw_only=True):
    """An endpoint of a service."""

    name: str
    subject: str
    """The endpoint's subject, with the prefix of its group."""
    queue_group: str = ""
    """Empty: every instance gets each request."""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)


class ServiceInfo(_Instance, frozen=True, kw_only=True):
    """One instance of a service with its endpoints."""

    description: str = ""
    endpoints: list[EndpointInfo] = msgspec.field(default_factory=list)


class EndpointStats(Document, frozen=True, kw_only=True):
    """An endpoint's counters since its service began, or was reset."""

    name: str
    subject: str
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    """Requests whose handler raised, and errors with which handlers answered."""
    last_error: str = ""
    processing_time: Span | None = None
    """Time in the handler, for all requests together."""
    average_processing_time: Span | None = None
    data: Any = None
    """The result of the service's `stats_handler`."""


class ServiceStats(_Instance, frozen=True, kw_only=True):
    """The statistics of one instance of a service."""

    started: Moment | None = None
    endpoints: list[EndpointStats] = msgspec.field(default_factory=list)


VERB_OF: Final[dict[type[Document], ServiceVerb]] = {
    ServicePing: ServiceVerb.PING,
    ServiceInfo: ServiceVerb.INFO,
    ServiceStats: ServiceVerb.STATS,
}


def verb_subject(
    verb: ServiceVerb, name: str | None = None, id: str | None = None, prefix: str = DEFAULT_PREFIX
) -> str:
    """The subject for all services, for those of a name, or for one instance.

    Raises BadNameError, and ConfigError for an id without a name, which has no subject.
    """
    if name is None:
        if id is not None:
            raise ConfigError("An id needs the service's name, too.")
        return verb_subjects(verb, prefix=prefix)[0]
    check_service_name("service", name)
    if id is None:
        return verb_subjects(verb, name, prefix=prefix)[1]
    return verb_subjects(verb, name, check_service_name("instance", id), prefix)[2]


def encode_answer(answer: ServicePing | ServiceInfo | ServiceStats) -> bytes:
    document = to_wire(answer)
    if isinstance(answer, ServiceStats):
        for endpoint in document["endpoints"]:
            endpoint.setdefault("data", None)
        if answer.started is not None:
            started = answer.started.replace(tzinfo=None).isoformat(timespec="microseconds")
            document["started"] = f"{started}Z"
    return encode_document(document)


def decode_answer(cls: type[AnswerT], payload: bytes) -> AnswerT:
    raw = decode_document(payload, cls.__name__)
    endpoints = raw.get("endpoints")
    for endpoint in endpoints if isinstance(endpoints, list) else ():
        for name in _SPANS:
            if isinstance(endpoint, dict) and isinstance(value := endpoint.get(name), float):
                endpoint[name] = round(value)
    answer = from_wire(cls, raw)
    expected_type = VERB_OF[cls].type
    if (actual_type := raw.get("type")) != expected_type:
        raise DocumentError(cls.__name__, f"its type is {actual_type!r}, not {expected_type!r}")
    return answer


# -- errors --------------------------------------------------------------------------------------


def error_headers(code: int, description: str, headers: HeadersLike | None = None) -> Headers:
    """The given headers with those of an error.

    The description becomes one line of at most 1,000 characters. Raises ConfigError unless `code`
    is a whole number of at least 1, BadHeaderError.
    """
    check_whole("code", code)
    merged = Headers(() if headers is None else headers)
    merged.set(ERROR_HEADER, one_line(description))
    merged.set(ERROR_CODE_HEADER, f"{code:d}")
    return merged


def one_line(text: str) -> str:
    plain = " ".join(str(text).replace("\0", " ").split())
    plain = plain.encode("utf-8", "replace").decode()  # replaces lone surrogates
    max_chars = _LONGEST_DESCRIPTION
    return plain if len(plain) <= max_chars else f"{plain[: max_chars - 1]}…"


# -- counters --------------------------------------------------------------------------------------


class Tally:
    """Counters of one endpoint. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self.bytes_dequeued = 0
        """Bytes of requests taken from the queue."""
        self.reset()

    def reset(self) -> None:
        with self._lock:
            self.requests = 0
            self.errors = 0
            self.last_error = ""
            self.ns = 0
            """Nanoseconds in the handler."""

    def count_request(self, size: int) -> None:
        with self._lock:
            self.requests += 1
            self.bytes_dequeued += size

    def failed(self, description: str) -> None:
        with self._lock:
            self.errors += 1
            self.last_error = description

    def handled(self, ns: int) -> None:
        with self._lock:
            self.ns += ns

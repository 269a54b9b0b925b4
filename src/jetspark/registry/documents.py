"""Synadia's schema registry protocol for NATS: subjects, documents and errors. Pure.

Field names, words and codes are those of its published documents; `docs/decisions.md` says which
these are, and what they leave open. Unknown fields are in `extra`.
"""

from __future__ import annotations

import re
from enum import IntEnum, StrEnum
from typing import Final, Literal, NamedTuple, Self, TypeVar, cast

import msgspec

from jetspark.documents.document import Document, Moment, from_wire
from jetspark.errors import BadNameError, RegistryError, SchemaNotFoundError
from jetspark.payloads.schema import PayloadSchema
from jetspark.wire.documents import decode_document
from jetspark.wire.headers import Headers
from jetspark.wire.service_api import service_error

DocumentT = TypeVar("DocumentT", bound=Document)

SERVICE: Final = "schema-registry"
BUCKET: Final = "schemas"
PREFIX: Final = "$SR.v1"
FORMATS: Final = ("avro", "protobuf", "jsonschema")
POLICIES: Final = ("none", "backwards", "forward", "full")
DEFAULT_POLICY: Final = "backwards"
_KEY_PREFIX: Final = "v1"
_ANY: Final = "*"
_NAME = re.compile(r"[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*")
_NUMBER = re.compile(r"[1-9][0-9]{0,9}|\*")


class Verb(StrEnum):
    """The requests of the protocol."""

    ADD = "ADD"
    GET = "GET"
    UPDATE = "UPDATE"
    LIST = "LIST"
    REMOVE = "REMOVE"


class Code(IntEnum):
    """The codes of errors. Those of three digits are ours: the protocol has none for them."""

    INCOMPATIBLE = 409
    CHANGED = 412
    TOO_LARGE = 413
    INVALID_REQUEST = 10400
    INTERNAL = 10500
    NAME_INVALID = 11000
    ALREADY_EXISTS = 11001
    NOT_FOUND = 11002
    FORMAT_REQUIRED = 11004
    DEFINITION_INVALID = 11005
    FORMAT_UNSUPPORTED = 11007


def policy_of(word: str) -> str | None:
    """Return one of POLICIES; None for another word. Some clients write "Backward"."""
    folded = word.casefold()
    folded = DEFAULT_POLICY if folded == "backward" else folded
    return folded if folded in POLICIES else None


def check_schema_name(name: str) -> str:
    """Return the name. Raises BadNameError."""
    if _NAME.fullmatch(name) is None:
        rule = "only letters, digits and - / _ = are allowed, with single dots between"
        raise BadNameError("schema", name, rule)
    return name


class SchemaRef(NamedTuple):
    """Refers to a revision of a schema, or to several; None: any."""

    name: str
    format: str | None = None
    version: int | None = None
    revision: int | None = None

    @property
    def subject_tail(self) -> str:
        """The end of a request's subject, with * for any."""
        parts = (self.format, self.version, self.revision)
        return ".".join([*(_ANY if part is None else str(part) for part in parts), self.name])

    @property
    def key(self) -> str:
        """The key in the bucket; a filter, if something is any."""
        return f"{_KEY_PREFIX}.{self.subject_tail}"

    @classmethod
    def parse(cls, tail: str) -> Self | None:
        """Parse a `subject_tail`; None for anything else."""
        tokens = tail.split(".", 3)
        if len(tokens) < 4 or tokens[0] not in (*FORMATS, _ANY):
            return None
        if not all(_NUMBER.fullmatch(token) for token in tokens[1:3]):
            return None
        format, version, revision = (None if token == _ANY else token for token in tokens[:3])
        revisions = (None if number is None else int(number) for number in (version, revision))
        return cls(tokens[3], format, *revisions)

    @classmethod
    def of_key(cls, key: str) -> Self | None:
        """Parse a key of the bucket; None for a foreign one."""
        before, _, tail = key.partition(".")
        return cls.parse(tail) if before == _KEY_PREFIX else None

    def __str__(self) -> str:
        words = [self.format or "schema", self.name]
        words += [] if self.version is None else [f"version {self.version}"]
        words += [] if self.revision is None else [f"revision {self.revision}"]
        return " ".join(words)


# -- documents -------------------------------------------------------------------------------------


class Schema(Document, frozen=True, kw_only=True):
    """One version and revision of a schema."""

    name: str
    version: int
    revision: int
    time: Moment | None = None
    """When it was stored."""
    format: str
    """avro, protobuf or jsonschema."""
    compat_policy: str = DEFAULT_POLICY
    """none, backwards, forward or full, as its first writer wrote it."""
    definition: str
    description: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    delete: bool | None = None
    """True in the marker of a removed revision."""

    @property
    def ref(self) -> SchemaRef:
        return SchemaRef(self.name, self.format, self.version, self.revision)

    def payload_schema(self) -> PayloadSchema:
        """Return the schema for decoders of payloads."""
        return as_payload_schema(self.format, self.definition, self.name, self.version)


class AddRequest(Document, frozen=True, kw_only=True):
    """The first version of a schema. The name in the subject counts."""

    name: str | None = None
    definition: str
    format: str = ""
    compat_policy: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class UpdateRequest(Document, frozen=True, kw_only=True):
    """Another version or revision. What is None stays; the reference in the subject counts."""

    name: str | None = None
    format: str | None = None
    version: int | None = None
    revision: int | None = None
    definition: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class GetRequest(Document, frozen=True, kw_only=True):
    """Names a schema, for those who do not write that into the subject; 0: any."""

    name: str | None = None
    format: str | None = None
    version: int | None = None
    revision: int | None = None


class RemoveRequest(GetRequest, frozen=True, kw_only=True):
    """Names what is removed, as GetRequest does."""


class ListRequest(Document, frozen=True, kw_only=True):
    """`filter`: only names that match it; * and > as in subjects."""

    filter: str | None = None
    after: str | None = None
    """Ours: ask for a part, of what comes after this `subject_tail`, or "" for the first one."""


class SchemaVersion(Document, frozen=True, kw_only=True):
    """The answer to ADD and UPDATE."""

    version: int
    revision: int


class GetResponse(Document, frozen=True, kw_only=True):
    """The answer to GET."""

    schema: Schema


class ListResponse(Document, frozen=True, kw_only=True):
    """The answer to LIST: every version and revision."""

    schemas: list[Schema] = msgspec.field(default_factory=list)
    next: str | None = None
    """The `after` of the next part; None: this is the last."""


class RemoveResponse(Document, frozen=True, kw_only=True):
    """The answer to REMOVE."""


# -- on the wire -----------------------------------------------------------------------------------


def request_subject(verb: Verb, tail: str = "") -> str:
    """Return the subject of a request. `tail`: a `SchemaRef.subject_tail`; for ADD the name, for
    LIST nothing."""
    return f"{PREFIX}.{verb}.{tail}" if tail else f"{PREFIX}.{verb}"


def served_subject(verb: Verb) -> str:
    """Return the subject on which a registry receives these requests."""
    return request_subject(verb, "" if verb is Verb.LIST else ">")


def answer_of(headers: Headers | None, data: bytes, cls: type[DocumentT]) -> DocumentT:
    """Parse the answer to a request. Raises SchemaNotFoundError, ServiceError, DocumentError."""
    if (error := service_error(headers, data)) is not None:
        if error.code == Code.NOT_FOUND:
            raise SchemaNotFoundError(f"The registry answers: {error.description}")
        raise error
    return from_wire(cls, decode_document(data, cls.__name__))


def no_registry(server: object) -> RegistryError:
    """Return the error when no registry answers."""
    return RegistryError(
        f"No schema registry answers on {server}: `jetspark registry serve` starts one, or "
        "this user may not reach it."
    )


def as_payload_schema(format: str, text: str, name: str = "", version: int = 0) -> PayloadSchema:
    """Return a schema for decoders of payloads. `format`: in the protocol's words."""
    named = "json" if format == "jsonschema" else format
    return PayloadSchema(cast("Literal['avro', 'protobuf', 'json']", named), text, name, version)

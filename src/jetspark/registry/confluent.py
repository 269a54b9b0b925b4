"""A registry with Confluent's interface over HTTP, read only.

Each question has a timeout, and is asked again after a failure that may pass. A proxy comes from
the environment (HTTPS_PROXY, NO_PROXY). Credentials are sent to the registry only, not where it
redirects to, and are in no repr and no error.
"""

from __future__ import annotations

import base64
import ssl
import time
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Final, Literal, cast
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, Request, build_opener

import msgspec

from jetspark.codecs.schema import PayloadSchema
from jetspark.errors import ConfigError, DocumentError, RegistryError, SchemaNotFoundError
from jetspark.retries import Backoff
from jetspark.wire.documents import decode_json

_ATTEMPTS: Final = 4
_PAUSES: Final = Backoff(0.25, 2.0)
_FORMATS: Final = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json"}
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_PASSING: Final = (408, 425, 429, 500, 502, 503, 504)
_LARGEST: Final = 16 << 20
_DEEPEST: Final = 20


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _NotFound(msgspec.Struct):
    error_code: int


class _Answer(msgspec.Struct):
    schema: str
    schema_type: str | None = msgspec.field(default=None, name="schemaType")
    id: int | None = None
    version: int | None = None
    references: list[_Reference] | None = None


@dataclass(frozen=True)
class ConfluentRegistry:
    """Asks for schemas by id, and by subject and version. Raises ConfigError for an unusable URL.

    `url`: without credentials. `user`, `password`: Basic authentication; `token`: Bearer.
    `ca_file`: certificates to trust in place of the system's. `timeout`: seconds for an attempt.
    Both calls raise SchemaNotFoundError, and RegistryError when the registry cannot be reached,
    refuses the credentials, or answers with something else.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout: float = 5.0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            known = False
        if not known or parts.query:
            raise ConfigError("The URL of a registry is https://host:port, perhaps with a path.")
        if parts.username is not None or parts.password is not None:
            raise ConfigError("The URL of a registry has no user: give user and password apart.")
        if self.token is not None and self.user is not None:
            raise ConfigError("Give the registry's user and password, or its token.")

    def by_id(self, number: int) -> PayloadSchema:
        """The schema with this id."""
        found = self._schema(f"/schemas/ids/{number}", f"with id {number}")
        return replace(found, version=number)

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        """A version of a subject, or its latest. A subject has one format."""
        return replace(self._schema(*_of_subject(name, version)), name=name)

    def _schema(self, path: str, what: str, depth: int = 0) -> PayloadSchema:
        answer = self._ask(path, what)
        kind = _FORMATS.get(answer.schema_type or "AVRO")
        if kind is None or depth > _DEEPEST:
            why = "refers to others without an end" if kind else f"is {answer.schema_type}"
            raise RegistryError(f"The schema registry {self.url}: its schema {what} {why}.")
        found: dict[str, PayloadSchema] = {}
        for one in answer.references or ():
            referred = self._schema(*_of_subject(one.subject, one.version), depth + 1)
            found |= {each.name: each for each in referred.references}
            found[one.name] = replace(referred, name=one.name, references=())
        named = cast("Literal['avro', 'protobuf', 'json']", kind)
        version, references = answer.version or 0, tuple(found.values())
        return PayloadSchema(named, answer.schema, "", version, answer.id, references)

    def _ask(self, path: str, what: str) -> _Answer:
        request = Request(self.url.rstrip("/") + path, headers={"Accept": _ACCEPT})  # noqa: S310 (checked)
        if (credentials := self._credentials()) is not None:
            request.add_unredirected_header("Authorization", credentials)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with _opener(self.ca_file).open(request, timeout=self.timeout) as reply:
                    return decode_json(reply.read(_LARGEST), _Answer, f"answer of {self.url}")
            except HTTPError as error:
                with error:
                    self._check(error, what)
                    why, passes = f"HTTP status {error.code}", error.code in _PASSING
            except (OSError, HTTPException) as error:
                reason = getattr(error, "reason", error)
                why = str(reason) or type(reason).__name__
                passes = not isinstance(reason, ssl.SSLCertVerificationError)
            except DocumentError as error:
                raise RegistryError(f"{error} Is this the URL of a schema registry?") from None
            if not passes:
                break
            if attempt < _ATTEMPTS:
                time.sleep(_PAUSES.pause(attempt))
        raise RegistryError(f"The schema registry {self.url} cannot be reached: {why}.")

    def _check(self, error: HTTPError, what: str) -> None:
        if error.code in (401, 403):
            who = self.user or ("this token" if self.token else "requests without credentials")
            raise RegistryError(
                f"The schema registry {self.url} refuses {who} (HTTP status {error.code})."
            )
        if error.code != 404:
            return
        try:
            decode_json(error.read(_LARGEST), _NotFound, "answer")
        except (DocumentError, OSError, HTTPException):
            raise RegistryError(
                f"There is no schema registry at {self.url}, which answers with HTTP status 404."
            ) from None
        raise SchemaNotFoundError(f"The schema registry {self.url} has no schema {what}.")

    def _credentials(self) -> str | None:
        if self.token is not None:
            return f"Bearer {self.token}"
        if self.user is None:
            return None
        pair = f"{self.user}:{self.password or ''}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def _of_subject(name: str, version: int | None) -> tuple[str, str]:
    """The path of a version, and the version in words."""
    which = "latest" if version is None else str(version)
    return f"/subjects/{quote(name, safe='')}/versions/{which}", f"{name!r}, version {which}"


def _opener(ca_file: str | None) -> OpenerDirector:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # also of the ssl module
        raise ConfigError(f"The registry's CA file {ca_file!r} cannot be used: {error}.") from None
    return build_opener(HTTPSHandler(context=context))

"""A registry with Confluent's interface over HTTP, read only.

Each question has a timeout, and is asked again after a failure that may pass. A proxy comes from
the environment (HTTPS_PROXY, NO_PROXY), but not to a registry on this machine. Credentials are sent
to the registry only, not where it redirects to, and are in no repr and no error. A process keeps
its connection for further questions.
"""

from __future__ import annotations

import base64
import os
import ssl
import threading
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Final, Literal, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    ProxyHandler,
    Request,
    build_opener,
    getproxies,
    proxy_bypass,
)

import msgspec

from jetspark.errors import ConfigError, DocumentError, RegistryError, SchemaNotFoundError
from jetspark.payloads.schema import PayloadSchema
from jetspark.registry.deadlines import Deadline, WatchedConnection
from jetspark.retries import Backoff
from jetspark.wire.documents import decode_json

_ATTEMPTS: Final = 4
_PAUSES: Final = Backoff(0.25, 2.0)
_FORMATS: Final = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json"}
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_TEMPORARY: Final = (408, 425, 429, 500, 502, 503, 504)
_MAX_BYTES: Final = 4 << 20
"""Bytes of an answer; a registry that is kept in Kafka takes schemas of up to 1 MB."""
_NO_SCHEMA: Final = (400, 404, 422)
"""Statuses of an answer, with a document, for an id or a name that a registry does not have."""
_REFUSALS: Final = (400, 403, 405, 406, 414, 422, 431)
"""Statuses with which registries, and servers before them, refuse to look something up."""
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_MAX_REFERENCES: Final = 200
_MAX_IDLE: Final = 20


class _Reference(msgspec.Struct):
    """A schema that another one refers to."""

    name: str
    subject: str
    version: int


class _ErrorAnswer(msgspec.Struct):
    """The document of an error."""

    error_code: int


class _SchemaAnswer(msgspec.Struct):
    """The document of a schema."""

    schema: str
    schema_type: str | None = msgspec.field(default=None, name="schemaType")
    id: int | None = None
    version: int | None = None
    references: list[_Reference] | None = None


@dataclass(frozen=True)
class ConfluentRegistry:
    """Asks for schemas by id, and by subject and version. Raises ConfigError for an unusable URL.

    `url`: without credentials, which cross a network by https:// only. `user`, `password`: Basic
    authentication; `token`: Bearer.
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
            is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_valid = False
        if not is_valid or parts.query:
            raise ConfigError("The URL of a registry is https://host:port, perhaps with a path.")
        if parts.username is not None or parts.password is not None:
            raise ConfigError("The URL of a registry has no user: give user and password apart.")
        if parts.scheme == "http" and self._credentials() and not _is_loopback(str(parts.hostname)):
            raise ConfigError(
                f"The login for the registry would cross the network in plain text ({self.url}): "
                "write https://, or leave the login out. Only on this machine http:// takes one."
            )
        if self.token is not None and self.user is not None:
            raise ConfigError("Give the registry's user and password, or its token.")

    def by_id(self, number: int) -> PayloadSchema:
        """The schema with this id."""
        schema = self._fetch_schema(f"/schemas/ids/{number}", f"with id {number}", {})
        return replace(schema, version=number)

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        """A version of a subject, or its latest. A subject has one format."""
        if name in ("", ".", ".."):  # of a payload's header; parts of a path
            raise SchemaNotFoundError(f"The schema registry {self.url} has no schema {name!r}.")
        return replace(self._fetch_schema(*_version_path(name, version), {}), name=name)

    def _fetch_schema(
        self, path: str, title: str, schemas: dict[str, PayloadSchema | None]
    ) -> PayloadSchema:
        """Fetch a schema, with those that it refers to.

        `title`: names it in errors; `schemas`: those that were fetched on the way to it, by path;
        None while one is being fetched.
        """
        answer = self._request_schema(path, title)
        kind = _FORMATS.get(answer.schema_type or "AVRO")
        if kind is None:
            raise self._unusable_error(f"{title} is {answer.schema_type}")
        schemas[path] = None
        size = sum(len(schema.text) for schema in schemas.values() if schema is not None)
        if size + len(answer.schema) > _MAX_BYTES:
            raise self._unusable_error(f"{title} and those that it refers to are too large")
        by_name: dict[str, PayloadSchema] = {}
        for reference in answer.references or ():
            inner_path, inner_title = _version_path(reference.subject, reference.version)
            if inner_path not in schemas:
                if len(schemas) >= _MAX_REFERENCES:
                    raise self._unusable_error(
                        f"{title} refers to more than {_MAX_REFERENCES} others"
                    )
                self._fetch_schema(inner_path, inner_title, schemas)
            if (referred := schemas[inner_path]) is None:
                raise self._unusable_error(f"{title} refers to others without an end")
            by_name |= {inner.name: inner for inner in referred.references}
            by_name[reference.name] = replace(referred, name=reference.name, references=())
        named = cast("Literal['avro', 'protobuf', 'json']", kind)
        version, references = answer.version or 0, tuple(by_name.values())
        schema = PayloadSchema(named, answer.schema, "", version, answer.id, references)
        schemas[path] = schema
        return schema

    def _unusable_error(self, problem: str) -> SchemaNotFoundError:
        """Return the error for a schema that the registry has, and that cannot be used."""
        return SchemaNotFoundError(f"The schema registry {self.url}: its schema {problem}.")

    def _request_schema(self, path: str, title: str) -> _SchemaAnswer:
        """Request a schema, several times if the failure may pass. Raises RegistryError and
        SchemaNotFoundError."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with Deadline(self.timeout) as deadline:
                    status, body = self._get(path, deadline)
                if len(body) > _MAX_BYTES:
                    raise self._unusable_error(f"{title} is larger than {_MAX_BYTES >> 20} MiB")
                if status == HTTPStatus.OK:
                    return decode_json(body, _SchemaAnswer, f"answer of {self.url}")
                self._check_refusal(status, body, title)
                problem, is_temporary = f"HTTP status {status}", status in _TEMPORARY
            except (OSError, HTTPException) as error:
                reason = error.reason if isinstance(error, URLError) else error
                problem = str(reason) or type(reason).__name__
                is_temporary = not isinstance(reason, ssl.SSLCertVerificationError)
            except DocumentError as error:
                raise RegistryError(f"{error} Is this the URL of a schema registry?") from None
            if not is_temporary:
                break
            if attempt < _ATTEMPTS:
                time.sleep(_PAUSES.pause(attempt))
        raise RegistryError(f"The schema registry {self.url} cannot be reached: {problem}.")

    def _get(self, path: str, deadline: Deadline) -> tuple[int, bytes]:
        """Request a path; return the status and the body of the answer. Raises OSError and
        HTTPException."""
        url = urlsplit(self.url.rstrip("/") + path)
        headers = {"Accept": _ACCEPT}
        if (credentials := self._credentials()) is not None:
            headers["Authorization"] = credentials
        direct = _is_loopback(str(url.hostname)) or proxy_bypass(url.netloc)
        if direct or url.scheme not in getproxies():
            target = url.path + (f"?{url.query}" if url.query else "")
            status, body = _get_on_idle_connection(self, url.netloc, target, headers, deadline)
            if status not in _REDIRECTS:
                return status, body
        request = Request(url.geturl(), headers={"Accept": _ACCEPT})  # noqa: S310 (checked)
        if credentials is not None:
            request.add_unredirected_header("Authorization", credentials)
        handlers = deadline.handlers(tls_context(self.ca_file))
        proxies = ProxyHandler({} if direct else None)
        opener = build_opener(proxies, _Redirects(), *handlers)
        try:
            with opener.open(request, timeout=self.timeout) as reply:
                return HTTPStatus.OK, reply.read(_MAX_BYTES + 1)
        except HTTPError as error:
            with error:
                return error.code, error.read(_MAX_BYTES + 1)

    def _check_refusal(self, status: int, body: bytes, title: str) -> None:
        """Raise the error that an answer without a schema means, if asking again is of no use."""
        if status in _NO_SCHEMA and _is_document(body):
            raise SchemaNotFoundError(f"The schema registry {self.url} has no schema {title}.")
        if status == HTTPStatus.NOT_FOUND:
            raise RegistryError(
                f"There is no schema registry at {self.url}, which answers with HTTP status 404."
            )
        asker = self.user or ("this token" if self.token else "requests without credentials")
        if status in _REFUSALS and self._answers_anybody():
            raise SchemaNotFoundError(
                f"The schema registry {self.url} does not give {asker} the schema {title} (HTTP "
                f"status {status})."
            )
        if status in (401, 403):
            raise RegistryError(
                f"The schema registry {self.url} refuses {asker} (HTTP status {status})."
            )

    def _answers_anybody(self) -> bool:
        """Return whether the registry answers a request that everybody may make: then it has
        refused one schema, which a payload has named, and not the user."""
        try:
            with Deadline(self.timeout) as deadline:
                return self._get("/schemas/types", deadline)[0] == HTTPStatus.OK
        except (OSError, HTTPException):
            return False

    def _credentials(self) -> str | None:
        """Return the value of the header Authorization; None without credentials."""
        if self.token is not None:
            return f"Bearer {self.token}"
        if self.user is None:
            return None
        pair = f"{self.user}:{self.password or ''}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def _is_document(body: bytes) -> bool:
    """Return whether the body of an error is the document of a registry."""
    try:
        decode_json(body, _ErrorAnswer, "answer")
    except DocumentError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    """Return whether a host is this machine, as far as its name says it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _version_path(name: str, version: int | None) -> tuple[str, str]:
    """Return the path of a subject's version, and the version in words. None: the latest."""
    label = "latest" if version is None else str(version)
    return f"/subjects/{quote(name, safe='')}/versions/{label}", f"{name!r}, version {label}"


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a TLS context with these certificates, the same until the file changes. Raises
    ConfigError."""
    try:
        changed = None if ca_file is None else Path(ca_file).stat().st_mtime_ns
        return _tls_context(ca_file, changed)
    except OSError as error:  # also of the ssl module
        raise ConfigError(f"The registry's CA file {ca_file!r} cannot be used: {error}.") from None


@lru_cache(maxsize=10)
def _tls_context(ca_file: str | None, _changed: int | None) -> ssl.SSLContext:
    """Create a context once for each change of the file."""
    return ssl.create_default_context(cafile=ca_file)


class _Redirects(HTTPRedirectHandler):
    """Goes from https:// to https:// only: on another way anybody could write the schema. Nor to
    ftp://, of which urllib has a client without deadlines."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise URLError("it redirects from https:// to a place without TLS")
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise URLError("it redirects to a place that is neither http:// nor https://")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


# -- connections -----------------------------------------------------------------------------------

_idle: dict[tuple[object, ...], WatchedConnection] = {}
"""Idle connections of this process, by what they are for."""


def _get_on_idle_connection(
    registry: ConfluentRegistry,
    address: str,
    target: str,
    headers: dict[str, str],
    deadline: Deadline,
) -> tuple[int, bytes]:
    """Make a request on an idle connection, or on a new one if there is none or it was closed."""
    is_secure = registry.url.casefold().startswith("https")
    key = (os.getpid(), threading.get_ident(), is_secure, address, registry.ca_file)
    connection = _idle.pop(key, None)
    if connection is not None:
        connection.reuse(deadline)
        try:
            return _get_and_keep(connection, key, target, headers)
        except (HTTPException, ConnectionError):  # the registry has closed it meanwhile
            if deadline.is_over:
                raise
    if is_secure:
        context = tls_context(registry.ca_file)
        connection = deadline.connection(address, timeout=registry.timeout, context=context)
    else:
        connection = deadline.connection(address, timeout=registry.timeout)
    return _get_and_keep(connection, key, target, headers)


def _get_and_keep(
    connection: WatchedConnection, key: tuple[object, ...], target: str, headers: dict[str, str]
) -> tuple[int, bytes]:
    """Make a request on a connection, and keep it for the next one if its answer was complete."""
    is_done = False
    try:
        connection.request("GET", target, headers=headers)
        reply = connection.getresponse()
        body = reply.read(_MAX_BYTES + 1)
        is_done = reply.isclosed() and not reply.will_close
        return reply.status, body
    finally:
        if is_done and len(_idle) < _MAX_IDLE:
            _idle[key] = connection
        else:
            connection.close()

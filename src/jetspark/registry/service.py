"""A schema registry: a service (ADR-32) that speaks Synadia's protocol over a bucket.

Contract: every version and revision is a key of its own, which is only ever created, so that one of
several writers gets it; the others read again, and check what is the latest then. What is read
comes from the bucket's leader. A removed version leaves a marker, and its number is not given
again, since messages may name it. A definition that changes is a new version, with revision 1; a
description or metadata that changes is a new revision. A request that changes nothing has the
latest version as its answer, so one whose answer was lost may be sent again. What is stored leaves
room around it in one message, and a list that does not fit is asked for by parts. Several instances
may run; they share the requests, and killing one loses none of what was answered.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, NoReturn, TypeVar

import jetspark.errors as errors
import jetspark.registry.documents as documents
from jetspark.documents.document import Document, from_wire, to_wire
from jetspark.kv.bucket import Bucket, BucketCalls
from jetspark.registry.compatibility import check_definition, load_rules, violations
from jetspark.registry.documents import SchemaRef
from jetspark.services.endpoint import Request
from jetspark.services.service import Service, ServiceCalls
from jetspark.subjects import check_subscribe_subject, subject_matches
from jetspark.version import __version__
from jetspark.wire.documents import decode_document, encode_document

_MAX_CONCURRENT: Final = 16
"""Requests of one kind that an instance answers at the same time."""
_MAX_REASON_CHARS: Final = 4000
"""Characters of a refusal, which is in a header."""

RequestT = TypeVar("RequestT", bound=Document)


async def serve_registry(
    nc: ServiceCalls, js: BucketCalls, *, bucket: str = documents.BUCKET, replicas: int = 1
) -> Service:
    """Start an instance; its schemas are in `bucket`, which is created if there is none.

    Raises ModuleNotFoundError without the extra `registry`, and the errors of `add_service` and of
    `create_bucket`.
    """
    try:
        schemas = await js.bucket(bucket)
    except errors.BucketNotFoundError:
        schemas = await js.create_bucket(bucket, replicas=replicas)
    await to_thread(load_rules)  # before threads ask for them at once
    registry = _Registry(js, schemas, nc.max_payload * 7 // 8)
    version = ".".join(__version__.split(".")[:3])
    service = await nc.add_service(documents.SERVICE, version, description="Schemas of payloads")
    try:
        for verb, handler in registry.handlers.items():
            subject = documents.served_subject(verb)
            endpoint = partial(_answer_request, handler, len(subject) - 1)
            name = verb.lower()
            await service.add_endpoint(name, endpoint, subject=subject, concurrency=_MAX_CONCURRENT)
    except BaseException:
        await service.stop()
        raise
    return service


Handler = Callable[[str, bytes], Awaitable[Document]]


async def _answer_request(handler: Handler, prefix_chars: int, request: Request) -> None:
    """Answer a request, also with an error. `prefix_chars`: of the subject, before its tail."""
    try:
        answer = await handler(request.subject[prefix_chars:], request.data)
        await request.respond_json(to_wire(answer))
    except errors.DocumentError as error:
        raise errors.ServiceError(documents.Code.INVALID_REQUEST, str(error)) from None
    except errors.MaxPayloadError as error:
        raise errors.ServiceError(
            documents.Code.TOO_LARGE,
            f"The answer is too large for one message ({error}): give a filter, or ask for parts.",
        ) from None
    except errors.ServiceError:
        raise
    except errors.JetsparkError as error:
        raise errors.ServiceError(documents.Code.INTERNAL, str(error)) from error


class _Stored(NamedTuple):
    """A schema in the bucket."""

    schema: documents.Schema
    sequence: int
    """The sequence in the bucket."""
    size: int
    """Bytes of its document."""


class _Registry:
    """Answers requests, by the tail of their subject and their payload."""

    def __init__(self, js: BucketCalls, bucket: Bucket, max_bytes: int) -> None:
        self._js = js
        self._bucket = bucket
        self._max_bytes = max_bytes
        """Bytes of a schema's document, and of a part of a list."""
        self.handlers: dict[documents.Verb, Handler] = {
            documents.Verb.ADD: self._add,
            documents.Verb.GET: self._get,
            documents.Verb.UPDATE: self._update,
            documents.Verb.LIST: self._list,
            documents.Verb.REMOVE: self._remove,
        }

    # -- requests ------------------------------------------------------------------------------

    async def _add(self, name: str, data: bytes) -> Document:
        """Answer ADD: store the first version, unless the schema exists."""
        request = _parse(documents.AddRequest, data)
        policy = request.compat_policy or documents.DEFAULT_POLICY
        new = documents.Schema(
            name=_check_name(name),
            version=1,
            revision=1,
            format=_check_format(request.format),
            compat_policy=policy,
            definition=request.definition,
            description=request.description or "",
            metadata=request.metadata or {},
        )
        if documents.policy_of(policy) is None:
            _refuse(
                documents.Code.INVALID_REQUEST,
                f"compat_policy is one of {', '.join(documents.POLICIES)}: {policy!r}",
            )
        await to_thread(_check_definition, new)
        while True:
            refs = await self._find_refs(SchemaRef(name, new.format))
            if (latest := await self._read_latest(refs)) is not None:
                if _content(latest.schema) == _content(new):
                    return _to_version(latest.schema)
                _refuse(documents.Code.ALREADY_EXISTS, f"{latest.schema.ref} exists: update it")
            version = _next_number(ref.version for ref in refs)
            if stored := await self._store(new.replace(version=version)):
                return stored

    async def _update(self, tail: str, data: bytes) -> Document:
        """Answer UPDATE: store a new version or revision, unless nothing changes."""
        request = _parse(documents.UpdateRequest, data)
        target = _schema_ref(tail, request)
        changes = {
            name: value
            for name in ("definition", "description", "metadata")
            if (value := getattr(request, name)) is not None
        }
        while True:
            refs = await self._find_refs(SchemaRef(target.name, _check_format(target.format)))
            if (stored_latest := await self._read_latest(refs)) is None:
                _refuse(
                    documents.Code.NOT_FOUND, f"There is no {SchemaRef(target.name, target.format)}"
                )
            latest = stored_latest.schema
            is_latest = target.version in (None, latest.version)
            if not is_latest or target.revision not in (None, latest.revision):
                _refuse(documents.Code.CHANGED, f"The latest is {latest.ref}")
            new = latest.replace(**changes)
            if _content(new) == _content(latest):
                return _to_version(latest)
            if new.definition == latest.definition:
                revisions = (ref.revision for ref in refs if ref.version == latest.version)
                new = new.replace(revision=_next_number(revisions))
            else:
                await to_thread(_check_change, latest, new)
                new = new.replace(version=_next_number(ref.version for ref in refs), revision=1)
            if stored := await self._store(new):
                return stored

    async def _get(self, tail: str, data: bytes) -> Document:
        """Answer GET: the latest schema that the request refers to."""
        target = _schema_ref(tail, _parse(documents.GetRequest, data or b"{}"))
        if (stored := await self._read_latest(await self._find_refs(target))) is None:
            _refuse(documents.Code.NOT_FOUND, f"There is no {target}")
        return documents.GetResponse(schema=stored.schema)

    async def _list(self, _: str, data: bytes) -> Document:
        """Answer LIST: all schemas, or a part of them."""
        request = _parse(documents.ListRequest, data or b"{}")
        pattern = request.filter or ">"
        try:
            check_subscribe_subject(pattern)
        except errors.ConfigError as error:
            _refuse(documents.Code.INVALID_REQUEST, f"filter: {error}")
        if request.after is not None:
            return await self._list_part(pattern, request.after)
        schemas = [
            _parse_stored(entry.value)
            async for entry in self._bucket.history(SchemaRef(">").key)
            if not entry.is_deleted
            and (ref := SchemaRef.of_key(entry.key)) is not None
            and subject_matches(pattern, ref.name)
        ]
        return documents.ListResponse(schemas=sorted(schemas, key=lambda schema: schema.ref))

    async def _list_part(self, pattern: str, after: str) -> documents.ListResponse:
        """Return the schemas after one, or the first ones: as many as fit into a message, and one
        at least."""
        refs = sorted(
            ref
            for ref in await self._find_refs(SchemaRef(">"))
            if subject_matches(pattern, ref.name)
        )
        if after:
            if (last := SchemaRef.parse(after)) is None:
                _refuse(documents.Code.INVALID_REQUEST, f"after: {after!r} is no place of a schema")
            refs = [ref for ref in refs if ref > last]
        schemas: list[documents.Schema] = []
        size = 0
        for ref in refs:
            if (stored := await self._read(ref)) is None:
                continue
            size += stored.size
            if schemas and size > self._max_bytes:
                return documents.ListResponse(schemas=schemas, next=schemas[-1].ref.subject_tail)
            schemas.append(stored.schema)
        return documents.ListResponse(schemas=schemas)

    async def _remove(self, tail: str, data: bytes) -> Document:
        """Answer REMOVE: every schema that the request refers to."""
        target = _schema_ref(tail, _parse(documents.RemoveRequest, data or b"{}"))
        existed = False
        for ref in await self._find_refs(target):
            if await self._read(ref) is not None:
                await self._bucket.delete(ref.key)
                existed = True
        if not existed:
            _refuse(documents.Code.NOT_FOUND, f"There is no {target}")
        return documents.RemoveResponse()

    # -- the bucket ----------------------------------------------------------------------------

    async def _find_refs(self, pattern: SchemaRef) -> list[SchemaRef]:
        """Return the references that match a pattern, those of removed schemas included."""
        before = f"$KV.{self._bucket.name}."
        info = await self._js.stream(self._bucket.stream).info(
            subjects_filter=f"{before}{pattern.key}"
        )
        refs = (SchemaRef.of_key(key.removeprefix(before)) for key in info.state.subjects or ())
        return [ref for ref in refs if ref is not None]

    async def _read_latest(self, refs: list[SchemaRef]) -> _Stored | None:
        """Return the latest of these schemas, of several formats the one that was stored last; None
        if all are removed."""
        candidates = []
        for format in {ref.format for ref in refs}:
            same_format = (ref for ref in refs if ref.format == format)
            for ref in sorted(same_format, reverse=True):
                if (stored := await self._read(ref)) is not None:
                    candidates.append(stored)
                    break
        return max(candidates, key=lambda candidate: candidate.sequence, default=None)

    async def _read(self, ref: SchemaRef) -> _Stored | None:
        """Return a stored schema; None if it was removed."""
        try:
            entry = await self._bucket.get(ref.key, leader=True)
        except errors.KeyNotFoundError:
            return None
        return _Stored(_parse_stored(entry.value), entry.revision, len(entry.value))

    async def _store(self, schema: documents.Schema) -> documents.SchemaVersion | None:
        """Store a new version or revision; None: somebody else has stored one first."""
        stored = schema.replace(time=datetime.now(UTC))
        document = encode_document(to_wire(stored))
        if len(document) > self._max_bytes:
            _refuse(
                documents.Code.TOO_LARGE,
                f"{stored.ref} would have {len(document)} bytes with all that belongs to it; "
                f"with this server's max_payload, {self._max_bytes} are the most",
            )
        try:
            await self._bucket.update(stored.ref.key, document, 0)
        except errors.WrongLastSequenceError:
            return None
        return _to_version(stored)


def _refuse(code: documents.Code, reason: str) -> NoReturn:
    """Raise the error that answers a request."""
    short = reason if len(reason) <= _MAX_REASON_CHARS else f"{reason[:_MAX_REASON_CHARS]}…"
    raise errors.ServiceError(code, f"{short}.")


def _parse(cls: type[RequestT], data: bytes) -> RequestT:
    """Parse the document of a request. Raises DocumentError."""
    return from_wire(cls, decode_document(data, cls.__name__))


def _parse_stored(data: bytes) -> documents.Schema:
    """Parse a document of the bucket."""
    try:
        return from_wire(documents.Schema, decode_document(data, "schema"))
    except errors.DocumentError as error:
        _refuse(documents.Code.INTERNAL, f"The bucket has what is not a schema ({error.reason})")


def _schema_ref(tail: str, request: documents.UpdateRequest | documents.GetRequest) -> SchemaRef:
    """Return what a request refers to: in the subject; or the name there, and the rest in the
    payload, as some clients write it."""
    ref = SchemaRef.parse(tail) or SchemaRef(
        tail, request.format or None, request.version or None, request.revision or None
    )
    _check_name(ref.name)
    return ref


def _check_name(name: str) -> str:
    """Return the name of a schema, or refuse the request."""
    try:
        return documents.check_schema_name(name)
    except errors.BadNameError as error:
        _refuse(documents.Code.NAME_INVALID, str(error).removesuffix("."))


def _check_format(format: str | None) -> str:
    """Return the format of a schema, or refuse the request."""
    if not format:
        _refuse(documents.Code.FORMAT_REQUIRED, "The format is missing")
    if format not in documents.FORMATS:
        _refuse(
            documents.Code.FORMAT_UNSUPPORTED,
            f"The format is one of {', '.join(documents.FORMATS)}: {format!r}",
        )
    return format


def _check_definition(schema: documents.Schema) -> None:
    """Refuse a definition that is invalid in its format."""
    try:
        check_definition(schema.payload_schema())
    except errors.ConfigError as error:
        _refuse(documents.Code.DEFINITION_INVALID, str(error).removesuffix("."))


def _check_change(latest: documents.Schema, new: documents.Schema) -> None:
    """Refuse a definition that is not compatible with the latest one."""
    _check_definition(new)
    policy = documents.policy_of(latest.compat_policy) or documents.DEFAULT_POLICY
    if reasons := violations(policy, latest.payload_schema(), new.payload_schema()):
        _refuse(
            documents.Code.INCOMPATIBLE,
            f"Not compatible ({policy}) with {latest.ref}: {'; '.join(reasons)}",
        )


def _content(schema: documents.Schema) -> tuple[object, ...]:
    """Return what a client can set of a schema, to compare it."""
    policy = documents.policy_of(schema.compat_policy)
    return schema.definition, schema.description, schema.metadata, policy


def _to_version(schema: documents.Schema) -> documents.SchemaVersion:
    """Return the answer to ADD and UPDATE."""
    return documents.SchemaVersion(version=schema.version, revision=schema.revision)


def _next_number(given_numbers: Iterable[int | None]) -> int:
    """Return the number after those that were ever given; a removed schema keeps its number."""
    return max((number or 0 for number in given_numbers), default=0) + 1

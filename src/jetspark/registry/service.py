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

_AT_ONCE: Final = 16
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
            endpoint = partial(_answered, handler, len(subject) - 1)
            name = verb.lower()
            await service.add_endpoint(name, endpoint, subject=subject, concurrency=_AT_ONCE)
    except BaseException:
        await service.stop()
        raise
    return service


Handler = Callable[[str, bytes], Awaitable[Document]]


async def _answered(handler: Handler, head: int, request: Request) -> None:
    try:
        answer = await handler(request.subject[head:], request.data)
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
    schema: documents.Schema
    sequence: int
    """The sequence in the bucket."""
    size: int
    """Bytes of its document."""


class _Registry:
    """The handlers: the rest of the subject and the payload become the answer's document."""

    def __init__(self, js: BucketCalls, bucket: Bucket, largest: int) -> None:
        self._js = js
        self._bucket = bucket
        self._largest = largest
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
        request = _read(documents.AddRequest, data)
        policy = request.compat_policy or documents.DEFAULT_POLICY
        new = documents.Schema(
            name=_checked_name(name),
            version=1,
            revision=1,
            format=_checked_format(request.format),
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
            refs = await self._keys(SchemaRef(name, new.format))
            if (latest := await self._latest(refs)) is not None:
                if _content(latest.schema) == _content(new):
                    return _version_of(latest.schema)
                _refuse(documents.Code.ALREADY_EXISTS, f"{latest.schema.ref} exists: update it")
            version = _after(ref.version for ref in refs)
            if stored := await self._store(new.replace(version=version)):
                return stored

    async def _update(self, tail: str, data: bytes) -> Document:
        request = _read(documents.UpdateRequest, data)
        target = _schema_ref(tail, request)
        changes = {
            name: value
            for name in ("definition", "description", "metadata")
            if (value := getattr(request, name)) is not None
        }
        while True:
            refs = await self._keys(SchemaRef(target.name, _checked_format(target.format)))
            if (stored_latest := await self._latest(refs)) is None:
                _refuse(
                    documents.Code.NOT_FOUND, f"There is no {SchemaRef(target.name, target.format)}"
                )
            latest = stored_latest.schema
            is_latest = target.version in (None, latest.version)
            if not is_latest or target.revision not in (None, latest.revision):
                _refuse(documents.Code.CHANGED, f"The latest is {latest.ref}")
            new = latest.replace(**changes)
            if _content(new) == _content(latest):
                return _version_of(latest)
            if new.definition == latest.definition:
                revisions = (ref.revision for ref in refs if ref.version == latest.version)
                new = new.replace(revision=_after(revisions))
            else:
                await to_thread(_check_change, latest, new)
                new = new.replace(version=_after(ref.version for ref in refs), revision=1)
            if stored := await self._store(new):
                return stored

    async def _get(self, tail: str, data: bytes) -> Document:
        target = _schema_ref(tail, _read(documents.GetRequest, data or b"{}"))
        if (stored := await self._latest(await self._keys(target))) is None:
            _refuse(documents.Code.NOT_FOUND, f"There is no {target}")
        return documents.GetResponse(schema=stored.schema)

    async def _list(self, _: str, data: bytes) -> Document:
        request = _read(documents.ListRequest, data or b"{}")
        pattern = request.filter or ">"
        try:
            check_subscribe_subject(pattern)
        except errors.ConfigError as error:
            _refuse(documents.Code.INVALID_REQUEST, f"filter: {error}")
        if request.after is not None:
            return await self._part(pattern, request.after)
        schemas = [
            _schema(entry.value)
            async for entry in self._bucket.history(SchemaRef(">").key)
            if not entry.is_deleted
            and (ref := SchemaRef.of_key(entry.key)) is not None
            and subject_matches(pattern, ref.name)
        ]
        return documents.ListResponse(schemas=sorted(schemas, key=lambda schema: schema.ref))

    async def _part(self, pattern: str, after: str) -> documents.ListResponse:
        """Return as many schemas as fit into one message, and one at least."""
        refs = sorted(
            ref for ref in await self._keys(SchemaRef(">")) if subject_matches(pattern, ref.name)
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
            if schemas and size > self._largest:
                return documents.ListResponse(schemas=schemas, next=schemas[-1].ref.subject_tail)
            schemas.append(stored.schema)
        return documents.ListResponse(schemas=schemas)

    async def _remove(self, tail: str, data: bytes) -> Document:
        target = _schema_ref(tail, _read(documents.RemoveRequest, data or b"{}"))
        existed = False
        for ref in await self._keys(target):
            if await self._read(ref) is not None:
                await self._bucket.delete(ref.key)
                existed = True
        if not existed:
            _refuse(documents.Code.NOT_FOUND, f"There is no {target}")
        return documents.RemoveResponse()

    # -- the bucket ----------------------------------------------------------------------------

    async def _keys(self, pattern: SchemaRef) -> list[SchemaRef]:
        """The places there, removed ones included."""
        before = f"$KV.{self._bucket.name}."
        info = await self._js.stream_info(
            self._bucket.stream, subjects_filter=f"{before}{pattern.key}"
        )
        refs = (SchemaRef.of_key(key.removeprefix(before)) for key in info.state.subjects or ())
        return [ref for ref in refs if ref is not None]

    async def _latest(self, refs: list[SchemaRef]) -> _Stored | None:
        """The latest one of these; of several formats, what was stored last."""
        candidates = []
        for format in {ref.format for ref in refs}:
            same_format = (ref for ref in refs if ref.format == format)
            for ref in sorted(same_format, reverse=True):
                if (stored := await self._read(ref)) is not None:
                    candidates.append(stored)
                    break
        return max(candidates, key=lambda candidate: candidate.sequence, default=None)

    async def _read(self, ref: SchemaRef) -> _Stored | None:
        try:
            entry = await self._bucket.get(ref.key, leader=True)
        except errors.KeyNotFoundError:
            return None
        return _Stored(_schema(entry.value), entry.revision, len(entry.value))

    async def _store(self, schema: documents.Schema) -> documents.SchemaVersion | None:
        """None: somebody else was first."""
        stored = schema.replace(time=datetime.now(UTC))
        document = encode_document(to_wire(stored))
        if len(document) > self._largest:
            _refuse(
                documents.Code.TOO_LARGE,
                f"{stored.ref} would have {len(document)} bytes with all that belongs to it; "
                f"with this server's max_payload, {self._largest} are the most",
            )
        try:
            await self._bucket.update(stored.ref.key, document, 0)
        except errors.WrongLastSequenceError:
            return None
        return _version_of(stored)


def _refuse(code: documents.Code, reason: str) -> NoReturn:
    short = reason if len(reason) <= _MAX_REASON_CHARS else f"{reason[:_MAX_REASON_CHARS]}…"
    raise errors.ServiceError(code, f"{short}.")


def _read(cls: type[RequestT], data: bytes) -> RequestT:
    return from_wire(cls, decode_document(data, cls.__name__))


def _schema(data: bytes) -> documents.Schema:
    try:
        return from_wire(documents.Schema, decode_document(data, "schema"))
    except errors.DocumentError as error:
        _refuse(documents.Code.INTERNAL, f"The bucket has what is not a schema ({error.reason})")


def _schema_ref(tail: str, request: documents.UpdateRequest | documents.GetRequest) -> SchemaRef:
    """The place in the subject, or the name there and the rest in the payload, as some write it."""
    ref = SchemaRef.parse(tail) or SchemaRef(
        tail, request.format or None, request.version or None, request.revision or None
    )
    _checked_name(ref.name)
    return ref


def _checked_name(name: str) -> str:
    try:
        return documents.check_schema_name(name)
    except errors.BadNameError as error:
        _refuse(documents.Code.NAME_INVALID, str(error).removesuffix("."))


def _checked_format(format: str | None) -> str:
    if not format:
        _refuse(documents.Code.FORMAT_REQUIRED, "The format is missing")
    if format not in documents.FORMATS:
        _refuse(
            documents.Code.FORMAT_UNSUPPORTED,
            f"The format is one of {', '.join(documents.FORMATS)}: {format!r}",
        )
    return format


def _check_definition(schema: documents.Schema) -> None:
    try:
        check_definition(schema.payload_schema())
    except errors.ConfigError as error:
        _refuse(documents.Code.DEFINITION_INVALID, str(error).removesuffix("."))


def _check_change(latest: documents.Schema, new: documents.Schema) -> None:
    _check_definition(new)
    policy = documents.policy_of(latest.compat_policy) or documents.DEFAULT_POLICY
    if reasons := violations(policy, latest.payload_schema(), new.payload_schema()):
        _refuse(
            documents.Code.INCOMPATIBLE,
            f"Not compatible ({policy}) with {latest.ref}: {'; '.join(reasons)}",
        )


def _content(schema: documents.Schema) -> tuple[object, ...]:
    policy = documents.policy_of(schema.compat_policy)
    return schema.definition, schema.description, schema.metadata, policy


def _version_of(schema: documents.Schema) -> documents.SchemaVersion:
    return documents.SchemaVersion(version=schema.version, revision=schema.revision)


def _after(given_numbers: Iterable[int | None]) -> int:
    """The number after those that were given, also if what had it was removed."""
    return max((number or 0 for number in given_numbers), default=0) + 1

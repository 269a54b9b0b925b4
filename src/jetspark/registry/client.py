"""A client of schema registries that speak Synadia's protocol, ours or another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import TypeVar

import jetspark.registry.documents as documents
from jetspark.client.client import CoreClient
from jetspark.client.listing import Listing
from jetspark.documents.document import Document, to_wire
from jetspark.errors import ConfigError, NoRespondersError, ServiceError
from jetspark.timestamps import Seconds
from jetspark.validation import check_whole
from jetspark.wire.documents import encode_document

AnswerT = TypeVar("AnswerT", bound=Document)


class SchemaRegistry:
    """The schema registry of this account, returned by `Client.schema_registry`.

    A schema has a name, a format ("avro", "protobuf" or "jsonschema"), versions, and revisions of
    a version; names belong to a format. `version` and `revision` may be left out for the latest.
    Every call raises RegistryError when no registry answers, SchemaNotFoundError, ServiceError for
    other refusals (its `code` is in `jetspark.registry.documents.Code`), BadNameError, ConfigError,
    DocumentError for an unreadable answer, and the errors of `Client.request`.

    Example:
        ```python
        registry = nc.schema_registry()
        await registry.add("shop.Order", '{"type": "object"}', format="jsonschema")
        order = await registry.get("shop.Order")
        print(order.format, order.version)  # jsonschema 1
        ```
    """

    def __init__(self, client: CoreClient, timeout: Seconds | None) -> None:
        self._client = client
        self._timeout = timeout

    async def add(
        self,
        name: str,
        definition: str,
        *,
        format: str,
        compat_policy: str | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> documents.SchemaVersion:
        """Register the first version of a schema.

        `definition`: Avro's or JSON Schema's JSON; for Protobuf the source of a .proto file, or a
        FileDescriptorSet in base64, the schema's own file last. `compat_policy`: "none",
        "backwards", "forward" or "full", checked for each later version; None: "backwards".

        Example:
            ```python
            registry = nc.schema_registry()
            schema = '{"type": "object", "properties": {"id": {"type": "string"}}}'
            added = await registry.add("Item", schema, format="jsonschema", compat_policy="none")
            print(added.version, added.revision)  # 1 1
            ```
        """
        check_format(format)
        if compat_policy is not None and documents.policy_of(compat_policy) is None:
            raise ConfigError(f"compat_policy is one of {', '.join(documents.POLICIES)}.")
        request = documents.AddRequest(
            definition=definition,
            format=format,
            compat_policy=compat_policy,
            description=description,
            metadata=None if metadata is None else dict(metadata),
        )
        return await self._request(
            documents.Verb.ADD, documents.check_schema_name(name), request, documents.SchemaVersion
        )

    async def get(
        self,
        name: str,
        version: int | None = None,
        *,
        revision: int | None = None,
        format: str | None = None,
    ) -> documents.Schema:
        """Get a schema. `format`: needed for a name that exists in several formats."""
        ref = _schema_ref(name, format, version, revision)
        answer = await self._request(
            documents.Verb.GET, ref.subject_tail, documents.GetRequest(), documents.GetResponse
        )
        return answer.schema

    async def update(
        self,
        name: str,
        definition: str | None = None,
        *,
        format: str,
        version: int | None = None,
        revision: int | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> documents.SchemaVersion:
        """Register another version, or change the description or metadata; None: they stay.

        `version`, `revision`: only if these are the latest. The definition must be compatible with
        the latest one, by the policy that `add` was given; otherwise ServiceError with code 409.
        """
        ref = _schema_ref(name, check_format(format), version, revision)
        request = documents.UpdateRequest(
            definition=definition,
            description=description,
            metadata=None if metadata is None else dict(metadata),
        )
        return await self._request(
            documents.Verb.UPDATE, ref.subject_tail, request, documents.SchemaVersion
        )

    def schemas(self, filter: str | None = None) -> Listing[documents.Schema]:
        """Every version and revision; `filter`: only of names that match, as in "orders.*"."""
        return Listing(partial(self._schemas, filter))

    async def _schemas(self, filter: str | None) -> AsyncIterator[documents.Schema]:
        try:
            part = await self._list(filter)
        except ServiceError as error:
            if error.code != documents.Code.TOO_LARGE:
                raise
            # It is a registry of ours, which can answer in parts.
            part = await self._list(filter, after="")
        while True:
            for schema in part.schemas:
                yield schema
            if part.next is None:
                return
            part = await self._list(filter, after=part.next)

    async def _list(self, filter: str | None, after: str | None = None) -> documents.ListResponse:
        request = documents.ListRequest(filter=filter, after=after)
        return await self._request(documents.Verb.LIST, "", request, documents.ListResponse)

    async def remove(
        self, name: str, *, format: str, version: int | None = None, revision: int | None = None
    ) -> None:
        """Remove a revision, a version, or without both the whole schema. It cannot be undone."""
        ref = _schema_ref(name, check_format(format), version, revision)
        await self._request(
            documents.Verb.REMOVE,
            ref.subject_tail,
            documents.RemoveRequest(),
            documents.RemoveResponse,
        )

    async def _request(
        self, verb: documents.Verb, tail: str, request: Document, answer: type[AnswerT]
    ) -> AnswerT:
        """Make a request and parse its answer; see the class for errors."""
        subject = documents.request_subject(verb, tail)
        payload = encode_document(to_wire(request))
        # Only what changes nothing may be sent twice.
        is_read = verb in (documents.Verb.GET, documents.Verb.LIST)
        send = self._client.ask if is_read else self._client.request
        try:
            reply = await send(subject, payload, timeout=self._timeout)
        except NoRespondersError:
            raise documents.no_registry(self._client.current_server) from None
        return documents.answer_of(reply.headers, reply.data, answer)


def check_format(format: str) -> str:
    """Return the format. Raises ConfigError for an unknown one."""
    if format not in documents.FORMATS:
        raise ConfigError(f"format is one of {', '.join(documents.FORMATS)}, not {format!r}.")
    return format


def _schema_ref(
    name: str, format: str | None, version: int | None, revision: int | None
) -> documents.SchemaRef:
    """Return the reference to a schema. Raises ConfigError and BadNameError."""
    for option, number in (("version", version), ("revision", revision)):
        if number is not None:
            check_whole(option, number)
    if format is not None:
        check_format(format)
    return documents.SchemaRef(documents.check_schema_name(name), format, version, revision)


class RegistryCalls(CoreClient):
    """A client with a schema registry."""

    def schema_registry(self, *, timeout: Seconds | None = None) -> SchemaRegistry:
        """The schema registry of this account. Sends nothing.

        `timeout`: seconds for each request; default: the connection's `request_timeout`.

        Example:
            ```python
            registry = nc.schema_registry()
            added = await registry.add("Customer", '{"type": "object"}', format="jsonschema")
            print(added.version)  # 1
            ```
        """
        return SchemaRegistry(self, timeout)

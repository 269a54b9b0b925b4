"""Consumers: create, change, bind, list, delete.

Contract: a configuration is given as for streams (see `streams.calls`). `name` and `durable_name`
may be given alone or equal; a consumer with neither is named by the server. `ack_policy` is
"explicit" by default. Options with a name create a durable consumer, unless they give
`inactive_threshold`; a configuration document is sent as it is. Creating never changes an existing
consumer: servers from 2.10 on guarantee that, older ones are asked for it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias, Unpack

from jetspark.arguments import checked
from jetspark.err_codes import (
    CONSUMER_EXISTS,
)
from jetspark.errors import (
    ConfigError,
    ConsumerIsPushError,
    ConsumerNotFoundError,
    JetsparkError,
    NameInUseError,
)
from jetspark.jetstream.api import Api
from jetspark.jetstream.consumers.consumer import consumer_info
from jetspark.jetstream.consumers.pull import PullConsumer
from jetspark.jetstream.consumers.push import PushConsumer
from jetspark.jetstream.differences import differing, with_differences
from jetspark.jetstream.documents import ConsumerConfig, ConsumerInfo, ConsumerOptions
from jetspark.jetstream.documents.configuration import Configuration, config_to_wire
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.paging import Paged
from jetspark.jetstream.requirements import check_consumer, consumer_needs
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.wire import js_api
from jetspark.wire.status import CONFLICT

ConsumerConfigLike: TypeAlias = ConsumerConfig | Configuration


@checked
class ConsumerCalls:
    """The calls of JetStream for consumers."""

    _api: Api

    async def create_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> PullConsumer:
        """Create a pull consumer, or bind to it when it exists with the same configuration.

        Options are the fields of ConsumerConfig. With a `name` (or `durable_name`) it stays until
        it is deleted; with `name` and `inactive_threshold`, until it was unused for that long;
        without a name, until it was unused for 5 s. A `config` is sent as it is: only its
        `durable_name` makes the consumer durable.

        Raises ConfigError, UnsupportedByServerError, StreamNotFoundError, NameInUseError when it
        exists with another configuration (`update_consumer` changes it, `consumer` binds to it),
        and as every API call (see `JetStream`).
        """
        wire = _durable(_checked(self._api, stream, config, options), config)
        if wire.get("deliver_subject"):
            raise ConfigError("deliver_subject makes a push consumer: use create_push_consumer.")
        return PullConsumer(self._api, await self._create(stream, wire))

    async def create_push_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> PushConsumer:
        """Create a push consumer; `deliver_subject` is required. Raises as `create_consumer`."""
        wire = _durable(_checked(self._api, stream, config, options), config)
        if not wire.get("deliver_subject"):
            raise ConfigError("A push consumer needs deliver_subject.")
        return PushConsumer(self._api, await self._create(stream, wire))

    async def update_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> ConsumerInfo:
        """Change a consumer; options not given keep their values. A name is required.

        The current configuration is read first, so of two concurrent updates one may undo the
        other. Raises ConfigError, UnsupportedByServerError, ConsumerNotFoundError,
        StreamNotFoundError, and as every API call (see `JetStream`).
        """
        return await self._change(stream, _checked(self._api, stream, config, options, defaults={}))

    async def _change(self, stream: str, wire: dict[str, Any]) -> ConsumerInfo:
        name = _name_of(wire)
        if name is None:
            raise ConfigError("Updating a consumer needs its name.")
        answer = await self._api.call(js_api.CONSUMER_INFO, stream=stream, consumer=name)
        return await self._send(stream, _merged(answer["config"], wire), "update")

    async def create_or_update_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> ConsumerInfo:
        """Update a consumer, or create it, pull or push, when none has that name.

        Raises as `update_consumer` and `create_consumer`.
        """
        wire = _checked(self._api, stream, config, options, defaults={})
        if _name_of(wire) is not None:
            try:
                return await self._change(stream, wire)
            except ConsumerNotFoundError:
                pass
        return await self._create(stream, _durable({**_DEFAULTS, **wire}, config))

    async def consumer(self, stream: str, name: str) -> PullConsumer:
        """Bind to an existing pull consumer.

        Raises ConsumerNotFoundError, StreamNotFoundError, ConsumerIsPushError for a push consumer,
        and as every API call (see `JetStream`).
        """
        info = await consumer_info(self._api, stream, name)
        if info.config.deliver_subject:
            raise ConsumerIsPushError(CONFLICT, "Consumer is push based")
        return PullConsumer(self._api, info)

    async def push_consumer(self, stream: str, name: str) -> PushConsumer:
        """Bind to an existing push consumer.

        Raises ConsumerNotFoundError, StreamNotFoundError, ConfigError for a pull consumer, and as
        every API call (see `JetStream`).
        """
        info = await consumer_info(self._api, stream, name)
        if not info.config.deliver_subject:
            raise ConfigError(f'Consumer "{name}" of stream "{stream}" is a pull consumer.')
        return PushConsumer(self._api, info)

    async def consumer_info(self, stream: str, name: str) -> ConsumerInfo:
        """Configuration and state of a consumer.

        Raises ConsumerNotFoundError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        return await consumer_info(self._api, stream, name)

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer.

        Raises ConsumerNotFoundError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        await self._api.call(js_api.CONSUMER_DELETE, stream=stream, consumer=name)

    def consumer_names(self, stream: str) -> Paged[str]:
        """The names of a stream's consumers.

        Raises BadNameError; while iterating StreamNotFoundError, and as every API call (see
        `JetStream`).
        """
        check_name("stream", stream)
        return Paged(self._api, js_api.CONSUMER_NAMES, "consumers", str, {}, stream=stream)

    def consumers(self, stream: str) -> Paged[ConsumerInfo]:
        """A stream's consumers. Raises as `consumer_names`."""
        check_name("stream", stream)
        return Paged(self._api, js_api.CONSUMER_LIST, "consumers", _to_info, {}, stream=stream)

    async def _create(self, stream: str, wire: dict[str, Any]) -> ConsumerInfo:
        name = _name_of(wire)
        if name is not None and not self._knows_actions():
            existing = await self._existing(stream, name)
            if existing is not None and "ts" not in existing:  # from a server before 2.10
                return _same_or_in_use(existing, wire, stream, name)
        try:
            return await self._send(stream, wire, "create")
        except NameInUseError as error:
            with suppress(JetsparkError):  # who may not ask gets the error as it is
                if name is not None and (there := await self._existing(stream, name)) is not None:
                    error = with_differences(error, differing(there["config"], wire))
            raise error from None

    def _knows_actions(self) -> bool:
        """Whether the server surely takes the action; behind a domain that is unknown."""
        server = self._api.server
        return server is not None and server.at_least(2, 10)

    async def _existing(self, stream: str, name: str) -> dict[str, Any] | None:
        try:
            return await self._api.call(js_api.CONSUMER_INFO, stream=stream, consumer=name)
        except ConsumerNotFoundError:
            return None

    async def _send(self, stream: str, wire: dict[str, Any], action: str) -> ConsumerInfo:
        body: dict[str, Any] = {"stream_name": stream, "config": wire}
        if self._api.server is None or self._knows_actions():  # older ones ignore it
            body["action"] = action
        name, needs = _name_of(wire), consumer_needs(wire)
        if name is None:
            call = js_api.CONSUMER_CREATE_UNNAMED
            return _to_info(await self._api.call(call, body, needs, stream=stream))
        # With the name in the subject, the server wants it in the configuration too.
        wire.setdefault("name", name)
        call, names = js_api.CONSUMER_CREATE, {"stream": stream, "consumer": name}
        single = wire.get("filter_subject")
        if single and "*" not in single and ">" not in single:
            # With the filter in the subject, permissions can be given by filter. With wildcards
            # the subject would not be valid for publishing (in pedantic mode).
            call, names = js_api.CONSUMER_CREATE_FILTERED, {**names, "filter": single}
        return _to_info(await self._api.call(call, body, needs, **names))


async def create_ephemeral(
    api: Api, stream: str, config: Mapping[str, Any], name: str
) -> ConsumerInfo:
    """Create it by the call without a name in its subject: a reader's permissions allow that one.

    It has a name, so the request may be sent twice, and survives a lost link.
    Raises as `ConsumerCalls.create_consumer`.
    """
    wire = {**_checked(api, stream, config, {}), "name": name}
    body = {"stream_name": stream, "config": wire}
    call = js_api.CONSUMER_CREATE_UNNAMED._replace(question=True)
    return _to_info(await api.call(call, body, consumer_needs(wire), stream=stream))


_DEFAULTS = {"ack_policy": "explicit"}


def _checked(
    api: Api,
    stream: str,
    config: ConsumerConfigLike | None,
    options: ConsumerOptions,
    *,
    defaults: Mapping[str, Any] = _DEFAULTS,
) -> dict[str, Any]:
    check_name("stream", stream)
    wire = {**defaults, **config_to_wire(ConsumerConfig, config, options)}
    name, durable = wire.get("name"), wire.get("durable_name")
    if name and durable and name != durable:
        raise ConfigError(f"name {name!r} and durable_name {durable!r} must be equal.")
    for one in (name, durable):
        if one is not None:
            check_name("consumer", one)
    if wire.get("filter_subject") and wire.get("filter_subjects"):
        raise ConfigError("Give either filter_subject or filter_subjects, not both.")
    for subject in (wire.get("filter_subject"), *(wire.get("filter_subjects") or [])):
        if subject:
            check_subscribe_subject(subject)
    check_consumer(wire, api.server)
    return wire


def _durable(wire: dict[str, Any], config: ConsumerConfigLike | None) -> dict[str, Any]:
    """A consumer named by options is durable, unless they give `inactive_threshold`."""
    if config is None and wire.get("name") and not wire.get("inactive_threshold"):
        wire.setdefault("durable_name", wire["name"])
    return wire


def _name_of(wire: Mapping[str, Any]) -> str | None:
    return wire.get("name") or wire.get("durable_name")


def _merged(current: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The current configuration with the changes; either kind of filter replaces the other."""
    merged = {**current, **change}
    if "filter_subjects" in change:
        merged.pop("filter_subject", None)
    elif "filter_subject" in change:
        merged.pop("filter_subjects", None)
    return merged


def _same_or_in_use(
    existing: dict[str, Any], wire: Mapping[str, Any], stream: str, name: str
) -> ConsumerInfo:
    config = existing["config"]
    if any(config.get(key) != value for key, value in wire.items()):
        error = NameInUseError(
            400,
            CONSUMER_EXISTS,
            "consumer already exists",
            js_api.consumer_in_use(stream, name),
        )
        raise with_differences(error, differing(config, wire))
    return _to_info(existing)


def _to_info(answer: dict[str, Any]) -> ConsumerInfo:
    return from_wire(ConsumerInfo, answer)

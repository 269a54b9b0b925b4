"""Consumers: make, change, bind, list, delete (row J8); the handles that they give.

Contract: a configuration is given as for streams (see `streams`). `name` and `durable_name` may
be given alone or equal; a consumer with neither is named by the server. `ack_policy` is
"explicit" unless said otherwise. Creating never changes a consumer that exists (servers of 2.10
and newer hold that themselves; older ones are asked first).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from jetspark.errors import (
    ConfigError,
    ConsumerIsPushError,
    ConsumerNotFoundError,
    NameInUseError,
    RequestTimeoutError,
)
from jetspark.jetstream.api import Api
from jetspark.jetstream.document import Configuration, config_to_wire, from_wire
from jetspark.jetstream.documents import ConsumerConfig, ConsumerInfo
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.paging import Paged
from jetspark.jetstream.pull import FetchResult, Pull
from jetspark.jetstream.requirements import check_consumer
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.wire import js_api
from jetspark.wire.status import CONFLICT

ConsumerConfigLike: TypeAlias = ConsumerConfig | Configuration


class Consumer:
    """A consumer of a stream, by name. Has no state besides `cached_info`."""

    __slots__ = ("_api", "cached_info")

    def __init__(self, jetstream_api: Api, info: ConsumerInfo) -> None:
        self._api = jetstream_api
        self.cached_info = info
        """What the last call of `info`, or the one that made this object, returned."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.cached_info.stream_name

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.cached_info.name

    async def info(self) -> ConsumerInfo:
        """The consumer as it is now. Raises ConsumerNotFoundError."""
        self.cached_info = await _info(self._api, self.stream, self.name)
        return self.cached_info

    async def delete(self) -> None:
        """Delete the consumer. Raises ConsumerNotFoundError."""
        await self._api.call(js_api.CONSUMER_DELETE, stream=self.stream, consumer=self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(stream={self.stream!r}, name={self.name!r})"


class PullConsumer(Consumer):
    """A consumer that delivers when it is asked."""

    __slots__ = ()

    async def fetch(
        self,
        batch: int,
        *,
        timeout: float | None = None,
        max_bytes: int | None = None,
        heartbeat: float | None = None,
    ) -> FetchResult:
        """Up to `batch` messages, as a list that also tells how the fetch ended.

        Without `timeout`: what can be delivered now, at once; an empty list when nothing can. With
        `timeout` (seconds): waits until the batch is full or the time is over; the server is told
        10 ms less, so that it ends first. `max_bytes`: stop before this many bytes of messages
        (subjects and headers count). `heartbeat` (seconds, at most half of `timeout`): a server
        that says nothing for twice as long is reported by MissedHeartbeatError instead of at
        the timeout; the clock of it stands still while the connection is down.

        When messages came, they are returned, and what went wrong after them is in `.error`.
        When none came: an empty list if the server says that nothing is there; otherwise raises
        RequestTimeoutError, MissedHeartbeatError, ConsumerNotFoundError, ConsumerDeletedError,
        ConsumerIsPushError, PullError or ConnectionClosedError; ConfigError before anything is
        sent. A lost connection does not end a fetch that has a timeout: it is asked for again.
        """
        return await Pull(
            self._api, self.stream, self.name, batch, timeout, max_bytes, heartbeat
        ).run()

    async def next(self, timeout: float | None = None) -> JsMsg:
        """One message, within `timeout` seconds (default: the context's).

        Raises RequestTimeoutError when none came, and what `fetch` raises.
        """
        seconds = self._api.timeout if timeout is None else timeout
        result = await self.fetch(1, timeout=seconds)
        if not result:
            raise RequestTimeoutError(
                f"No message from consumer {self.name!r} within {seconds:g} s."
            )
        return result[0]


class PushConsumer(Consumer):
    """A consumer that delivers to a subject: subscribe to it with the core client."""

    __slots__ = ()

    @property
    def deliver_subject(self) -> str:
        """Where it delivers."""
        return self.cached_info.config.deliver_subject or ""


class ConsumerCalls:
    """The part of JetStream that is about consumers."""

    _api: Api

    async def create_consumer(
        self, stream: str, config: ConsumerConfigLike | None = None, /, **options: Any
    ) -> PullConsumer:
        """Make a pull consumer. Options are the fields of ConsumerConfig.

        One that exists with the same configuration is bound; with another one, NameInUseError.
        Raises StreamNotFoundError.
        """
        wire = _checked(self._api, stream, config, options)
        if wire.get("deliver_subject"):
            raise ConfigError("deliver_subject makes a push consumer: use create_push_consumer.")
        return PullConsumer(self._api, await self._create(stream, wire))

    async def create_push_consumer(
        self, stream: str, config: ConsumerConfigLike | None = None, /, **options: Any
    ) -> PushConsumer:
        """Make a push consumer; `deliver_subject` is required. Otherwise as create_consumer."""
        wire = _checked(self._api, stream, config, options)
        if not wire.get("deliver_subject"):
            raise ConfigError("A push consumer needs deliver_subject.")
        return PushConsumer(self._api, await self._create(stream, wire))

    async def update_consumer(
        self, stream: str, config: ConsumerConfigLike | None = None, /, **options: Any
    ) -> ConsumerInfo:
        """Change a consumer; what is not named keeps its value. A name is required.

        The current configuration is read first, so of two updates at the same moment one may
        undo the other. Raises ConsumerNotFoundError.
        """
        wire = _checked(self._api, stream, config, options, defaults={})
        name = _name_of(wire)
        if name is None:
            raise ConfigError("Which consumer? Give its name.")
        answer = await self._api.call(js_api.CONSUMER_INFO, stream=stream, consumer=name)
        return await self._send(stream, _merged(answer["config"], wire), "update")

    async def create_or_update_consumer(
        self, stream: str, config: ConsumerConfigLike | None = None, /, **options: Any
    ) -> ConsumerInfo:
        """update_consumer, or a new consumer, pull or push, when there is none of that name."""
        wire = _checked(self._api, stream, config, options, defaults={})
        if _name_of(wire) is not None:
            try:
                return await self.update_consumer(stream, wire)
            except ConsumerNotFoundError:
                pass
        return await self._create(stream, {**_DEFAULTS, **wire})

    async def consumer(self, stream: str, name: str) -> PullConsumer:
        """Bind to a pull consumer that exists.

        Raises ConsumerNotFoundError, and ConsumerIsPushError for a push consumer.
        """
        info = await _info(self._api, stream, name)
        if info.config.deliver_subject:
            raise ConsumerIsPushError(CONFLICT, "Consumer is push based")
        return PullConsumer(self._api, info)

    async def push_consumer(self, stream: str, name: str) -> PushConsumer:
        """Bind to a push consumer that exists. Raises ConsumerNotFoundError, ConfigError."""
        info = await _info(self._api, stream, name)
        if not info.config.deliver_subject:
            raise ConfigError(f'Consumer "{name}" of stream "{stream}" is a pull consumer.')
        return PushConsumer(self._api, info)

    async def consumer_info(self, stream: str, name: str) -> ConsumerInfo:
        """Configuration and state of a consumer. Raises ConsumerNotFoundError."""
        return await _info(self._api, stream, name)

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer. Raises ConsumerNotFoundError."""
        await self._api.call(js_api.CONSUMER_DELETE, stream=stream, consumer=name)

    def consumer_names(self, stream: str) -> Paged[str]:
        """The names of a stream's consumers."""
        check_name("stream", stream)
        return Paged(self._api, js_api.CONSUMER_NAMES, "consumers", str, {}, stream=stream)

    def consumers(self, stream: str) -> Paged[ConsumerInfo]:
        """A stream's consumers."""
        check_name("stream", stream)
        return Paged(self._api, js_api.CONSUMER_LIST, "consumers", _to_info, {}, stream=stream)

    async def _create(self, stream: str, wire: dict[str, Any]) -> ConsumerInfo:
        name = _name_of(wire)
        if name is not None and not self._api.server_at_least(2, 10):
            existing = await self._existing(stream, name)
            if existing is not None:
                return _same_or_in_use(existing, wire, stream, name)
        return await self._send(stream, wire, "create")

    async def _existing(self, stream: str, name: str) -> dict[str, Any] | None:
        try:
            return await self._api.call(js_api.CONSUMER_INFO, stream=stream, consumer=name)
        except ConsumerNotFoundError:
            return None

    async def _send(self, stream: str, wire: dict[str, Any], action: str) -> ConsumerInfo:
        body: dict[str, Any] = {"stream_name": stream, "config": wire}
        if self._api.server_at_least(2, 10):
            body["action"] = action
        name = _name_of(wire)
        if name is None:
            return _to_info(
                await self._api.call(js_api.CONSUMER_CREATE_UNNAMED, body, stream=stream)
            )
        # The server wants the name in the configuration too when it is in the subject.
        wire.setdefault("name", name)
        call, names = js_api.CONSUMER_CREATE, {"stream": stream, "consumer": name}
        single = wire.get("filter_subject")
        if single and "*" not in single and ">" not in single:
            # With the filter in the subject, permissions can be given by filter. A filter with
            # wildcards would make a subject that may not be published to (pedantic servers).
            call, names = js_api.CONSUMER_CREATE_FILTERED, {**names, "filter": single}
        return _to_info(await self._api.call(call, body, **names))


_DEFAULTS = {"ack_policy": "explicit"}


def _checked(
    jetstream_api: Api,
    stream: str,
    config: ConsumerConfigLike | None,
    options: dict[str, Any],
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
    check_consumer(wire, jetstream_api.server)
    return wire


def _name_of(wire: Mapping[str, Any]) -> str | None:
    return wire.get("name") or wire.get("durable_name")


def _merged(current: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The current configuration with the change on top; one kind of filter replaces the other."""
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
        raise NameInUseError(
            400,
            js_api.CONSUMER_EXISTS,
            "consumer already exists",
            f'Consumer "{name}" of stream "{stream}" exists with another configuration.',
        )
    return _to_info(existing)


async def _info(jetstream_api: Api, stream: str, name: str) -> ConsumerInfo:
    return _to_info(await jetstream_api.call(js_api.CONSUMER_INFO, stream=stream, consumer=name))


def _to_info(answer: dict[str, Any]) -> ConsumerInfo:
    return from_wire(ConsumerInfo, answer)

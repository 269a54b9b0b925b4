"""A consumer group without async; see `jetspark.groups.group`."""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.groups.group import (
    GeneratedConsumerGroup,
    GeneratedElasticGroup,
    GeneratedStaticGroup,
)
from jetspark.groups.group import ConsumerGroup as AsyncConsumerGroup
from jetspark.groups.group import ElasticGroup as AsyncElasticGroup
from jetspark.groups.group import StaticGroup as AsyncStaticGroup


class ConsumerGroup(GeneratedConsumerGroup):
    """What static and elastic groups have in common.

    For the errors of every call see `jetspark.groups.ConsumerGroup`.
    """

    def __init__(self, client: CallerSide, inner: AsyncConsumerGroup) -> None:
        self._client = client
        self._inner = inner


class StaticGroup(GeneratedStaticGroup, ConsumerGroup):
    """A group with fixed members, of a stream whose subjects begin with the partition."""

    _inner: AsyncStaticGroup

    def __init__(self, client: CallerSide, inner: AsyncStaticGroup) -> None:
        super().__init__(client, inner)


class ElasticGroup(GeneratedElasticGroup, ConsumerGroup):
    """A group whose members may change, of any stream."""

    _inner: AsyncElasticGroup

    def __init__(self, client: CallerSide, inner: AsyncElasticGroup) -> None:
        super().__init__(client, inner)

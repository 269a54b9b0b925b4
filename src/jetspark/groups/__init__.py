"""Partitioned consumer groups, in the stored form of orbit.go's `pcgroups`.

`JetStream.create_elastic_group` and `create_static_group` create them.
"""

from jetspark.groups.documents import (
    ElasticConfig,
    GroupConfig,
    MemberMapping,
    PartitioningFilter,
    StaticConfig,
)
from jetspark.groups.group import ConsumerGroup, ElasticGroup, GroupCalls, StaticGroup
from jetspark.groups.member import GroupMember, GroupMsg

__all__ = [
    "ConsumerGroup",
    "ElasticConfig",
    "ElasticGroup",
    "GroupCalls",
    "GroupConfig",
    "GroupMember",
    "GroupMsg",
    "MemberMapping",
    "PartitioningFilter",
    "StaticConfig",
    "StaticGroup",
]

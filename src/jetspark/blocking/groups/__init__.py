"""Partitioned consumer groups without async: the twins of `jetspark.groups`."""

from jetspark.blocking.groups.group import ConsumerGroup, ElasticGroup, StaticGroup
from jetspark.blocking.groups.member import GroupMember
from jetspark.blocking.groups.message import GroupMsg

__all__ = ["ConsumerGroup", "ElasticGroup", "GroupMember", "GroupMsg", "StaticGroup"]

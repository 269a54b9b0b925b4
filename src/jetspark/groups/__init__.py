"""Partitioned consumer groups, in the stored form of orbit.go's `pcgroups`.

`JetStream.consumer_groups` creates and finds them.
"""

from jetspark.groups.documents import ElasticConfig as ElasticConfig
from jetspark.groups.documents import GroupConfig as GroupConfig
from jetspark.groups.documents import MemberMapping as MemberMapping
from jetspark.groups.documents import PartitioningFilter as PartitioningFilter
from jetspark.groups.documents import StaticConfig as StaticConfig
from jetspark.groups.group import ConsumerGroup as ConsumerGroup
from jetspark.groups.group import ConsumerGroups as ConsumerGroups
from jetspark.groups.group import ElasticGroup as ElasticGroup
from jetspark.groups.group import GroupCalls as GroupCalls
from jetspark.groups.group import StaticGroup as StaticGroup
from jetspark.groups.member import GroupMember as GroupMember
from jetspark.groups.member import GroupMsg as GroupMsg

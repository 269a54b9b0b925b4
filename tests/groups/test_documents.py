"""What is stored, byte by byte as Go writes these structures, and who has which partition.

`partitioning_filters` and `partitioning_wildcards` have no omitempty there, so that a nil slice is
null; members, mappings and limits have it. The assignments are those of orbit.go's own tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from jetspark.documents.streams import Source, StreamConfig, SubjectTransform
from jetspark.errors import CodecError, ConfigError
from jetspark.groups import ElasticConfig, MemberMapping, PartitioningFilter, StaticConfig
from jetspark.groups.documents import (
    GroupLocation,
    checked_config,
    filters_of,
    is_group_stream,
    partitions_of,
)
from jetspark.wire.documents import encode_document

ELASTIC = GroupLocation("ORDERS", "cg", elastic=True)
STATIC = GroupLocation("ORDERS", "cg", elastic=False)

STORED = [
    (
        ELASTIC,
        b'{"max_members":4,"partitioning_filters":[{"filter":"foo.*","partitioning_wildcards":[1]}],'
        b'"members":["m1","m2"]}',
        ElasticConfig(4, [PartitioningFilter("foo.*", [1])], members=["m1", "m2"]),
    ),
    (
        ELASTIC,
        b'{"max_members":2,"partitioning_filters":null,"max_buffered_msg":10,'
        b'"max_buffered_bytes":1000,"member_mappings":[{"member":"a","partitions":[0,1]}]}',
        ElasticConfig(
            2,
            None,
            max_buffered_msg=10,
            max_buffered_bytes=1000,
            member_mappings=[MemberMapping("a", [0, 1])],
        ),
    ),
    (
        ELASTIC,
        b'{"max_members":2,"partitioning_filters":[{"filter":"x.>","partitioning_wildcards":null}]}',
        ElasticConfig(2, [PartitioningFilter("x.>")]),
    ),
    (
        STATIC,
        b'{"max_members":3,"filters":["a.*"],"members":["m1"]}',
        StaticConfig(3, ["a.*"], ["m1"]),
    ),
    (
        STATIC,
        b'{"max_members":1,"member_mappings":[{"member":"m1","partitions":[0]}]}',
        StaticConfig(1, member_mappings=[MemberMapping("m1", [0])]),
    ),
]


@pytest.mark.parametrize(("place", "stored", "config"), STORED)
def test_a_configuration_is_stored_as_go_does(
    place: GroupLocation, stored: bytes, config: ElasticConfig | StaticConfig
) -> None:
    assert encode_document(config) == stored
    assert place.decode(stored) == config


def test_the_parts_of_a_group_have_the_names_that_others_look_for() -> None:
    assert (ELASTIC.bucket, ELASTIC.key) == ("elastic-consumer-groups", "ORDERS.cg")
    assert (ELASTIC.source, ELASTIC.consumer("m1")) == ("ORDERS-cg", "m1")
    assert (STATIC.bucket, STATIC.key) == ("static-consumer-groups", "ORDERS.cg")
    assert (STATIC.source, STATIC.consumer("m1")) == ("ORDERS", "cg-m1")


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (6, ([0, 1], [2, 3], [4, 5])),
        (7, ([0, 1, 6], [2, 3], [4, 5])),
        (8, ([0, 1, 6], [2, 3, 7], [4, 5])),
        (2, ([0], [1], [])),
    ],
)
def test_partitions_are_shared_as_every_client_computes_them(
    partitions: int, expected: tuple[list[int], ...]
) -> None:
    config = ElasticConfig(
        partitions, [PartitioningFilter("foo.*.*.>", [1, 2])], members=["m3", "m1", "m2", "m1"]
    )
    assert tuple(partitions_of(config, name) for name in ("m1", "m2", "m3")) == expected
    assert filters_of(config, "m1") == [f"{number}.foo.*.*.>" for number in expected[0]]
    assert partitions_of(config, "m4") == []


def test_mappings_say_who_has_which_partition() -> None:
    config = StaticConfig(
        3, ["a"], member_mappings=[MemberMapping("x", [2, 0]), MemberMapping("y", [1])]
    )
    checked_config(config)
    assert filters_of(config, "x") == ["2.>", "0.>"]
    assert filters_of(config, "z") == []


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (
            PartitioningFilter("foo.*.*.>", [1, 2]),
            "{{Partition(4,1,2)}}.foo.{{Wildcard(1)}}.{{Wildcard(2)}}.>",
        ),
        (PartitioningFilter("foo.*"), "{{Partition(4)}}.foo.{{Wildcard(1)}}"),
        (PartitioningFilter(">", []), "{{Partition(4)}}.>"),
    ],
)
def test_a_filter_becomes_a_subject_transform(filter: PartitioningFilter, expected: str) -> None:
    assert filter.destination(4) == expected


@pytest.mark.parametrize(
    "config",
    [
        ElasticConfig(0, None),
        ElasticConfig(2, [PartitioningFilter("a.b")]),
        ElasticConfig(2, [PartitioningFilter("a.*", [2])]),
        ElasticConfig(2, [PartitioningFilter("a.*.*", [1, 1])]),
        ElasticConfig(2, None, members=["a"], member_mappings=[MemberMapping("a", [0, 1])]),
        ElasticConfig(2, None, members=["a.b"]),
        StaticConfig(2, member_mappings=[MemberMapping("a", [1, 1])]),
        StaticConfig(2, member_mappings=[MemberMapping("a", [1])]),
        StaticConfig(2, member_mappings=[MemberMapping("a", [0, 2])]),
        StaticConfig(2, member_mappings=[MemberMapping("a", [0]), MemberMapping("a", [1])]),
    ],
)
def test_impossible_configurations_are_refused(config: ElasticConfig | StaticConfig) -> None:
    with pytest.raises(ConfigError):
        checked_config(config)
    place = ELASTIC if isinstance(config, ElasticConfig) else STATIC
    with pytest.raises(CodecError, match="invalid configuration"):
        place.decode(encode_document(config))


@pytest.mark.parametrize(
    "arguments", [("r.*", 1), ("r.*", "1"), ("r.*", [1.5]), ("r.*", [True]), (5,)]
)
def test_what_other_members_could_not_read_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match=r"^Not a usable group: .*, got "):
        checked_config(ElasticConfig(2, [PartitioningFilter(*arguments)]))


@pytest.mark.parametrize(
    ("retention", "source", "dests", "is_one"),
    [
        ("workqueue", "ORDERS", ["{{Partition(6,1)}}.orders.{{Wildcard(1)}}"], True),
        ("workqueue", "ORDERS", ["{{partition(6)}}.>", "{{Partition(6)}}.a.>"], True),
        ("limits", "ORDERS", ["{{Partition(6)}}.>"], False),
        ("workqueue", "OTHER", ["{{Partition(6)}}.>"], False),
        ("workqueue", "ORDERS", ["{{Partition(6)}}.>", "mine.>"], False),
        ("workqueue", "ORDERS", None, False),
        ("workqueue", None, None, False),
    ],
)
def test_a_groups_stream_is_known_by_its_source(
    retention: str, source: str | None, dests: list[str] | None, is_one: bool
) -> None:
    transforms = [SubjectTransform(src=">", dest=dest) for dest in dests or ()]
    sources = source and [Source(name=source, subject_transforms=transforms or None)]
    stream = StreamConfig(name="ORDERS-cg", retention=retention, sources=sources or None)
    assert is_group_stream(ELASTIC, stream) is is_one

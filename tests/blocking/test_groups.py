"""Consumer groups without async."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest
from tests.conftest import NeedsServer, Unique

from jetspark.blocking.groups import ElasticGroup, GroupMsg
from jetspark.blocking.jetstream import JetStream
from jetspark.errors import RequestTimeoutError
from jetspark.groups import PartitioningFilter


@pytest.fixture(autouse=True)
def _groups(needs_server: NeedsServer) -> None:
    needs_server("2.11")


@pytest.fixture
def group(js: JetStream, unique: Unique) -> Iterator[ElasticGroup]:
    stream = unique("S")
    js.create_stream(name=stream, subjects=[f"{stream}.*"], storage="memory")
    group = js.consumer_groups(stream).create_elastic(
        "cg", max_members=4, filters=[PartitioningFilter(f"{stream}.*", [1])]
    )
    group.add_members("m1")
    for number in range(5):
        js.publish(f"{stream}.k{number}", b"%d" % number)
    yield group
    group.delete()
    js.delete_stream(stream)


def test_blocking_member_is_iterated(js: JetStream, group: ElasticGroup) -> None:
    assert js.consumer_groups(group.stream).elastic_names().all() == ["cg"]
    subjects = []
    with js.consumer_groups(group.stream).elastic("cg").consume("m1") as member:
        for message in member:
            subjects.append(message.subject)
            assert message.partition in group.partitions("m1")
            message.ack_sync()
            if len(subjects) == 5:
                break
        assert group.active_members().all() == ["m1"]
        with pytest.raises(RequestTimeoutError):
            member.next(0.1)
    assert subjects == [f"{group.stream}.k{number}" for number in range(5)]
    assert group.delete_members("m1") == []


def test_blocking_member_calls_back_and_may_be_stopped_there(group: ElasticGroup) -> None:
    taken: queue.Queue[str] = queue.Queue()

    def callback(message: GroupMsg) -> None:
        message.ack_sync()
        taken.put(message.subject)
        if message.data == b"4":
            member.stop()

    with group.consume("m1", callback=callback) as member:
        subjects = [taken.get(timeout=30) for _ in range(5)]
        member.wait_stopped()
    assert subjects == [f"{group.stream}.k{number}" for number in range(5)]

"""A feature that the server lacks is refused, and not ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jetspark.errors import UnsupportedByServerError
from jetspark.jetstream.documents import ConsumerConfig, Source, StreamConfig
from jetspark.jetstream.documents.document import field_names
from jetspark.jetstream.requirements import (
    CONSUMER_FIELDS,
    SOURCE_FIELDS,
    STREAM_FIELDS,
    check_consumer,
    check_stream,
)
from jetspark.wire.documents import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.full_client import Client, JetStream

OLD = ServerInfo(version="2.9.10")
NEW = ServerInfo(version="2.15.1")


def test_requirement_tables_name_existing_fields() -> None:
    assert STREAM_FIELDS.keys() <= set(field_names(StreamConfig))
    assert SOURCE_FIELDS.keys() <= set(field_names(Source))
    assert CONSUMER_FIELDS.keys() <= set(field_names(ConsumerConfig))


@pytest.mark.parametrize("name", STREAM_FIELDS)
def test_stream_field_of_a_newer_server_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedByServerError, match=f"{name} needs nats-server >= 2"):
        check_stream({name: "something"}, OLD)
    check_stream({name: "something"}, NEW)


@pytest.mark.parametrize("name", CONSUMER_FIELDS)
def test_consumer_field_of_a_newer_server_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedByServerError, match=name):
        check_consumer({name: "something"}, OLD)
    check_consumer({name: "something"}, NEW)


def test_values_equal_to_not_given_need_no_version() -> None:
    check_stream({"compression": "none", "allow_atomic": False, "metadata": {}}, OLD)
    check_stream({"mirror": {"name": "A"}, "sources": None}, OLD)
    check_consumer({"filter_subjects": [], "priority_policy": "none"}, OLD)


def test_values_and_sources_have_their_own_versions() -> None:
    with pytest.raises(UnsupportedByServerError, match="preferred"):
        check_stream({"placement": {"preferred": "n1"}}, OLD)
    middle = ServerInfo(version="2.11.4")
    with pytest.raises(UnsupportedByServerError, match="prioritized"):
        check_consumer({"priority_policy": "prioritized"}, middle)
    for wire in (
        {"mirror": {"consumer": {}, "subject_transforms": [1]}},
        {"sources": [{}, {"subject_transforms": [1]}]},
    ):
        with pytest.raises(UnsupportedByServerError, match="a source's subject_transforms"):
            check_stream(wire, OLD)


def test_fields_are_not_checked_for_an_unknown_server() -> None:
    check_stream({"allow_atomic": True}, None)
    check_consumer({"priority_groups": ["g"]}, None)


VALUES: dict[str, Any] = {
    "compression": "s2",
    "first_seq": 7,
    "metadata": {"k": "v"},
    "allow_msg_ttl": True,
    "allow_msg_counter": True,
    "allow_atomic": True,
    "allow_msg_schedules": True,
    "persist_mode": "async",
    "allow_batched": True,
}


@pytest.mark.parametrize("name", VALUES)
async def test_this_server_keeps_every_field_that_is_not_refused(
    js: JetStream, nc: Client, unique: Callable[[str], str], name: str
) -> None:
    stream = unique("S")
    options = {"name": stream, "subjects": [stream], name: VALUES[name]}
    assert nc.server_info is not None
    sent = nc.stats.out_msgs
    if nc.server_info.at_least(*STREAM_FIELDS[name]):
        made = (await js.create_stream(options)).config
        kept = getattr(made, name)
        assert VALUES[name].items() <= kept.items() if name == "metadata" else kept == VALUES[name]
        await js.delete_stream(stream)
    else:
        with pytest.raises(UnsupportedByServerError):
            await js.create_stream(options)
        assert nc.stats.out_msgs == sent

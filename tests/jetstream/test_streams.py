"""Streams on a real server."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeStream, NeedsServer, Unique

from jetspark import err_codes, errors
from jetspark.documents.document import exact_ns
from jetspark.documents.streams import StreamConfig
from jetspark.full_client import Client, JetStream


async def test_creating_a_stream_twice_makes_one(js: JetStream, unique: Unique) -> None:
    name = unique("S")
    config = StreamConfig(name=name, subjects=[f"{name}.>"], storage="memory")
    first = await js.create_stream(config)
    again = await js.create_stream(config)
    assert first.cached_info.did_create
    assert exact_ns(first.cached_info.created) == exact_ns(again.cached_info.created)
    with pytest.raises(errors.NameInUseError, match=name):
        await js.create_stream(config, max_msgs=5)
    await js.delete_stream(name)
    with pytest.raises(errors.StreamNotFoundError, match=name):
        await js.stream(name).info()


async def test_a_stream_with_a_subject_of_another_is_told(js: JetStream, unique: Unique) -> None:
    name = unique("S")
    await js.create_stream(name=name, subjects=[f"{name}.a"], storage="memory")
    await js.create_stream(name=f"{name}_X", subjects=[f"{name}.x"], storage="memory")
    wanted = {"name": f"{name}_X", "subjects": [f"{name}.*"]}
    says = rf"^'{name}\.\*' overlaps with a subject of stream \"{name}\"\.$"
    for call in (js.stream(f"{name}_X").update, js.create_or_update_stream):
        with pytest.raises(errors.APIError, match=says) as refused:
            await call(wanted)
        assert refused.value.err_code == err_codes.STREAM_SUBJECT_OVERLAP
    with pytest.raises(errors.APIError, match=says):
        await js.create_stream(wanted, name=f"{name}_Y", subjects=[f"{name}.*"])
    with pytest.raises(errors.APIError, match=f"^'{name}' overlaps .*{name}_Z"):
        await js.create_stream(name=f"{name}_Z", subjects=[name])
        await js.create_stream(name=name.lower(), subjects=[name])
    for made in (name, f"{name}_X", f"{name}_Z"):
        await js.delete_stream(made)


async def test_update_stream_keeps_options_not_given(js: JetStream, stream: str) -> None:
    before = await js.stream(stream).update(
        max_age=timedelta(hours=1), max_msgs=100, deny_purge=True
    )
    after = await js.stream(stream).update(description="new")
    assert after.config == before.config.replace(description="new")
    assert after.config.max_age == timedelta(hours=1)
    emptied = (await js.stream(stream).update(description="", max_msgs=-1)).config
    assert (emptied.description, emptied.max_msgs) == (None, -1)
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream(f"{stream}_NONE").update(max_msgs=1)
    made = await js.create_or_update_stream(name=f"{stream}_X", storage="memory")
    changed = await js.create_or_update_stream(name=f"{stream}_X", max_msgs=5)
    assert made.cached_info.did_create
    assert (changed.cached_info.config.storage, changed.cached_info.config.max_msgs) == (
        "memory",
        5,
    )
    await js.delete_stream(f"{stream}_X")


async def test_a_purge_with_a_wrong_number_purges_nothing(js: JetStream, stream: str) -> None:
    await js.publish(f"{stream}.a", b"1")
    for number in (math.nan, math.inf):
        for what in ("keep", "seq"):
            with pytest.raises(errors.ConfigError, match="is a whole number"):
                await js.stream(stream).purge(**{what: number})  # type: ignore[arg-type]
    for filter in (None, f"{stream}.a"):  # nothing is before the first
        assert await js.stream(stream).purge(filter=filter, seq=1) == 0
    assert (await js.stream(stream).info()).state.messages == 1
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream(f"{stream}_NONE").purge(seq=1)


async def test_purge_by_filter_keep_and_seq(js: JetStream, stream: str) -> None:
    for number in range(12):
        await js.publish(f"{stream}.{'ab'[number % 2]}", b"%d" % number)
    assert await js.stream(stream).purge(filter=f"{stream}.a", keep=4) == 2
    assert await js.stream(stream).purge(seq=7) == 4
    assert (await js.stream(stream).info()).state.first_seq == 7
    assert await js.stream(stream).purge(keep=3) == 3
    assert await js.stream(stream).purge() == 3
    with pytest.raises(errors.ConfigError, match="either keep or seq"):
        await js.stream(stream).purge(keep=1, seq=1)


async def test_stream_info_with_details(js: JetStream, stream: str) -> None:
    empty = (await js.stream(stream).info()).state
    assert (empty.messages, empty.first_ts, empty.last_ts) == (0, None, None)
    for number in range(4):
        await js.publish(f"{stream}.{number % 2}", b"x")
    await js.stream(stream).delete_msg(2)
    info = await js.stream(stream).info(deleted_details=True, subjects_filter=f"{stream}.*")
    assert info.state.deleted == [2]
    assert info.state.subjects == {f"{stream}.0": 2, f"{stream}.1": 1}
    assert info.state.num_subjects == 2
    assert info.extra == info.state.extra == {}
    plain = (await js.stream(stream).info()).state
    assert (plain.deleted, plain.subjects) == (None, None)


@pytest.mark.full
async def test_more_subjects_than_one_page(js: JetStream, stream: str) -> None:
    count = 100_500  # the server answers 100,000 at a time
    async with js.publisher() as publisher:
        for number in range(count):
            await publisher.publish(f"{stream}.{number}")
    info = await js.stream(stream).info(subjects_filter=">")
    assert info.state.subjects is not None
    assert len(info.state.subjects) == count


async def test_stream_lists_are_paged(js: JetStream, unique: Unique) -> None:
    prefix = unique("P")
    names = [f"{prefix}_{number:03}" for number in range(300)]  # a page of infos is 256
    for name in names:
        await js.create_stream(name=name, subjects=[f"{prefix}.{name}"], storage="memory")
    assert await js.stream_names(f"{prefix}.>").all() == names
    listed = js.streams(f"{prefix}.>")
    assert sorted([info.name async for info in listed]) == names
    assert (listed.missing, listed.offline) == ([], {})
    assert await js.stream_names(f"{prefix}.{names[5]}").all() == [names[5]]
    assert set(names) <= set(await js.stream_names().all())
    for name in names:
        await js.delete_stream(name)
    assert await js.streams(f"{prefix}.>").all() == []


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("erase", [False, True])
async def test_deleting_a_message_twice_raises(
    js: JetStream, make_stream: MakeStream, storage: str, erase: bool
) -> None:
    stream = await make_stream(storage=storage)
    await js.publish(f"{stream}.a", b"1")
    await js.publish(f"{stream}.a", b"2")
    await js.stream(stream).delete_msg(1, erase=erase)
    for gone in (1, 99):
        with pytest.raises(errors.MessageNotFoundError, match=f"{gone}"):
            await js.stream(stream).delete_msg(gone, erase=erase)
    await js.stream(stream).update(deny_delete=True)
    with pytest.raises(errors.APIError) as refused:
        await js.stream(stream).delete_msg(2)
    assert not isinstance(refused.value, errors.MessageNotFoundError)


async def test_wrong_stream_options_are_not_sent(js: JetStream, nc: Client) -> None:
    before = nc.stats.out_msgs
    for name in ("", "a.b", "a b", "*"):
        with pytest.raises(errors.BadNameError):
            await js.create_stream(name=name)
    with pytest.raises(errors.ConfigError, match="needs a name"):
        await js.create_stream(subjects=["a"])
    with pytest.raises(errors.BadSubjectError):
        await js.create_stream(name="S", subjects=["a..b"])
    with pytest.raises(TypeError, match="'subject'"):
        await js.create_stream(name="S", subject=["a"])  # type: ignore[call-arg]
    assert nc.stats.out_msgs == before


# -- straight from JSON --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"maxmessages": 5}, "no field 'maxmessages' of a configuration; did you mean 'max_msgs'?"),
        ({"placement": {"moon": 1}}, "The server knows no field 'moon' of a configuration."),
    ],
)
async def test_a_field_that_the_server_does_not_know_is_named_with_the_nearest(
    js: JetStream, stream: str, needs_server: NeedsServer, config: Any, sentence: str
) -> None:
    needs_server("2.12")  # older ones ignore it
    for call in (
        js.create_stream({"name": f"{stream}2", **config}),
        js.stream(stream).update({"name": stream, **config}),
    ):
        with pytest.raises(errors.APIError) as raised:
            await call
        assert str(raised.value).endswith(sentence)


async def test_stream_and_consumer_are_created_from_json_files(
    js: JetStream, unique: Unique, tmp_path: Path
) -> None:
    name = unique("J")
    file = tmp_path / "stream.json"
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "max_age": 5 * 10**9}
    file.write_text(json.dumps(config))
    made = await js.create_stream(file)
    assert (made.cached_info.config.subjects, made.cached_info.config.max_age) == (
        [f"{name}.>"],
        timedelta(seconds=5),
    )
    changed = await made.update(file, max_msgs=5)
    assert changed.config.max_msgs == 5
    consumer = tmp_path / "consumer.json"
    consumer.write_text('{"durable_name": "d", "ack_policy": "all", "max_waiting": 9}')
    created = (await js.stream(name).create_consumer(consumer)).cached_info.config
    assert (created.ack_policy, created.max_waiting) == ("all", 9)
    await js.delete_stream(name)


async def test_api_request_changes_neither_document_nor_answer(
    js: JetStream, nc: Client, unique: Unique, tmp_path: Path
) -> None:
    name = unique("J")
    file = tmp_path / "stream.json"
    file.write_text(f'{{"name": "{name}",\n "subjects": ["{name}"], "storage": "memory"}}')
    sent: list[bytes] = []
    spy = nc.subscribe(f"$JS.API.STREAM.CREATE.{name}", callback=lambda m: sent.append(m.data))
    await nc.flush()
    made = await js.api_request(f"STREAM.CREATE.{name}", file)
    assert made["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert made["config"]["name"] == name
    assert isinstance(made["created"], str)
    assert sent == [file.read_bytes()]
    spy.unsubscribe()
    assert (await js.api_request(f"STREAM.INFO.{name}"))["state"]["messages"] == 0
    # The legacy subject, which nothing else here uses.
    request = {"stream_name": name, "config": {"durable_name": "d", "ack_policy": "explicit"}}
    durable = await js.api_request(f"CONSUMER.DURABLE.CREATE.{name}.d", request)
    assert durable["type"] == "io.nats.jetstream.api.v1.consumer_create_response"
    assert durable["name"] == "d"
    names = await js.api_request(f"CONSUMER.NAMES.{name}", b'{"offset": 0}')
    assert names["consumers"] == ["d"]
    await js.api_request(f"STREAM.DELETE.{name}")


async def test_api_request_raises_typed_errors(js: JetStream, nc: Client) -> None:
    with pytest.raises(errors.StreamNotFoundError, match="stream not found"):
        await js.api_request("STREAM.INFO.NO_SUCH")
    with pytest.raises(errors.APIError):
        await js.api_request("STREAM.CREATE.A", {"name": "B"})
    before = nc.stats.out_msgs
    for subject in ("", "STREAM.*", "STREAM INFO"):
        with pytest.raises(errors.BadSubjectError):
            await js.api_request(subject)
    with pytest.raises(errors.ConfigError, match="a document in JSON"):
        await js.api_request("STREAM.LIST", "[]")
    assert nc.stats.out_msgs == before


async def test_a_stream_can_be_sealed(js: JetStream, stream: str) -> None:
    await js.publish(f"{stream}.a", b"x")
    sealed = await js.stream(stream).update(sealed=True)
    assert sealed.config.sealed
    assert sealed.config.deny_delete
    with pytest.raises(errors.APIError, match="sealed"):
        await js.publish(f"{stream}.a", b"y")
    with pytest.raises(errors.APIError):
        await js.stream(stream).purge()
    assert (await js.stream(stream).info()).state.messages == 1

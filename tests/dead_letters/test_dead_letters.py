"""Messages that a consumer gave up: stored with their place, once, and replayed."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conftest import Reported, Unique
from tests.dead_letters.conftest import Orders
from tests.jetstream.eventually import eventually
from tests.support.processes import first_line, python

from jetspark import errors
from jetspark.dead_letters.worker import Mover
from jetspark.full_client import JetStream, connect
from jetspark.jetstream import Stream
from jetspark.jetstream.message import JsMsg
from jetspark.server import NatsServer


async def test_a_message_that_is_given_up_is_stored_with_its_reason_and_place(
    orders: Orders,
) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    await orders.give_up("eu.1")
    await orders.give_up("us", data=b"bad address")
    async with orders.dead.worker() as worker:
        await eventually(lambda: worker.moved == 2)
    assert await orders.dead.waiting() == 0
    late, bad = await orders.dead.letters().all()
    assert (late.reason, late.text, late.deliveries) == ("max_deliver", None, 1)
    assert (bad.reason, bad.text, bad.deliveries) == ("terminated", "bad address", 1)
    for letter, rest, seq, data in ((late, "eu.1", 1, b"x"), (bad, "us", 2, b"bad address")):
        assert (letter.stream, letter.consumer) == (orders.name, "worker")
        assert (letter.stream_seq, letter.subject) == (seq, orders.subject(rest))
        assert (letter.data, letter.missing) == (data, None)
        assert letter.headers.to_dict() == {"Trace": [rest]}
        assert letter.published is not None
        assert before < letter.published <= letter.time + timedelta(seconds=2)


async def test_letters_are_chosen_by_stream_consumer_subject_and_reason(orders: Orders) -> None:
    await orders.give_up("eu.1", "eu.2", "us.1")
    await orders.give_up("eu.3", data=b"bad")
    assert await orders.dead.move() == 4

    async def seqs(**choice: Any) -> list[int]:
        return [one.stream_seq for one in await orders.dead.letters(**choice).all()]

    assert await seqs() == [1, 2, 3, 4]
    assert await seqs(stream=orders.name, consumer="worker") == [1, 2, 3, 4]
    assert await seqs(consumer="other") == []
    assert await seqs(subject=orders.subject("eu.*")) == [1, 2, 4]
    assert await seqs(reason="terminated") == [4]
    assert (await orders.dead.letter(2)).stream_seq == 2


async def test_replay_publishes_again_without_marks_of_the_first_publish(orders: Orders) -> None:
    js = orders.js
    await js.publish(
        orders.subject("eu"), b"x", headers={"Trace": "1"}, msg_id="first", expect_last_seq=0
    )
    async with orders.giving_up():
        await orders.waiting(1)
    await orders.give_up("us")
    assert await orders.dead.move() == 2
    (letter, _) = await orders.dead.letters().all()
    assert letter.headers.to_dict() == {
        "Trace": ["1"],
        "Nats-Msg-Id": ["first"],
        "Nats-Expected-Last-Sequence": ["0"],
    }
    assert await orders.dead.replay(subject=orders.subject("eu")) == (1, 0, 0, 0)
    again = await js.stream(orders.name).get(3)
    assert (again.subject, again.data) == (orders.subject("eu"), b"x")
    assert again.headers is not None
    found = again.headers.to_dict()
    assert found.pop("Nats-Msg-Id")[0].startswith(orders.dead.name)
    assert found == {"Trace": ["1"]}
    assert [one.subject for one in await orders.dead.letters().all()] == [orders.subject("us")]
    assert await orders.dead.replay(to=orders.subject("elsewhere"), keep=True) == (1, 0, 0, 0)
    assert (await js.stream(orders.name).get(4)).subject == orders.subject("elsewhere")
    # Made again, as after a kill: the stream knows it.
    assert await orders.dead.replay(to=orders.subject("elsewhere")) == (0, 0, 0, 1)
    assert (await js.stream(orders.name).info()).state.last_seq == 4
    assert await orders.dead.letters().all() == []


async def test_a_replay_to_another_subject_is_another_message(orders: Orders) -> None:
    await orders.bury("eu")
    assert await orders.dead.replay(to=orders.subject("test"), keep=True) == (1, 0, 0, 0)
    with pytest.raises(errors.NoStreamResponseError):
        await orders.dead.replay(to="nobody.listens.here")
    assert len(await orders.dead.letters().all()) == 1
    assert await orders.dead.replay() == (1, 0, 0, 0)
    assert (await orders.js.stream(orders.name).get(3)).subject == orders.subject("eu")
    assert await orders.dead.letters().all() == []


async def test_a_letter_stays_if_its_duplicate_is_gone(orders: Orders, reported: Reported) -> None:
    await orders.bury("eu", "us")
    assert await orders.dead.replay(keep=True) == (2, 0, 0, 0)
    await orders.js.stream(orders.name).delete_msg(3)
    assert await orders.dead.replay() == (0, 0, 1, 1)
    assert "the stream's duplicate window" in str(reported.pop())
    (left,) = await orders.dead.letters().all()
    assert left.subject == orders.subject("eu")
    # Its id, and other content: somebody else's message.
    letter = dataclasses.replace(left, data=b"another", subject=orders.subject("us"))
    await orders.dead.replay_letter(left, to=orders.subject("x"), keep=True)
    with pytest.raises(errors.NotStoredError, match="Letter 1 stays"):
        await orders.dead.replay_letter(letter, to=orders.subject("x"))
    assert len(await orders.dead.letters().all()) == 1


async def test_an_original_stays_if_its_letter_is_gone(orders: Orders, reported: Reported) -> None:
    await orders.give_up("eu")
    (advisory,) = await (await orders.js.stream(orders.dead.advisories).consumer("worker")).fetch(1)
    mover = Mover(orders.js, orders.dead.name, remove_originals=False)
    assert await mover.move(advisory)
    await orders.js.stream(orders.dead.name).purge()
    # A second advisory about the message: the stream of the letters calls its letter a duplicate.
    mover = Mover(orders.js, orders.dead.name, remove_originals=True)
    assert not await mover.move(advisory)
    assert "the message is not removed" in str(reported[0])
    assert (await orders.js.stream(orders.name).get(1)).data == b"x"


async def test_other_messages_are_reported_and_left_out(orders: Orders, reported: Reported) -> None:
    await orders.js.publish(f"_dead.{orders.dead.name}.a.b.c", b"no letter")
    await orders.give_up("eu")
    await orders.dead.move()
    assert await orders.dead.replay(to=orders.subject("again")) == (1, 0, 0, 0)
    why = "Message 1 is not a dead letter: it has no header Dead-Letter-Reason."
    assert str(reported[0]) == why


async def test_letters_are_not_replayed_to_letters_or_api(js: JetStream, orders: Orders) -> None:
    (letter,) = await orders.bury("eu")
    dead = orders.dead.name
    advisory = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{orders.name}.worker"
    own = (await js.stream(dead).get(letter.seq)).subject
    for to in (own, f"_dead.{dead}.foo", "_dead.OTHER.a.b.c", advisory):
        for replay in (orders.dead.replay(to=to), orders.dead.replay_letter(letter, to=to)):
            with pytest.raises(errors.ConfigError, match="not replayed to"):
                await replay
    # A letter that was given up itself: in its own place it would be no letter any more.
    with pytest.raises(errors.ConfigError, match="subject of dead letters"):
        await orders.dead.replay_letter(dataclasses.replace(letter, subject=own))
    assert await orders.dead.letters().all() == [letter]
    assert (await js.stream(dead).info()).state.last_seq == letter.seq
    assert await orders.dead.waiting() == 0


async def test_a_choice_without_watch_and_letter_is_refused(js: JetStream, orders: Orders) -> None:
    dead = orders.dead
    refusal = rf"'NOPE', .*: {orders.name} > \*\."
    for call in (dead.replay(stream="NOPE"), dead.letters(stream="NOPE").all()):
        with pytest.raises(errors.ConfigError, match=refusal):
            await call
    await orders.give_up("eu")
    await dead.move()
    with pytest.raises(errors.ConfigError, match=refusal):
        await dead.replay(stream="NOPE")
    assert await dead.replay(consumer="other") == (0, 0, 0, 0)
    await js.create_or_update_dead_letters(
        dead.name, orders.name, consumers="other", storage="memory"
    )
    assert len(await dead.letters(consumer="worker").all()) == 1  # of a consumer watched before
    with pytest.raises(errors.ConfigError, match=r"'slip', .* > other\."):
        await dead.replay(consumer="slip")
    assert await dead.replay(stream=orders.name) == (1, 0, 0, 0)
    assert await dead.replay(stream=dead.advisories, consumer="worker") == (0, 0, 0, 0)


async def test_a_message_that_is_gone_leaves_its_place(orders: Orders) -> None:
    await orders.give_up("eu", "us")
    await orders.js.stream(orders.name).delete_msg(1)
    assert await orders.dead.move() == 2
    gone, there = await orders.dead.letters().all()
    assert (gone.missing, gone.subject, gone.data) == ("gone", None, b"")
    assert (gone.stream, gone.consumer, gone.stream_seq) == (orders.name, "worker", 1)
    assert there.missing is None
    with pytest.raises(errors.MessageNotFoundError, match="has no payload"):
        await orders.dead.replay_letter(gone)
    assert await orders.dead.replay() == (1, 1, 0, 0)
    assert await orders.dead.letters().all() == [gone]
    await orders.dead.delete(gone)
    assert await orders.dead.letters().all() == []


async def test_a_younger_message_is_gone(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream was made anew meanwhile: its message 1 is another one."""
    monkeypatch.setattr("jetspark.dead_letters.worker._CLOCKS", timedelta(0))
    await orders.give_up("eu")
    await orders.js.delete_stream(orders.name)
    await orders.js.create_stream(name=orders.name, subjects=[f"{orders.name}.>"])
    await orders.js.publish(orders.subject("new"), b"another")
    assert await orders.dead.move() == 1
    (letter,) = await orders.dead.letters().all()
    assert (letter.missing, letter.data) == ("gone", b"")


async def test_a_message_without_room_for_headers_is_stored_without_payload(
    make_server: Callable[..., NatsServer],
) -> None:
    server = make_server("max_payload: 1000")
    async with connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        await js.stream("S").create_consumer(durable_name="worker", max_deliver=1)
        orders = Orders(js, "S", await js.create_or_update_dead_letters("DEAD", "S"))
        await js.publish("s", b"x" * 990)
        async with orders.giving_up():
            await orders.waiting(1)
        assert await orders.dead.move(remove_originals=True) == 1
        (letter,) = await orders.dead.letters().all()
        assert (letter.missing, letter.subject) == ("too large", "s")
        assert len((await js.stream("S").get(letter.stream_seq)).data) == 990  # not removed


async def test_originals_are_removed_on_request(make_orders: Any) -> None:
    orders: Orders = await make_orders(retention="workqueue")
    await orders.bury("eu")
    assert (await orders.js.stream(orders.name).info()).state.messages == 1
    await orders.give_up("us")
    await orders.dead.move(remove_originals=True)
    assert [one.data for one in await orders.dead.letters().all()] == [b"x", b"x"]
    with pytest.raises(errors.MessageNotFoundError):
        await orders.js.stream(orders.name).get(2)


async def test_a_replay_into_a_work_queue_takes_the_place_of_the_original(make_orders: Any) -> None:
    orders: Orders = await make_orders(retention="workqueue")
    await orders.bury("eu", "us")
    assert (await orders.dead.replay(subject=orders.subject("eu"))).replayed == 1
    assert (await orders.dead.replay(subject=orders.subject("us"), keep=True)).replayed == 1
    state = (await orders.js.stream(orders.name).info(subjects_filter=">")).state
    assert state.subjects == {orders.subject("eu"): 1, orders.subject("us"): 1}
    assert state.first_seq == 3


async def test_a_replay_deletes_no_other_message_of_that_sequence(make_orders: Any) -> None:
    orders: Orders = await make_orders(retention="workqueue")
    await orders.bury("eu")
    await orders.js.delete_stream(orders.name)
    subjects = [f"{orders.name}.>"]
    await orders.js.create_stream(name=orders.name, subjects=subjects, retention="workqueue")
    await orders.js.publish(orders.subject("new"), b"x")
    assert (await orders.dead.replay()).replayed == 1
    assert (await orders.js.stream(orders.name).info()).state.messages == 2


async def test_a_letter_whose_advisory_was_not_acknowledged_is_not_repeated(
    orders: Orders, reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker ends between storing the letter and acknowledging, for longer than the server
    remembers message ids."""
    dead = orders.dead
    await orders.js.stream(dead.name).update(duplicate_window=timedelta(milliseconds=100))
    await (await orders.js.stream(dead.advisories).consumer("worker")).update(
        ack_wait=timedelta(seconds=1)
    )
    await orders.give_up("eu")
    with monkeypatch.context() as patch:

        async def lost(self: JsMsg, *, timeout: object = None) -> None:
            raise errors.RequestTimeoutError("lost")

        patch.setattr(JsMsg, "ack_sync", lost)
        assert await dead.move() == 1
    assert [str(one) for one in reported] == ["lost"]
    await orders.js.stream(orders.name).delete_msg(1)  # so that it looks like another death now
    async with dead.worker() as worker:
        await eventually(orders.none_waits)
        assert worker.moved == 0
    assert len(await dead.letters().all()) == 1


async def test_what_fails_is_reported_and_tried_again(orders: Orders, reported: Reported) -> None:
    await orders.js.stream(orders.dead.name).update(max_msg_size=10)
    await orders.give_up("eu", data=b"a long payload of some bytes")
    async with orders.dead.worker() as worker:
        await eventually(lambda: reported)
        assert worker.moved == 0
        await orders.js.stream(orders.dead.name).update(max_msg_size=-1)
        await eventually(lambda: worker.moved == 1)
    assert "exceeds maximum" in str(reported[0])
    assert len(await orders.dead.letters().all()) == 1


async def test_what_is_no_advisory_becomes_a_letter(orders: Orders, reported: Reported) -> None:
    subject = f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{orders.name}.worker"
    death = (
        b'{"type": "io.nats.jetstream.advisory.v1.terminated", "id": "i", "stream": "%b", '
        b'"consumer": "c", "stream_seq": %d, "consumer_seq": 1, "deliveries": 1}'
    )
    all_forged = [b"", b"{}", b'{"type": "x"}', b"\xff", b'{"stream": 1}', b'{"type": "\xff"}']
    all_forged += [b'{"a":' * 50_000, death % (b"no name", 1), death % (b"S" * 5000, 1)]
    all_forged += [death % (b"S", 0), death % (b"S", 10**30)]
    for forged in all_forged:
        await orders.js.publish(subject, forged, headers={"Trace": "1"})
    assert await orders.dead.move() == len(all_forged)
    assert await orders.dead.waiting() == 0
    place = f'Message 1 of "{orders.dead.advisories}" is not an advisory, and is now a letter'
    assert str(reported[0]).startswith(place)
    assert len(reported) == len(all_forged)
    letters = await orders.dead.letters(stream=orders.dead.advisories, consumer="worker").all()
    assert [one.data for one in letters] == all_forged
    for letter in letters:
        assert (letter.reason, letter.subject) == ("terminated", subject)
        assert letter.headers.to_dict() == {"Trace": ["1"]}
    # A worker that can read it may have come.
    count = len(all_forged)
    assert await orders.dead.replay() == (count, 0, 0, 0)
    assert await orders.dead.waiting() == count
    assert await orders.dead.move(remove_originals=True) == count
    found = [one.stream_seq for one in await orders.dead.letters().all()]
    assert found == list(range(count + 1, 2 * count + 1))


_WORKER = """
import asyncio, sys, jetspark
async def main():
    async with jetspark.connect(sys.argv[1]) as nc:
        dead = await nc.jetstream(timeout=20).dead_letters(sys.argv[2])
        async with dead.worker() as worker:
            print("ready", flush=True)
            await worker.wait_stopped()
asyncio.run(main())
"""


@pytest.mark.full
async def test_killed_workers_neither_lose_nor_repeat(
    orders: Orders, shared_server: NatsServer
) -> None:
    count, kills = 400, 6
    chance = random.Random(7)
    dead = orders.dead
    await (await orders.js.stream(dead.advisories).consumer("worker")).update(
        ack_wait=timedelta(seconds=1)
    )
    async with orders.js.publisher() as publisher:
        for number in range(count):
            await publisher.publish(orders.subject(str(number)), b"%d" % number)
    async with orders.giving_up():
        for turn in range(kills):
            with python(_WORKER, shared_server.url, dead.name) as process:
                assert await asyncio.to_thread(first_line, process) == "ready"
                wanted = count * (turn + 1) // (kills + 1) + chance.randrange(9)

                async def so_far(wanted: int = wanted) -> bool:
                    return (await orders.js.stream(dead.name).info()).state.messages >= wanted

                await eventually(so_far, within=60)
                process.send_signal(signal.SIGKILL)
                process.wait()
        async with dead.worker():

            async def all_moved() -> bool:
                found = (await orders.js.stream(dead.name).info()).state.messages
                return found >= count and await dead.waiting() == 0

            await eventually(all_moved, within=60)
    seen = Counter(one.stream_seq for one in await dead.letters().all())
    assert seen == Counter(range(1, count + 1))


async def test_several_workers_share(orders: Orders) -> None:
    await orders.give_up(*(str(number) for number in range(60)))
    async with orders.dead.worker() as one, orders.dead.worker() as other:
        await eventually(lambda: one.moved + other.moved == 60)
    assert len(await orders.dead.letters().all()) == 60


async def test_made_again_they_take_in_more(js: JetStream, orders: Orders, stream: str) -> None:
    await js.stream(stream).create_consumer(durable_name="worker", max_deliver=1)
    await orders.give_up("eu")
    dead = await js.create_or_update_dead_letters(
        orders.dead.name, [orders.name, stream], storage="memory"
    )
    await Orders(js, stream, dead).give_up("us")
    assert await dead.move() == 2
    assert [one.stream for one in await dead.letters().all()] == [orders.name, stream]


async def test_only_dead_letters_of_the_chosen_consumers(
    js: JetStream, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{stream}_DEAD"
    for streams, consumers in ((stream, "a"), ([stream, stream], ["a", "a"])):
        dead = await js.create_or_update_dead_letters(
            name, streams, consumers=consumers, storage="memory"
        )
        assert dead.advisories == f"{name}_ADVISORIES"
        subjects = (await js.stream(dead.advisories).info()).config.subjects or []
        assert all(subject.endswith(f".{stream}.a") for subject in subjects)
        assert len(subjects) == len(set(subjects)) > 0
        await js.delete_dead_letters(name)
        with pytest.raises(errors.StreamNotFoundError):
            await js.dead_letters(name)

    async def refused(*_: object, **__: object) -> None:
        raise errors.APIError(500, 10023, "insufficient resources")

    monkeypatch.setattr(Stream, "create_or_update_consumer", refused)
    with pytest.raises(errors.APIError, match="insufficient"):
        await js.create_or_update_dead_letters(name, stream, storage="memory")
    with pytest.raises(errors.StreamNotFoundError, match=f"{stream}_TYPO"):
        await js.create_or_update_dead_letters(name, f"{stream}_TYPO")
    for left in (name, f"{name}_ADVISORIES"):
        with pytest.raises(errors.StreamNotFoundError):
            await js.stream(left).info()


@pytest.mark.parametrize(
    ("retention", "subjects"),
    [
        ("workqueue", ["{}.a.b"]),
        ("workqueue", ["{}"]),
        ("limits", ["{}.a.b"]),
        ("limits", ["$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{}.*"]),
        ("workqueue", ["$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{}.*", "{}.a.b"]),
    ],
)
async def test_another_stream_of_the_name_is_neither_taken_nor_deleted(
    js: JetStream, orders: Orders, unique: Unique, retention: str, subjects: list[str]
) -> None:
    name = unique("D")
    foreign: dict[str, Any] = {"retention": retention, "storage": "memory"}
    taken = [subject.format(name) for subject in subjects]
    await js.create_stream(name=f"{name}_ADVISORIES", subjects=taken, **foreign)
    before = (await js.stream(f"{name}_ADVISORIES").info()).config
    with pytest.raises(errors.ConfigError, match=f'another stream "{name}_ADVISORIES"'):
        await js.create_or_update_dead_letters(name, orders.name, storage="memory")
    assert (await js.stream(f"{name}_ADVISORIES").info()).config == before
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream(name).info()
    # One that was made in place of the advisories.
    await js.delete_stream(orders.dead.advisories)
    await js.create_stream(name=orders.dead.advisories, subjects=[f"{name}.c"], **foreign)
    await js.delete_dead_letters(orders.dead.name)
    assert (await js.stream(orders.dead.advisories).info()).config.subjects == [f"{name}.c"]
    for stream in (orders.dead.advisories, f"{name}_ADVISORIES"):
        await js.delete_stream(stream)
    await js.create_or_update_dead_letters(orders.dead.name, orders.name)  # for the fixture


async def test_dead_letters_that_would_come_back_to_themselves_are_refused(
    js: JetStream, orders: Orders, unique: Unique
) -> None:
    one, two, three = (unique("D") for _ in range(3))
    for own in (one, f"{one}_ADVISORIES"):
        with pytest.raises(errors.ConfigError, match=f'cannot watch stream "{own}"'):
            await js.create_or_update_dead_letters(one, own)
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream(one).info()
    first = orders.dead.name
    await js.create_or_update_dead_letters(two, first, storage="memory")
    await js.create_or_update_dead_letters(three, f"{two}_ADVISORIES", storage="memory")
    for dead, watched in ((first, three), (two, three), (first, two)):
        with pytest.raises(errors.ConfigError, match=f'cannot watch stream "{watched}"'):
            await js.create_or_update_dead_letters(dead, watched, storage="memory")
    for name in (two, three):
        await js.delete_dead_letters(name)


async def test_no_other_stream_is_taken_for_dead_letters(js: JetStream, orders: Orders) -> None:
    stream, more = orders.name, f"{orders.name}_MORE"
    mistake: Any = {"subjects": ["x"]}
    for said, call in (
        ("not a stream of", js.dead_letters(stream)),
        ("not a stream of", js.delete_dead_letters(stream)),
        ("not a stream of", js.create_or_update_dead_letters(stream, "ORDERS")),
        ("stores advisories on", js.create_or_update_dead_letters(more, [stream])),
        ("decides on subjects", js.create_or_update_dead_letters("D", "ORDERS", **mistake)),
        ("streams is empty", js.create_or_update_dead_letters("D", [])),
    ):
        with pytest.raises(errors.ConfigError, match=said):
            await call
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream(more).info()


async def test_what_ends_a_worker_is_raised_at_its_end(orders: Orders, reported: Reported) -> None:
    with pytest.raises(errors.ConsumerDeletedError):
        async with orders.dead.worker():
            await orders.delete_pulled_consumer()
            await eventually(lambda: reported)
    with pytest.raises(errors.ConsumerNotFoundError):
        await orders.dead.worker().__aenter__()
    dead = await orders.js.create_or_update_dead_letters(
        orders.dead.name, orders.name, storage="memory"
    )
    worker = dead.worker()
    with pytest.raises(errors.ConfigError, match="block is entered"):
        await worker.wait_stopped()
    async with worker:
        await orders.delete_pulled_consumer()
        with pytest.raises(errors.ConsumerDeletedError):
            await asyncio.wait_for(worker.wait_stopped(), 30)
    with pytest.raises(errors.ConfigError, match="only once"):
        await worker.__aenter__()
    await orders.js.delete_stream(dead.advisories)
    with pytest.raises(errors.StreamNotFoundError):
        await dead.move()
    dead = await orders.js.create_or_update_dead_letters(dead.name, orders.name, storage="memory")
    assert await dead.move() == 0

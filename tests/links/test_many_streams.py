"""The facts of many streams, asked for together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.support.streams import Admin, numbered

from jetspark.connection.options import make_options
from jetspark.links.link import connect
from jetspark.links.many_streams import fetch_message_times, fetch_stream_facts
from jetspark.links.stream_api import StreamAPI
from jetspark.server import NatsServer
from jetspark.timestamps import parse_isotime
from jetspark.wire.kernel import MessageFrame

_STREAMS = 150  # more than are asked for at once


@pytest.fixture
def names(admin: Admin, unique: Callable[[str], str]) -> list[str]:
    stem = unique("MANY")
    names = [f"{stem}_{number:03}" for number in range(_STREAMS)]
    for number, name in enumerate(names):
        admin.create(name, name)
        if number % 3:
            admin.fill(numbered(name, number % 3))
    return names


@pytest.fixture
def api(shared_server: NatsServer) -> Iterator[StreamAPI]:
    with connect(make_options(shared_server.url)) as link:
        yield StreamAPI(link)


def test_many_streams_have_the_facts_of_each_and_those_missing_are_named(
    api: StreamAPI, names: list[str]
) -> None:
    wanted = [*names[:70], f"{names[0]}_X", *names[70:]]
    facts, missing = fetch_stream_facts(api, wanted)
    assert list(facts) == names
    assert facts == {name: api.stream(name) for name in names}
    assert [facts[name].last_seq for name in names[:4]] == [0, 1, 2, 0]
    assert all(api.link.leader_terms[name].led_since(0.0) for name in names)
    assert list(missing) == [f"{names[0]}_X"]
    assert f'"{names[0]}_X" not found' in str(missing[f"{names[0]}_X"])


def test_a_stream_whose_answer_does_not_come_is_asked_alone(
    api: StreamAPI, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = api.link.replies

    def every_other(subjects: list[str], silence: float) -> Iterator[object]:
        for reply in together(subjects, silence):
            if reply[0] % 2:
                yield reply

    monkeypatch.setattr(api.link, "replies", every_other)
    assert list(fetch_stream_facts(api, names)[0]) == names


def test_times_of_messages_are_asked_together_and_what_is_missing_is_left_out(
    api: StreamAPI, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fetch_message_times(api, {**dict.fromkeys(names, 1), f"{names[0]}_X": 1})
    facts = {name: one for name, one in fetch_stream_facts(api, names)[0].items() if one.messages}
    assert found == {name: parse_isotime(one.oldest) for name, one in facts.items()}
    refusal = b'{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","error":{"code":503,'

    def refused(
        subjects: list[str], silence: float, **_: object
    ) -> Iterator[tuple[int, MessageFrame, float]]:
        for number in range(len(subjects)):
            payload = refusal + b'"err_code":10008,"description":"unavailable"}}'
            yield number, MessageFrame(1, b"s", None, None, payload), 0.0

    monkeypatch.setattr(api.link, "replies", refused)
    assert fetch_message_times(api, dict.fromkeys(names, 1)) == found  # asked again alone


def test_requests_without_answers_end_after_the_silence(api: StreamAPI) -> None:
    assert list(api.link.replies(["nobody.there"] * 200, 5.0)) == []  # each has "no responders"
    sid = api.link.subscribe("silent.>")
    assert list(api.link.replies(["silent.one"], 0.05)) == []
    api.link.unsubscribe(sid)
    assert api.link.check()

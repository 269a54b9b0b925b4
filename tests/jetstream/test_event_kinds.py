"""Reading events and choosing subjects: no server needed."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.documents import events
from jetspark.documents.document import exact_ns, to_wire
from jetspark.documents.events import EVENT_TYPES, Event, EventKind, event_subjects, parse_event
from jetspark.errors import JetStreamError
from jetspark.subjects import subject_matches, subjects_overlap
from jetspark.wire.js_api import names_of

BASE = {"id": "gR9J6KABMm7YQBQ0O9ub2I", "timestamp": "2026-11-21T14:20:41.123456789Z"}

LEFT = [
    {"name": "Q-n1", "current": True, "active": 0, "peer": "YGc1XvjY"},
    {"name": "Q-n2", "current": False, "active": 0, "peer": "i7NtLzRO"},
]
ADVISORY = "io.nats.jetstream.advisory.v1"
# What is not provoked in this suite: the first three as a cluster wrote them, the last after the
# server's code.
RARE: list[tuple[type[Event], str, dict[str, Any]]] = [
    (events.StreamQuorumLostEvent, "stream_quorum_lost", {"stream": "S", "replicas": LEFT}),
    (
        events.ConsumerQuorumLostEvent,
        "consumer_quorum_lost",
        {"stream": "S", "consumer": "c", "account": "A", "replicas": LEFT, "domain": "hub"},
    ),
    (
        events.MetaRescueEvent,
        "meta_rescue",
        {"server": "Q-n1", "server_id": "NB", "prev_quorum": 2, "new_quorum": 1, "cluster": "Q"},
    ),
    (
        events.ServerOutOfSpaceEvent,
        "server_out_of_space",
        {"server": "n1", "server_id": "NA", "stream": "S", "cluster": "C"},
    ),
]


@pytest.mark.parametrize(("cls", "kind", "fields"), RARE)
def test_rare_events_are_read(cls: type[Event], kind: str, fields: dict[str, Any]) -> None:
    wire = {**BASE, "type": f"{ADVISORY}.{kind}", **fields}
    event = parse_event(json.dumps(wire).encode())
    assert type(event) is cls
    assert event.extra == {}
    assert exact_ns(event.timestamp or datetime.now(UTC)) % 1000 == 789
    names = [peer.name for peer in getattr(event, "replicas", [])]
    assert names == [peer["name"] for peer in wire.pop("replicas", [])]
    assert to_wire(event) | wire == to_wire(event)
    assert to_wire(event).keys() - {"replicas"} == wire.keys()


def test_every_kind_has_a_type_and_every_type_a_class_of_its_own() -> None:
    assert {name.rpartition(".")[2] for name in EVENT_TYPES} == set(EventKind)
    classes = {
        cls
        for cls in vars(events).values()
        if isinstance(cls, type) and issubclass(cls, Event) and not cls.__subclasses__()
    }
    assert set(EVENT_TYPES.values()) == classes
    assert len(EVENT_TYPES) == len(classes)


def test_an_event_of_another_shape_becomes_a_plain_one_and_loses_nothing() -> None:
    wire = {"type": f"{ADVISORY}.nak", **BASE, "stream": ["now", "a", "list"]}
    event = parse_event(json.dumps(wire).encode())
    assert type(event) is Event
    assert (event.kind, event.extra) == ("nak", {"stream": ["now", "a", "list"]})
    assert to_wire(event) == wire
    known = {"type": f"{ADVISORY}.stream_action", **BASE, "stream": "S", "action": "create"}
    event = parse_event(json.dumps({**known, "why": {"who": 1}}).encode())
    assert isinstance(event, events.StreamActionEvent)
    assert event.extra == {"why": {"who": 1}}
    assert to_wire(event) == {**known, "why": {"who": 1}}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
fields = st.sampled_from(
    sorted({name for cls in EVENT_TYPES.values() for name in cls.__struct_fields__} - {"extra"})
)
types = st.sampled_from(sorted(EVENT_TYPES)) | st.text()


@given(st.fixed_dictionaries({"type": types}), st.dictionaries(fields, json_values))
def test_any_document_with_a_type_is_an_event_or_refused(
    kind: dict[str, str], rest: dict[str, Any]
) -> None:
    with suppress(JetStreamError):
        assert parse_event(json.dumps({**rest, **kind}).encode()).type == kind["type"]


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_other_payloads_are_refused(data: bytes) -> None:
    with suppress(JetStreamError):
        assert parse_event(data).type


# -- subjects --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EventKind)
def test_the_subjects_of_a_kind_are_exact(kind: EventKind) -> None:
    cls = next(cls for name, cls in EVENT_TYPES.items() if name.endswith(f".{kind}"))
    names = {what: what.upper() for what in ("stream", "consumer") if hasattr(cls, what)}
    found = event_subjects([kind], **names, prefix="E")
    assert all(">" not in subject and subject.startswith("E.") for subject in found)
    if kind not in (EventKind.API_AUDIT, EventKind.SERVER_OUT_OF_SPACE):  # the name is inside
        for name in names.values():
            assert all(name in subject.split(".") for subject in found)
    # All of a stream or consumer take in each kind of them.
    if names:
        everything = event_subjects(**names, prefix="E")
        assert all(any(subject_matches(wide, one) for wide in everything) for one in found)


@pytest.mark.parametrize(
    "chosen", [{"kinds": list(EventKind)}, {"stream": "S"}, {"consumer": "c"}, {"kinds": "nak"}]
)
def test_no_event_comes_twice(chosen: dict[str, Any]) -> None:
    assert event_subjects() == ["$JS.EVENT.>"]
    found = event_subjects(**chosen)
    pairs = [(one, other) for i, one in enumerate(found) for other in found[:i]]
    assert not [pair for pair in pairs if subjects_overlap(*pair)]


@pytest.mark.parametrize(
    ("subject", "names"),
    [
        ("$JS.API.INFO", {}),
        ("$JS.API.STREAM.LIST", {}),
        ("$JS.API.STREAM.INFO.S", {"stream": "S"}),
        ("$JS.API.STREAM.MSG.GET.S", {"stream": "S"}),
        ("$JS.API.STREAM.PEER.REMOVE.S", {"stream": "S"}),
        ("$JS.hub.API.STREAM.INFO.S", {"stream": "S"}),
        ("$JS.API.CONSUMER.CREATE.S", {"stream": "S"}),
        ("$JS.API.CONSUMER.CREATE.S.c", {"stream": "S", "consumer": "c"}),
        ("$JS.API.CONSUMER.CREATE.S.c.a.API.b", {"stream": "S", "consumer": "c"}),
        ("$JS.API.CONSUMER.DURABLE.CREATE.S.c", {"stream": "S", "consumer": "c"}),
        ("$JS.API.CONSUMER.LEADER.STEPDOWN.S.c", {"stream": "S", "consumer": "c"}),
        ("$JS.API.SOMETHING.NEW.S", {}),
    ],
)
def test_the_subject_of_a_call_says_what_it_was_about(subject: str, names: dict[str, str]) -> None:
    found = names_of(subject)
    assert {key: found[key] for key in ("stream", "consumer") if key in found} == names

"""Documents: nothing of the wire is lost, and what is not said is not sent."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark import documents
from jetspark.documents.configuration import config_to_wire, document_to_wire, json_of
from jetspark.documents.consumers import ConsumerConfig, ConsumerInfo
from jetspark.documents.document import Document, exact_ns, field_names, from_wire, to_wire
from jetspark.documents.streams import (
    AccountInfo,
    Placement,
    Republish,
    Source,
    StreamConfig,
    StreamInfo,
    StreamState,
    Tier,
)
from jetspark.errors import ConfigError, JetStreamError
from jetspark.kv.config import BucketConfig
from jetspark.timestamps import format_isotime

DOCUMENTS = [
    cls
    for name in vars(documents)
    if isinstance(cls := getattr(documents, name), type) and issubclass(cls, Document)
]

json_values = st.recursive(
    st.integers(-(2**53), 2**53) | st.text(max_size=5) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
durations = st.integers(0, 2**62)
times = st.integers(1, 2**62)


def wire_of(kind: str) -> st.SearchStrategy[Any]:
    """Values as the server writes them, by the text of a field's type."""
    simple: list[tuple[str, st.SearchStrategy[Any]]] = [
        ("list[", st.nothing()),
        ("dict[str, str]", st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2)),
        ("dict[str, int]", st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=2)),
        ("Duration", durations),
        ("Timestamp", times.map(format_isotime)),
        ("bool", st.booleans()),
        ("int", st.integers(0, 2**63)),
        ("str", st.text(max_size=8)),
    ]
    return next((strategy for name, strategy in simple if name in kind), st.nothing())


def plain_documents(cls: type[Document]) -> st.SearchStrategy[dict[str, Any]]:
    """Wire documents of a class: some of its plain fields, and fields that nobody knows."""
    fields = {
        field.name: wire_of(str(field.type))
        for field in msgspec.structs.fields(cls)
        if field.name != "extra" and "documents." not in str(field.type)
    }
    said = {name: values for name, values in fields.items() if not values.is_empty}
    names = st.text(min_size=1, max_size=4).map("new_".__add__)
    unknown = st.dictionaries(names, json_values, max_size=2)
    return st.tuples(st.fixed_dictionaries({}, optional=said), unknown).map(
        lambda parts: parts[0] | parts[1]
    )


@pytest.mark.parametrize("cls", [StreamConfig, ConsumerConfig])
@given(data=st.data())
def test_a_configuration_comes_back_as_it_was(cls: type[Document], data: st.DataObject) -> None:
    wire = data.draw(plain_documents(cls))
    said = {key: value for key, value in wire.items() if value is not None}
    assert to_wire(from_wire(cls, wire)) == said


@pytest.mark.parametrize("cls", DOCUMENTS, ids=lambda cls: cls.__name__)
def test_unknown_fields_are_kept_at_every_level(cls: type[Document]) -> None:
    smallest = _smallest(cls)
    document = from_wire(cls, {**smallest, "invented": [1, {"a": None}]})
    assert document.extra == {"invented": [1, {}]}
    assert to_wire(document)["invented"] == [1, {}]


def _smallest(cls: type[Document]) -> dict[str, Any]:
    """A wire document with the required fields only."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        if field.required:
            kind = str(field.type)
            if isinstance(field.type, type) and issubclass(field.type, Document):
                values[field.name] = _smallest(field.type)
            elif "Timestamp" in kind:
                values[field.name] = "2026-01-01T00:00:00.123456789Z"
            else:
                values[field.name] = 1 if "int" in kind else "x"
    return values


def test_unknown_fields_inside_lists_and_maps_are_kept() -> None:
    config = from_wire(StreamConfig, {"sources": [{"name": "A", "x": 1}, {"name": "B"}]})
    assert config.sources is not None
    assert [source.extra for source in config.sources] == [{"x": 1}, {}]
    account = from_wire(AccountInfo, {"tiers": {"R1": {"memory": 1, "y": 2}}})
    assert account.tiers is not None
    assert account.tiers["R1"] == Tier(memory=1, extra={"y": 2})


def test_documents_keep_nanoseconds() -> None:
    info = from_wire(
        StreamInfo,
        {
            "config": {"name": "S", "max_age": 1_000_000_001},
            "created": "2026-11-21T10:49:46.401926287Z",
            "state": {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0},
        },
    )
    assert info.config.max_age is not None
    assert exact_ns(info.config.max_age) == 1_000_000_001
    assert exact_ns(info.created) % 1000 == 287
    wire = to_wire(info)
    assert wire["config"]["max_age"] == 1_000_000_001
    assert wire["created"] == "2026-11-21T10:49:46.401926287Z"


def test_zero_time_becomes_none() -> None:
    state: dict[str, Any] = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0}
    wire = {**state, "first_ts": "0001-01-01T00:00:00Z", "deleted": None}
    assert from_wire(StreamState, wire) == StreamState(**state)


def test_what_is_not_said_is_not_sent_and_zero_is_said() -> None:
    config = StreamConfig(name="S", max_msgs=0, deny_purge=False, subjects=[])
    assert to_wire(config) == {"name": "S", "max_msgs": 0, "deny_purge": False, "subjects": []}


def test_a_known_field_of_another_type_is_an_error() -> None:
    with pytest.raises(JetStreamError, match="Unreadable ConsumerInfo"):
        from_wire(ConsumerInfo, {"stream_name": "S", "name": 5, "created": "2026-01-01T00:00:00Z"})


def test_replace_makes_a_checked_copy() -> None:
    config = StreamConfig(name="S", extra={"moon": 3})
    assert config.replace(max_msgs=5) == StreamConfig(name="S", max_msgs=5, extra={"moon": 3})
    with pytest.raises(ConfigError, match="opt_start_time"):
        ConsumerConfig().replace(opt_start_time=datetime(2026, 1, 1))


# -- what a caller may give --------------------------------------------------------------------


def test_a_configuration_may_be_given_in_five_forms(tmp_path: Path) -> None:
    wanted = {"name": "S", "max_age": 5_000_000_000}
    file = tmp_path / "stream.json"
    file.write_text('{\n  "name": "S",\n  "max_age": 5000000000\n}\n')
    for config in (
        file,
        StreamConfig(name="S", max_age=timedelta(seconds=5)),
        {"name": "S", "max_age": timedelta(seconds=5)},
        {"name": "S", "max_age": 5_000_000_000},
        '{"name": "S", "max_age": 5000000000}',
        b'{"name": "S", "max_age": 5000000000}',
    ):
        assert config_to_wire(StreamConfig, config, {}) == wanted
    options = {"name": "S", "max_age": timedelta(seconds=5)}
    assert config_to_wire(StreamConfig, None, options) == wanted


def test_options_win_over_the_configuration() -> None:
    wire = config_to_wire(StreamConfig, {"name": "S", "max_msgs": 1}, {"max_msgs": 2})
    assert wire == {"name": "S", "max_msgs": 2}
    # One subject is a list of one; a name that looks misspelt is sent as an extra.
    wire = config_to_wire(StreamConfig, None, {"subjects": "orders.>", "extra": {"max_mgss": 1}})
    assert wire == {"subjects": ["orders.>"], "max_mgss": 1}


def test_json_is_sent_as_it_is() -> None:
    text = '{"name": "S", "moon": {"phase": null}, "sources": [{"name": "A", "x": 1}]}'
    assert config_to_wire(StreamConfig, text, {}) == msgspec.json.decode(text)


def test_an_option_that_is_no_field_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match="mean 'durable_name'"):
        config_to_wire(ConsumerConfig, None, {"durable": "d"})
    with pytest.raises(TypeError, match=r"^ConsumerConfig has no field 'queue'\.$"):
        config_to_wire(ConsumerConfig, None, {"queue": "q"})


@pytest.mark.parametrize("text", ["[1]", "{", b"{", "ORDERS", StreamConfig])
def test_text_that_is_no_json_object_is_refused_with_a_hint(text: Any) -> None:
    with pytest.raises(ConfigError, match="give fields by name"):
        config_to_wire(StreamConfig, text, {})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"retention": "workqueu"}, "'interest' or 'workqueue', not 'workqueu'; did you mean 'workq"),
    ({"storage": "memroy"}, "did you mean 'memory'"),
    ({"discard": "odl"}, "did you mean 'old'"),
    ({"placement": {"clustr": "A"}}, "Placement has no field 'clustr'; did you mean 'cluster'"),
    ({"placement": {"cluster": 5}}, "placement.cluster: expected str, got int"),
    ({"sources": [{"nme": "A"}]}, "Source has no field 'nme'; did you mean 'name'"),
    ({"sources": [{"name": "A"}, {"name": 5}]}, "sources[1].name: expected str, got int"),
    ({"sources": [{"name": "A", "external": {"api": "x", "delivr": ""}}]}, "mean 'deliver'"),
    ({"mirror": {"opt_start_seq": 1}}, "name"),
    ({"subjects": [5]}, "subjects[0]: expected str, got int"),
    ({"metadata": {"a": 5}}, "metadata[...]: expected str, got int"),
]


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_wrong_value_names_the_field_and_its_values(given: dict[str, Any], words: str) -> None:
    for config, options in ((None, given), (given, {}), (msgspec.json.encode(given), {})):
        with pytest.raises(ConfigError) as raised:
            config_to_wire(StreamConfig, config, options)
        assert words in str(raised.value)


def test_a_field_that_looks_misspelt_is_refused() -> None:
    for config in ({"max_mgss": 1}, '{"max_mgss": 1}'):
        with pytest.raises(ConfigError, match="mean 'max_msgs'"):
            config_to_wire(StreamConfig, config, {})


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ({"ack_policy": "explict"}, "explicit"),
        ({"deliver_policy": "lst"}, "last"),
        ({"replay_policy": "orignal"}, "original"),
        ({"priority_policy": "overflw"}, "overflow"),
    ],
)
def test_misspelt_consumer_word_suggests_the_nearest(given: dict[str, Any], near: str) -> None:
    for config, options in ((None, given), (given, {}), (ConsumerConfig(**given), {})):
        with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
            config_to_wire(ConsumerConfig, config, options)


def test_words_and_fields_of_a_newer_server_pass_through() -> None:
    wire = {"name": "S", "retention": "by_moon", "storage": "tape", "moon": 3}
    said = from_wire(StreamConfig, wire)
    for config in (said, said.replace(max_msgs=5), pickle.loads(pickle.dumps(said)), wire):
        assert config_to_wire(StreamConfig, config, {}).items() >= wire.items()
    assert config_to_wire(StreamConfig, None, {"extra": {"storage": "tape"}}) == {"storage": "tape"}
    with pytest.raises(ConfigError, match=r"not 'tape'\.$"):
        config_to_wire(StreamConfig, None, {"storage": "tape"})


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        (Source(name="A", external="hub"), "external"),  # type: ignore[arg-type]
        (Placement(tags=[5]), "tags"),  # type: ignore[list-item]
        (Republish(dest=b"x"), "dest"),  # type: ignore[arg-type]
        (StreamConfig(no_ack="no"), "no_ack"),  # type: ignore[arg-type]
        (StreamConfig(sources=[5]), "sources"),  # type: ignore[list-item]
        (BucketConfig(history=1.5), "history"),  # type: ignore[arg-type]
    ],
)
def test_a_document_with_a_wrong_value_is_not_sent(document: Document, wrong: str) -> None:
    what = type(document).__name__
    with pytest.raises(ConfigError, match=rf"{what}: {wrong}.*: expected "):
        document_to_wire(document)


def test_mappings_and_other_forms_are_sent_as_what_they_say() -> None:
    config = StreamConfig(
        subjects="a",  # type: ignore[arg-type]
        sources=({"name": "A", "opt_start_time": "2026-01-01T00:00:00Z"},),  # type: ignore[arg-type]
        consumer_limits={"inactive_threshold": timedelta(seconds=1)},  # type: ignore[arg-type]
    )
    assert document_to_wire(config) == {
        "subjects": ["a"],
        "sources": [{"name": "A", "opt_start_time": "2026-01-01T00:00:00Z"}],
        "consumer_limits": {"inactive_threshold": 1_000_000_000},
    }


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.json: No such file"):
        config_to_wire(StreamConfig, tmp_path / "no.json", {})
    with pytest.raises(ConfigError, match="Cannot read"):
        json_of(tmp_path)
    file = tmp_path / "stream.json"
    file.write_text('{"name": "S", ')
    with pytest.raises(ConfigError, match=r"stream\.json is not"):
        config_to_wire(StreamConfig, file, {})


def test_json_request_is_sent_unchanged(tmp_path: Path) -> None:
    text = '{"b": 1,  "a": [null, 1.50]}'
    file = tmp_path / "request.json"
    file.write_text(text)
    for form in (text, text.encode(), file):
        assert json_of(form) == text.encode()
    assert json_of({"a": timedelta(seconds=1), "b": None}) == b'{"a":1000000000,"b":null}'
    with pytest.raises(ConfigError, match="a document in JSON"):
        json_of("[1]")


def test_nested_documents_are_sent() -> None:
    config = StreamConfig(
        name="S", placement=Placement(tags=["a"]), sources=[Source(name="O", opt_start_seq=3)]
    )
    assert to_wire(config) == {
        "name": "S",
        "placement": {"tags": ["a"]},
        "sources": [{"name": "O", "opt_start_seq": 3}],
    }


def test_field_names_leave_out_our_own() -> None:
    assert len(DOCUMENTS) > 30
    assert not {name for name in field_names(StreamConfig) if name == "extra" or "<" in name}

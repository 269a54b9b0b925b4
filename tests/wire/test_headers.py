from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import BadHeaderError
from jetspark.wire.headers import Headers, encode_headers, forwarded, parse_headers
from jetspark.wire.status import Status, status_of

# What the protocol can carry: no control characters that end a line, no blanks at the edges.
text = st.text(st.characters(exclude_characters="\r\n\x00", codec="utf-8"), max_size=12)
values = text.map(lambda value: value.strip(" \t"))
names = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"),
    min_size=1,
    max_size=12,
)


@given(st.lists(st.tuples(names, values), max_size=8))
def test_headers_survive_the_wire_with_case_order_and_repeats(pairs: list[tuple[str, str]]) -> None:
    headers = Headers(pairs)
    back, status = parse_headers(encode_headers(headers))
    assert status is None
    assert back == headers
    assert list(back) == list(headers) == list(dict(pairs))
    assert list(back.items()) == pairs


@given(st.binary(max_size=60))
def test_any_block_parses_or_raises_bad_header(block: bytes) -> None:
    for candidate in (block, b"NATS/1.0" + block + b"\r\n\r\n"):
        try:
            parse_headers(candidate)
        except BadHeaderError:
            pass
        status_of(candidate)


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (b"NATS/1.0 503\r\n\r\n", Status(503)),
        (b"NATS/1.0 503 \r\n\r\n", Status(503)),
        (b"NATS/1.0 404 No Messages\r\n\r\n", Status(404, "No Messages")),
        (b"NATS/1.0\r\nStatus: 503\r\n\r\n", None),
        (b"NATS/1.0\r\n\r\n", None),
    ],
)
def test_only_the_version_line_is_a_status(block: bytes, status: Status | None) -> None:
    assert parse_headers(block)[1] == status
    assert status_of(block) == status


def test_idle_heartbeat_has_status_and_headers() -> None:
    headers, status = parse_headers(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\n\r\n")
    assert status is not None
    assert status.is_idle_heartbeat
    assert not status.is_flow_control
    assert headers["Nats-Last-Consumer"] == "7"


@pytest.mark.parametrize("name", ["A b", " A", "A ", "A\t", "Ä", "a\x7f"])
def test_a_name_that_other_clients_drop_is_refused_and_a_received_one_goes_on(name: str) -> None:
    with pytest.raises(BadHeaderError, match="printable ASCII without blanks"):
        Headers({name: "x"})
    block = f"NATS/1.0\r\n{name}: x\r\nC: y\r\n\r\n".encode()
    received, _ = parse_headers(block)
    assert received[name] == "x"
    if name == name.strip():
        assert encode_headers(Headers(received)) == block
        assert encode_headers(forwarded(received.items())) == block


@pytest.mark.parametrize(("name", "value"), [("a\r", "x"), ("a", "x\r\ny"), ("", "x"), ("a:b", "")])
def test_what_would_break_the_protocol_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadHeaderError):
        Headers({name: value})


def test_values_stay_in_the_order_given_over_all_names() -> None:
    pairs = [("a", "1"), ("b", "x"), ("a", "4")]
    headers = Headers(pairs)
    assert encode_headers(headers) == b"NATS/1.0\r\na: 1\r\nb: x\r\na: 4\r\n\r\n"
    assert list(Headers(headers).items()) == pairs
    assert headers == Headers({"a": ["1", "4"], "b": "x"})
    assert len(headers) == 2
    headers.set("a", "5")
    assert list(headers.items()) == [("b", "x"), ("a", "5")]


def test_headers_get_set_add_delete_and_iterate() -> None:
    headers = Headers({"a": ["1", "2"], "A": "3"})
    headers.add("a", "4")
    assert headers["a"] == "1"
    assert headers.values("a") == ["1", "2", "4"]
    assert headers.last("a") == "4"
    assert headers.get("none") is None
    assert headers.lookup("none", "d") == "d"
    assert headers.keys("[aA]") == ["a", "A"]
    headers["a"] = "5"
    assert headers.to_dict() == {"A": ["3"], "a": ["5"]}
    headers.update({"a": ["6", "7"], "b": "8"})
    assert headers.to_dict() == {"A": ["3"], "a": ["6", "7"], "b": ["8"]}
    headers.delete("a")
    headers.delete("a")
    assert "a" not in headers
    with pytest.raises(KeyError):
        headers["a"]


@pytest.mark.parametrize("blanks", [b" ", b"\t", b"\v", b"\n", b" \n"])
def test_a_status_line_of_blanks_takes_no_time(blanks: bytes) -> None:
    """Whoever may publish could stop a subscriber with one message."""
    line = b"NATS/1.0 100" + blanks * 200_000 + b"a\nb\r\n\r\n"
    before = time.process_time()
    assert status_of(line) is None
    assert time.process_time() - before < 1


@pytest.mark.parametrize(
    "wrong", [5, {"A": 5}, {"A": b"x"}, {"A": None}, {"A": [5]}, {5: "x"}, {b"A": "x"}, [("A",)]]
)
def test_headers_that_are_no_texts_are_refused_in_a_sentence(wrong: Any) -> None:
    with pytest.raises(BadHeaderError):
        Headers(wrong)

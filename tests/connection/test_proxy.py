"""The dialogue with a proxy, byte by byte: whatever it answers is a refusal or a connection."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.connection.proxy import ask_proxy, following, parse_proxy
from jetspark.connection.urls import ServerURL
from jetspark.errors import ServerRefusedError

SERVER = ServerURL("nats.example.org", 4222)
HTTP = b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n"
SOCKS = b"\x05\x02\x01\x00\x05\x00\x00\x01" + bytes(6)


def talk(scheme: str, answers: bytes) -> tuple[bytes, bytes]:
    """What was sent, and what was left of the answers."""
    steps, sent = ask_proxy(parse_proxy(f"{scheme}://u:p@proxy:1"), SERVER), b""
    step = following(steps)
    while step is not None:
        if isinstance(step, bytes):
            sent += step
            step = following(steps)
        else:
            taken, answers = answers[:step], answers[step:]
            step = following(steps, taken)
    return sent, answers


@pytest.mark.parametrize(("scheme", "answers"), [("http", HTTP), ("socks5", SOCKS)])
def test_nothing_of_what_follows_a_proxys_answer_is_taken(scheme: str, answers: bytes) -> None:
    sent, left = talk(scheme, answers + b"INFO {}\r\n")
    assert left == b"INFO {}\r\n"
    assert b"nats.example.org" in sent
    for end in range(len(answers)):
        with pytest.raises(ServerRefusedError, match="it closed the connection"):
            talk(scheme, answers[:end])


@given(
    scheme=st.sampled_from(["http", "socks5"]),
    answers=st.one_of(
        st.binary(),
        st.builds(
            lambda at, byte: HTTP[:at] + byte + HTTP[at + 1 :], st.integers(0, 24), st.binary()
        ),
        st.builds(
            lambda at, byte: SOCKS[:at] + byte + SOCKS[at + 1 :], st.integers(0, 13), st.binary()
        ),
    ),
)
def test_any_answer_of_a_proxy_is_a_refusal_or_a_connection(scheme: str, answers: bytes) -> None:
    with suppress(ServerRefusedError):
        talk(scheme, answers)

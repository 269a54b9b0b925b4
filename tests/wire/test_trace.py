"""Protocol lines as text: one each, no payload, no secret."""

from __future__ import annotations

import json
import re

from hypothesis import given
from tests.wire.strategies import Sent, streams

from jetspark.wire import frames
from jetspark.wire.documents import ConnectDocument, encode_document
from jetspark.wire.parser import Parser, one_by_one
from jetspark.wire.trace import received_line, sent_lines


def test_frames_on_their_way_out_are_lines_without_payload_and_headers() -> None:
    block = b"NATS/1.0\r\nsecret-header: x\r\n\r\n"
    data = b"".join(
        [
            frames.sub("a.*", 1, "q"),
            frames.pub("a", b"secret\r\nPUB b 1\r\n", "r"),
            frames.hpub("b", block, b"secret"),
            frames.unsub(1, 5),
            frames.PING,
        ]
    )
    assert list(sent_lines(data)) == [
        "SUB a.* q 1",
        "PUB a r 17",
        f"HPUB b {len(block)} {len(block) + 6}",
        "UNSUB 1 5",
        "PING",
    ]


def test_secrets_of_connect_are_masked() -> None:
    document = ConnectDocument(
        verbose=False, pedantic=False, echo=True, headers=True, no_responders=True,
        tls_required=False, lang="python", version="1", protocol=1, name="orders",
        user="s-user", password="s-pass", auth_token="s-token", jwt="s-jwt", sig="s-sig",
        nkey="UPUBLIC",
    )  # fmt: skip
    (line,) = sent_lines(frames.connect(encode_document(document)))
    assert not re.search("s-(user|pass|token|jwt|sig)", line)
    shown = json.loads(line.removeprefix("CONNECT "))
    assert (shown["name"], shown["nkey"], shown["pass"]) == ("orders", "UPUBLIC", "***")


@given(streams)
def test_what_is_received_is_shown_as_its_control_line(sent: list[Sent]) -> None:
    for data, event in sent:
        (parsed,) = one_by_one(Parser().feed(data))
        line = data[: data.index(b"\r\n")].decode("utf-8", "replace")
        assert received_line(parsed) == received_line(event) == line

"""Hypothesis strategies for what a server sends: pairs of the bytes and the event they mean."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from jetspark.wire.control import OK, PING, PONG, Err, Info
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.parser import Frame

Sent = tuple[bytes, Frame]

tokens = st.text("abcxyzABC019_-$é", min_size=1, max_size=8).map(str.encode)
subjects = st.lists(tokens, min_size=1, max_size=4).map(b".".join)
# Payloads that look like the protocol are the ones that a careless parser trips over.
payloads = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"\r\n", b"\r\nMSG a 1 0\r\n\r\n", b"PING\r\n", b"\r", b"x" * 300]),
)
header_blocks = st.sampled_from(
    [b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\n\r\n", "NATS/1.0\r\nk: vé\r\nk: w\r\n\r\n".encode()]
)
sids = st.integers(0, 2**40)


@st.composite
def messages(draw: st.DrawFn) -> Sent:
    sid, subject, payload = draw(sids), draw(subjects), draw(payloads)
    reply = draw(st.none() | subjects)
    block = draw(st.none() | header_blocks)
    target = b"%b %d" % (subject, sid) + (b" " + reply if reply is not None else b"")
    if block is None:
        line = b"MSG %b %d\r\n" % (target, len(payload))
    else:
        line = b"HMSG %b %d %d\r\n" % (target, len(block), len(block) + len(payload))
    event = MessageFrame(sid, subject, reply, block, payload)
    return line + (block or b"") + payload + b"\r\n", event


infos = st.dictionaries(st.text(max_size=5), st.integers(), max_size=3).map(
    lambda document: json.dumps(document).encode()
)
fixed: list[Sent] = [(b"PING\r\n", PING), (b"PONG\r\n", PONG), (b"+OK\r\n", OK)]
controls: st.SearchStrategy[Sent] = st.one_of(
    st.sampled_from(fixed),
    infos.map(lambda text: (b"INFO %b\r\n" % text, Info(text))),
    st.sampled_from(["Stale Connection", "Authorization Violation"]).map(
        lambda text: (b"-ERR '%b'\r\n" % text.encode(), Err(text))
    ),
)
streams: st.SearchStrategy[list[Sent]] = st.lists(st.one_of(messages(), controls), max_size=8)

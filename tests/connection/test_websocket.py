"""The WebSocket codec against the server side of its library: any split, PINGs, goodbyes."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol

from jetspark.connection.urls import parse_url
from jetspark.connection.websocket import WebSocketCodec


def opened(*, compression: bool = False) -> tuple[WebSocketCodec, ServerProtocol]:
    codec = WebSocketCodec(parse_url("ws://h/p"), [("A", "b")], compression=compression)
    server = ServerProtocol(
        extensions=[ServerPerMessageDeflateFactory(True, True)] if compression else None
    )
    server.receive_data(codec.request())
    (request,) = server.events_received()
    assert isinstance(request, Request)
    assert (request.path, request.headers["A"]) == ("/p", "b")
    server.send_response(server.accept(request))
    assert codec.receive(b"".join(server.data_to_send())) == []
    assert codec.opened
    assert codec.compressed is compression
    return codec, server


@given(
    payloads=st.lists(st.binary(max_size=300), max_size=6),
    cuts=st.lists(st.integers(0, 2000), max_size=8),
    compression=st.booleans(),
    fragments=st.booleans(),
)
def test_websocket_payloads_are_same_wherever_bytes_are_split(
    payloads: list[bytes], cuts: list[int], compression: bool, fragments: bool
) -> None:
    codec, server = opened(compression=compression)
    for payload in payloads:
        if fragments:
            server.send_binary(payload[:7], fin=False)
            server.send_continuation(payload[7:], fin=True)
        else:
            server.send_binary(payload)
        server.send_ping(b"p")
    data = b"".join(server.data_to_send())
    got, start = b"", 0
    for end in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        got += b"".join(codec.receive(memoryview(data)[start:end]))
        start = end
    assert got == b"".join(payloads)
    server.receive_data(codec.replies() + codec.send(b"back"))
    frames = [event for event in server.events_received() if isinstance(event, Frame)]
    assert [bytes(frame.data) for frame in frames] == [b"p"] * len(payloads) + [b"back"]


def test_websocket_close_frame_of_either_side_is_the_end() -> None:
    codec, server = opened()
    server.send_binary(b"last")
    server.send_close(1000)
    assert codec.receive(b"".join(server.data_to_send())) == [b"last"]
    assert codec.closed
    assert codec.replies()
    assert (codec.send(b"x"), codec.goodbye(), codec.receive(b"x")) == (b"", b"", [])
    codec, server = opened()
    assert codec.goodbye()
    assert codec.send(b"x") == b""


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x82\x81aaaaa", b"\x82\x7f" + b"\x7f" * 8])
def test_bytes_that_are_no_websocket_frame_set_failure(data: bytes) -> None:
    codec, _ = opened()
    codec.receive(data)
    assert codec.failure is not None
    assert "not WebSocket" in codec.failure
    assert codec.receive(b"x") == []


def test_websocket_library_logs_no_frames(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    codec, _ = opened()
    codec.send(b"CONNECT s3cret")
    assert "s3cret" not in caplog.text

"""Field by field with the official JavaScript client: what ours makes it reads, and the reverse.

Needs node and npm, and the network the first time.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import Unique
from tests.jetstream.peer_configs import CONSUMERS, STREAMS, consumer_config, differs, stream_config
from tests.support.js_peer import JsPeer

from jetspark.documents.consumers import ConsumerInfo
from jetspark.documents.document import Document, field_names, from_wire, to_wire
from jetspark.documents.streams import StreamConfig, StreamInfo
from jetspark.full_client import JetStream


def plain(config: Document) -> dict[str, Any]:
    """What is said, without the metadata that the server adds."""
    wire = to_wire(config)
    metadata = {k: v for k, v in wire.pop("metadata", {}).items() if not k.startswith("_nats.")}
    return wire | ({"metadata": metadata} if metadata else {})


def known_here(cases: dict[str, str], js: JetStream) -> list[str]:
    """Those that this server knows. In a loop: each test has a process of node."""
    info = js.server_info
    assert info is not None
    return [case for case, oldest in cases.items() if info.at_least(*map(int, oldest.split(".")))]


@pytest.mark.full
async def test_streams_of_ours_are_read_by_javascript_and_made_again(
    js: JetStream, js_peer: JsPeer, unique: Unique
) -> None:
    for case in known_here(STREAMS, js):
        name = unique("S")
        config = stream_config(case, name)
        made = (await js.create_stream(config)).cached_info.config
        assert differs(made, {n: getattr(config, n) for n in field_names(StreamConfig)}) == set()
        info = (await js_peer.run("stream_info", name=name))["info"]
        theirs = from_wire(StreamInfo, info).config
        assert theirs == made, case
        await js.delete_stream(name)

        # And back: JavaScript makes the same stream from what it read.
        await js_peer.run("stream_add", config=plain(theirs))
        again = (await js.stream(name).info()).config
        assert plain(again) == plain(made), case
        assert again.extra == {}
        await js.delete_stream(name)


@pytest.mark.full
async def test_consumers_of_ours_are_read_by_javascript_and_made_again(
    js: JetStream, js_peer: JsPeer, stream: str
) -> None:
    for case in known_here(CONSUMERS, js):
        options = consumer_config(case, stream)
        handle = js.stream(stream)
        is_push = "deliver_subject" in options
        make = handle.create_push_consumer if is_push else handle.create_consumer
        made = (await make(**options)).cached_info.config
        assert differs(made, options) == set(), case
        info = (await js_peer.run("consumer_info", stream=stream, name="c"))["info"]
        theirs = from_wire(ConsumerInfo, info).config
        assert theirs == made, case
        await js.stream(stream).delete_consumer("c")

        await js_peer.run("consumer_add", stream=stream, config=plain(theirs))
        bind = handle.push_consumer if is_push else handle.consumer
        again = (await bind("c")).cached_info.config
        assert plain(again) == plain(made), case
        assert again.extra == {}
        await js.stream(stream).delete_consumer("c")

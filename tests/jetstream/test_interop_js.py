"""Field by field with the official JavaScript client: what ours makes it reads, and the reverse.

Needs node and npm, and the network the first time.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import NeedsServer, Unique
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


@pytest.mark.full
@pytest.mark.parametrize("case", STREAMS)
async def test_a_stream_of_ours_is_read_by_javascript_and_made_again(
    js: JetStream, js_peer: JsPeer, unique: Unique, needs_server: NeedsServer, case: str
) -> None:
    needs_server(STREAMS[case])
    name = unique("S")
    config = stream_config(case, name)
    made = (await js.create_stream(config)).config
    assert differs(made, {n: getattr(config, n) for n in field_names(StreamConfig)}) == set()
    info = (await js_peer.run("stream_info", name=name))["info"]
    theirs = from_wire(StreamInfo, info).config
    assert theirs == made
    await js.delete_stream(name)

    # And back: JavaScript makes the same stream from what it read.
    await js_peer.run("stream_add", config=plain(theirs))
    again = (await js.stream_info(name)).config
    assert plain(again) == plain(made)
    assert again.extra == {}
    await js.delete_stream(name)


@pytest.mark.full
@pytest.mark.parametrize("case", CONSUMERS)
async def test_a_consumer_of_ours_is_read_by_javascript_and_made_again(
    js: JetStream, js_peer: JsPeer, stream: str, needs_server: NeedsServer, case: str
) -> None:
    needs_server(CONSUMERS[case])
    options = consumer_config(case, stream)
    make = js.create_push_consumer if "deliver_subject" in options else js.create_consumer
    made = (await make(stream, **options)).cached_info.config
    assert differs(made, options) == set()
    info = (await js_peer.run("consumer_info", stream=stream, name="c"))["info"]
    theirs = from_wire(ConsumerInfo, info).config
    assert theirs == made
    await js.delete_consumer(stream, "c")

    await js_peer.run("consumer_add", stream=stream, config=plain(theirs))
    again = (await js.consumer_info(stream, "c")).config
    assert plain(again) == plain(made)
    assert again.extra == {}

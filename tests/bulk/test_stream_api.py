"""Calls whose answers do not come: a leader that stops takes requests with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from jetspark.bulk.stream_api import StreamAPI
from jetspark.errors import RequestTimeoutError

if TYPE_CHECKING:
    from jetspark.bulk.link import BlockingLink
    from jetspark.wire.events import MessageFrame


class SilentLink:
    """Answers STREAM.NAMES, but not the first `silences` requests."""

    server = "nats://nobody"
    api_prefix = "$JS.API"

    def __init__(self, silences: int) -> None:
        self.silences = silences
        self.patience: list[float] = []

    def request(self, subject: str, payload: bytes, timeout: float) -> MessageFrame:
        self.patience.append(round(timeout, 2))
        if len(self.patience) <= self.silences:
            raise RequestTimeoutError("silence")
        answer = {"type": "io.nats.jetstream.api.v1.stream_names_response", "total": 1}
        body = msgspec.json.encode(answer | {"streams": ["S"]})
        return (1, subject.encode(), None, None, body)


def names(link: SilentLink) -> list[str]:
    return StreamAPI(cast("BlockingLink", link), timeout=10).stream_names()


def test_a_request_without_an_answer_is_sent_again() -> None:
    link = SilentLink(2)
    assert names(link) == ["S"]
    assert link.patience[:2] == [2, 3]


def test_silence_in_the_end_is_told_once() -> None:
    with pytest.raises(RequestTimeoutError, match=r"nats://nobody did not answer within 10 s\."):
        names(SilentLink(9))

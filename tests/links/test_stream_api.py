"""What streams say of themselves; and calls whose answers do not come."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy
import pytest
from tests.support.imports import SOURCE
from tests.support.streams import Admin, numbered

from jetspark.blocking import connect
from jetspark.errors import RequestTimeoutError
from jetspark.links.link import BlockingLink
from jetspark.links.stream_api import StreamAPI
from jetspark.wire import js_api
from jetspark.wire.documents import ServerInfo
from jetspark.wire.kernel import MessageFrame


class SilentLink:
    """Answers STREAM.NAMES, but not the first `silences` requests, and keeps what it is asked."""

    server = "nats://nobody"
    api_prefix = "$JS.API"
    info = ServerInfo()

    def __init__(self, silences: int) -> None:
        self.silences = silences
        self.patience: list[float] = []
        self.asked: list[bytes] = []

    def request(self, subject: str, payload: bytes, timeout: float) -> MessageFrame:
        self.patience.append(round(timeout, 2))
        self.asked.append(payload)
        if len(self.patience) <= self.silences:
            raise RequestTimeoutError("silence")
        answer = {"type": "io.nats.jetstream.api.v1.stream_names_response", "total": 1}
        body = msgspec.json.encode(answer | {"streams": ["S"]})
        return MessageFrame(1, subject.encode(), None, None, body)


def names(link: SilentLink) -> list[str]:
    return StreamAPI(cast("BlockingLink", link), timeout=10).stream_names()


def test_a_request_without_an_answer_is_sent_again_until_that_is_told() -> None:
    link = SilentLink(2)
    assert names(link) == ["S"]
    assert link.patience[:2] == [2, 3]
    with pytest.raises(RequestTimeoutError, match="nats://nobody did not answer within 10 s"):
        names(SilentLink(9))


def test_a_request_has_plain_values_whatever_they_were_made_of() -> None:
    class Text(str):
        __slots__ = ()

    Subject: Any = Enum("Subject", {"A": "a"}, type=str)  # formatted, it says "Subject.A"
    link = SilentLink(0)
    api = StreamAPI(cast("BlockingLink", link), timeout=10)
    given = {Text("subject"): Subject.A, "offset": numpy.int64(3)}
    api.call(js_api.STREAM_NAMES, given)
    assert link.asked == [b'{"subject":"a","offset":3}']


def test_what_is_sent_is_encoded_in_one_place() -> None:
    allowed = {"wire/documents.py", "jetstream/message.py"}  # the latter: a number of our own
    layers = (
        "links",
        "ranges",
        "stream_writes",
        "wire",
        "client",
        "jetstream",
        "kv",
        "objects",
        "backup",
    )
    for layer in (*layers, "blocking"):
        for file in (SOURCE / "jetspark" / layer).rglob("*.py"):
            name = file.relative_to(SOURCE / "jetspark").as_posix()
            if "json.encode(" in file.read_text("utf-8"):
                assert name in allowed | {
                    "jetstream/api.py",  # shown
                    "backup/folder.py",  # written to a file
                    "ranges/losses.py",  # the same, of losses
                }, name


def test_a_gone_and_a_recreated_stream_have_different_errors(
    admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("FATE")
    first = admin.create(name, name)["created"]
    admin.fill(numbered(name, 10))
    with connect(admin.url) as nc:
        js = nc.jetstream()
        js.backup_stream(name, tmp_path / "backup")
        js.delete_stream(name)
        js.restore_stream(tmp_path / "backup")
        restored = admin.facts(name)
        js.delete_stream(name)
    # In memory: with files, the server may give the deleted messages to the new stream.
    admin.create(name, name, storage="memory")
    empty = admin.facts(name)
    admin.fill(numbered(name, 10))
    recreated = admin.facts(name)
    for facts, told, says in (
        (restored, True, "it was restored from a backup, so its sequences"),
        (empty, None, "it was recreated or restored, so its sequences"),
        (recreated, False, "it was recreated, so its sequences"),
    ):
        if facts is restored and facts.created == first:
            continue  # before 2.15 a restored stream keeps its time, and is the same one
        error = facts.recreated_error(first)
        assert error.restored is told
        assert says in str(error)


def test_removed_by_names_limits_or_a_purge(admin: Admin) -> None:
    name = admin.stream()
    assert admin.facts(name).removed_by == (
        "by a purge or deletion, since it has no limits, before they were read"
    )
    config = {"name": name, "subjects": [name], "max_msgs": 100, "max_age": 60_000_000_000}
    admin.call(f"STREAM.UPDATE.{name}", config)
    assert (
        admin.facts(name).removed_by
        == "by its limits (max_msgs 100, max_age 60 s) or a purge, before they were read"
    )


def test_limits_that_refuse_new_messages_remove_none(
    admin: Admin, unique: Callable[[str], str]
) -> None:
    for discard, keeps in (("old", False), ("new", True)):
        name = unique("LIMITED")
        limits = {"max_msgs_per_subject": 1, "max_msgs": 100, "max_bytes": 10_000}
        admin.create(name, name, discard=discard, **limits)
        assert admin.facts(name).keeps_last_per_subject is keeps

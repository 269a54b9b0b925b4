"""Publishes that no server takes: the blocking batches and publishers hear it at once, too."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest
from tests.blocking.eventually import eventually
from tests.conftest import MakeServer, NeedsServer

from jetspark.blocking import connect
from jetspark.blocking.jetstream import JetStream
from jetspark.errors import MaxPayloadError, PermissionsError, PublishFailedError

PATIENCE = 600
"""Seconds: a time-out of this length is a hang here."""

USERS = """
authorization { users: [
  { user: some, password: p, permissions { publish { deny: ["s.no"] } } }
  { user: deaf, password: p, permissions { subscribe { deny: ["_INBOX.>"] } } }
] }
"""


def _publish(js: JetStream, subject: str, payload: bytes) -> None:
    js.publish(subject, payload, timeout=PATIENCE)


def _publisher(js: JetStream, subject: str, payload: bytes) -> None:
    with js.publisher(timeout=PATIENCE) as publisher:
        publisher.publish(subject, payload)


def _submit(js: JetStream, subject: str, payload: bytes) -> None:
    with js.publisher(timeout=PATIENCE) as publisher:
        publisher.publish_async(subject, payload).result(60)


def _atomic(js: JetStream, subject: str, payload: bytes) -> None:
    with js.atomic_batch(timeout=PATIENCE) as batch:
        batch.publish(subject, payload)


def _fast(js: JetStream, subject: str, payload: bytes) -> None:
    with js.fast_ingest(timeout=PATIENCE) as ingest:
        ingest.publish(subject, payload)


WAYS = (_publish, _publisher, _submit, _atomic, _fast)


@pytest.fixture(autouse=True)
def _batches(needs_server: NeedsServer) -> None:
    needs_server("2.14")


def reason(raised: BaseException) -> BaseException:
    return raised.failures[0].error if isinstance(raised, PublishFailedError) else raised


@pytest.mark.parametrize(("user", "operation"), [("some", "publish"), ("deaf", "subscription")])
def test_what_is_not_allowed_is_known_at_once(
    make_server: MakeServer, user: str, operation: str
) -> None:
    server = make_server(USERS)
    for way in WAYS:
        with (
            connect(server.url, user=user, password="p") as nc,
            pytest.raises((PermissionsError, PublishFailedError)) as raised,
        ):
            way(nc.jetstream(), "s.no", b"1")
        error = reason(raised.value)
        assert isinstance(error, PermissionsError)
        assert error.operation == operation


@pytest.mark.parametrize("way", WAYS)
def test_what_a_smaller_server_does_not_take_is_known_at_once(
    make_server: MakeServer, way: Callable[..., None]
) -> None:
    server = make_server()
    with connect(server.url, reconnect_wait=0.05) as nc:
        port = server.port
        server.close()
        eventually(lambda: not nc.is_connected)

        def start() -> None:  # when the message waits for it
            eventually(lambda: nc._inner.publishing.link.outbox.size > 5000)
            make_server("max_payload: 1000", port=port)

        starting = Thread(target=start)
        starting.start()
        with pytest.raises((MaxPayloadError, PublishFailedError)) as raised:
            way(nc.jetstream(), "s.a", bytes(5000))
        starting.join()
    assert isinstance(reason(raised.value), MaxPayloadError)

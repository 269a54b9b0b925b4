"""What a context with `trace` writes into the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Unique

from jetspark import blocking, errors
from jetspark.full_client import Client, JetStream
from jetspark.jetstream import api
from jetspark.server import NatsServer

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.DEBUG, "jetspark.trace")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "jetspark.trace"]


async def test_each_request_and_its_answer_are_logged(
    nc: Client, unique: Unique, lines: Lines
) -> None:
    js = nc.jetstream(trace=True)
    name = unique("S")
    await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    with pytest.raises(errors.ConsumerNotFoundError):
        await js.stream(name).consumer("nobody")
    asked, answered, asked_again, refused = lines()
    assert asked.startswith(f'>>> $JS.API.STREAM.CREATE.{name} {{"name":"{name}"')
    assert answered.startswith(f"<<< $JS.API.STREAM.CREATE.{name} {{")
    assert "stream_create_response" in answered
    assert asked_again == f">>> $JS.API.CONSUMER.INFO.{name}.nobody "
    assert '"err_code":10014' in refused
    await js.delete_stream(name)


async def test_only_a_context_with_trace_is_logged(nc: Client, lines: Lines) -> None:
    loud, quiet = nc.jetstream(trace=True, timeout=20), nc.jetstream(timeout=21)
    await quiet.account_info()
    assert lines() == []
    await loud.account_info()
    assert len(lines()) == 2
    assert (loud.timeout, quiet.timeout) == (20, 21)


async def test_a_request_without_answer_is_logged(nc: Client, unique: Unique, lines: Lines) -> None:
    prefix = unique("nowhere")
    with pytest.raises(errors.JetStreamNotEnabledError):
        await JetStream(nc, api_prefix=prefix, trace=True).account_info()
    assert lines()[1].startswith(f"<<< {prefix}.INFO NoRespondersError: ")


async def test_stored_messages_are_not_shown(
    js: JetStream, nc: Client, stream: str, lines: Lines
) -> None:
    await js.stream(stream).update(allow_direct=True)
    await js.publish(f"{stream}.a", b'{"the": "payload"}', headers={"the-header": "its value"})
    worker = await js.stream(stream).create_consumer(name="worker")
    traced = nc.jetstream(trace=True)
    await traced.stream(stream).get(1, direct=False)
    answer = json.loads(lines()[1].split(" ", 2)[2])
    assert answer["message"]["subject"] == f"{stream}.a"
    assert answer["message"]["data"] == answer["message"]["hdrs"] == "***"
    await traced.stream(stream).get(1, direct=True)
    assert lines()[2:] == [
        f'>>> $JS.API.DIRECT.GET.{stream} {{"seq":1}}',
        f"<<< $JS.API.DIRECT.GET.{stream} (18 bytes)",
    ]
    assert len(await (await traced.stream(stream).consumer(worker.name)).fetch(1, timeout=5)) == 1
    shown = "\n".join(lines())
    assert f">>> $JS.API.CONSUMER.MSG.NEXT.{stream}.worker " in shown
    assert "payload" not in shown


def test_the_blocking_context_traces_too(shared_server: NatsServer, lines: Lines) -> None:
    with blocking.connect(shared_server.url) as nc:
        nc.jetstream(trace=True).account_info()
        nc.jetstream().account_info()
    assert [line[:16] for line in lines()] == [">>> $JS.API.INFO", "<<< $JS.API.INFO"]


# -- the lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({"config": {"metadata": {"db_password": "x"}}}, "***"),
        ({"tokens": ["x"]}, "***"),
        ({"a": [{"nkey": {"b": "x"}}]}, "***"),
        ({"url": "nats://me:x@host:1"}, "nats://***@host:1"),
        ({"urls": ["nats://me:x@h, tls://x@i"]}, "nats://***@h, tls://***@i"),
    ],
)
def test_secrets_are_masked_at_every_depth(document: dict[str, Any], shown: str) -> None:
    text = api.describe_payload(json.dumps(document).encode())
    assert shown in text
    assert '"x"' not in text
    assert ":x@" not in text


@given(
    st.recursive(
        st.text(max_size=3) | st.integers(-9, 9) | st.none() | st.booleans(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "password", "Auth_Token", "seed"]), inner)
        ),
        max_leaves=20,
    )
)
def test_no_secret_field_keeps_its_value(value: Any) -> None:
    def check(part: Any) -> None:
        if isinstance(part, dict):
            for key, one in part.items():
                assert key == "a" or one == "***"
                check(one)
        elif isinstance(part, list):
            for one in part:
                check(one)

    text = api.describe_payload(json.dumps({"a": value}).encode())
    if not text.endswith("bytes)"):
        check(json.loads(text))


def test_long_documents_are_truncated_and_other_bytes_counted() -> None:
    long = json.dumps({"a": "x" * 10_000}).encode()
    assert len(api.describe_payload(long)) < api.MAX_TRACED_CHARS + 30
    assert api.describe_payload(long).endswith(f"({len(long)} bytes)")
    assert api.describe_payload(b"plain") == "(5 bytes)"
    assert api.describe_payload(b"[1]") == "(3 bytes)"
    assert api.describe_payload(b"") == ""

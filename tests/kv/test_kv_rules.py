"""What buckets, keys and filters may be called, and which entries delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from jetspark.errors import BadNameError, KeyExistsError
from jetspark.full_client import JetStream
from jetspark.kv import Bucket
from jetspark.kv_rules import check_bucket, check_filter, check_key, operation_in
from jetspark.server import NatsServer


@pytest.mark.parametrize(
    ("check", "valid", "invalid"),
    [
        (
            check_bucket,
            ["a", "A-1_z", "x" * 200],
            ["", "a.b", "a b", "a*", "a>", "a/b", "ä", "a\n"],
        ),
        (
            check_filter,
            [">", "*", "a.*", "*.a.>", "a.>", "*.*", "_kv.>", "a", "a/b=c_d-e.f"],
            ["", ">.a", "a*", "a.*b", "a>", ".>", "a..>", "a b.>", ">\n"],
        ),
    ],
)
def test_valid_names(check: Callable[[str], str], valid: list[str], invalid: list[str]) -> None:
    for text in valid:
        assert check(text) == text
    for text in invalid:
        with pytest.raises(BadNameError):
            check(text)


@pytest.mark.parametrize(
    "key",
    ["", ".a", "a.", "a..b", "a b", "a*", "*", "a.>", ">", "ä", "a\n", "a\\b", "_kv", "_kv.a"],
)
def test_invalid_keys_are_refused(key: str) -> None:
    with pytest.raises(BadNameError, match="key"):
        check_key(key)
    for valid in ("a", "a.b", "-/_=.9", "a/b=c_d-e.f", "x_kv", "a._kv"):
        assert check_key(valid) == valid


async def test_a_bad_key_is_refused_before_anything_is_sent(bucket: Bucket) -> None:
    for call in (
        bucket.get("a b"),
        bucket.put("a b"),
        bucket.create(""),
        bucket.update("a*", b"", 1),
        bucket.delete(">"),
        bucket.purge("a..b"),
        bucket.revert(".a", 1),
    ):
        with pytest.raises(BadNameError):
            await call
    assert (await bucket.status()).stream_state.last_seq == 0


@pytest.mark.parametrize(
    ("lines", "operation"),
    [
        ("", "PUT"),
        ("A: b", "PUT"),
        ("KV-Operation: PUT", "PUT"),
        ("KV-Operation: DEL", "DEL"),
        ("KV-Operation:PURGE", "PURGE"),
        ("KV-Operation: PURGE\r\nKV-Operation: DEL", "PURGE"),
        ("KV-Operation: del", "PUT"),
        ("KV-Operation: OTHER\r\nNats-Marker-Reason: MaxAge", "PUT"),
        ("kv-operation: DEL", "PUT"),
        ("A: KV-Operation: DEL", "PUT"),
        ("KV-Operation:\r\nNats-Marker-Reason: MaxAge", "PURGE"),
        ("Nats-Marker-Reason: Purge", "PURGE"),
        ("Nats-Marker-Reason: Remove", "DEL"),
        ("Nats-Marker-Reason: Other", "PUT"),
        ("A: \xff\r\nno colon\r\nKV-Operation: DEL", "DEL"),
    ],
)
def test_the_operation_is_what_other_clients_read(lines: str, operation: str) -> None:
    block = f"NATS/1.0\r\n{lines}\r\n\r\n".encode("latin-1")
    assert operation_in(block) == operation
    assert operation_in(None) == "PUT"


async def test_headers_that_cannot_be_read_hide_no_value(
    js: JetStream, bucket: Bucket, shared_server: NatsServer
) -> None:
    await bucket.put("fine", b"1")
    block = b"NATS/1.0\r\nA: \xff\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", shared_server.port)
    writer.write(
        b'CONNECT {"headers":true}\r\nHPUB $KV.%s.bad %d %d\r\n%sx\r\nPING\r\n'
        % (bucket.name.encode(), len(block), len(block) + 1, block)
    )
    await reader.readuntil(b"PONG")
    writer.close()
    assert (await bucket.get("bad")).value == b"x"
    with pytest.raises(KeyExistsError):
        await bucket.create("bad", b"2")
    entries = [*(await bucket.history("bad").all()), await bucket.get("bad")]
    if js.server_info is not None and js.server_info.at_least(2, 11):
        together = await bucket.get_many(["fine", "bad"])
        assert set(together) == {"fine", "bad"}
        entries.append(together["bad"])
    assert {(entry.value, entry.operation) for entry in entries} == {(b"x", "PUT")}

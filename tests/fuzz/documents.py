"""Documents that another party can have written, mutated: only typed errors, whoever reads them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.support import campaign

from jetspark.backup.metadata import parse_metadata
from jetspark.dead_letters.letter import read_letter
from jetspark.documents.consumers import ConsumerInfo
from jetspark.documents.document import Timestamp, from_wire, to_wire
from jetspark.documents.events import ApiAuditEvent, parse_event
from jetspark.documents.streams import StoredMsg, StreamInfo
from jetspark.errors import JetsparkError
from jetspark.groups.documents import GroupLocation
from jetspark.jetstream.api import describe_payload
from jetspark.jetstream.publish_request import parse_pub_ack
from jetspark.links.leader_terms import observation_of
from jetspark.links.stream_facts import facts_of
from jetspark.objects.info import info_of
from jetspark.services.discovery import parse_latency
from jetspark.services.protocol import ServiceInfo, ServicePing, ServiceStats, decode_answer
from jetspark.stream_writes._atomic_batch import parse_batch_ack
from jetspark.stream_writes.encoded_messages import pack_messages, unpack_messages
from jetspark.stream_writes.ledger import decode_decision
from jetspark.system.documents import Statsz
from jetspark.system.system import read_answer
from jetspark.tracing.tree import parse_report
from jetspark.wire import js_api
from jetspark.wire.documents import parse_info

_TIME = "2026-01-31T12:00:00.123456789Z"
_NOW = Timestamp.from_ns(1_700_000_000_000_000_000)
_SERVER = {"name": "n", "id": "I", "ver": "2.12.0", "host": "h", "time": _TIME, "seq": 1}
_SEQUENCES = {"messages": 3, "bytes": 99, "first_seq": 1, "last_seq": 3}
_STATE = {**_SEQUENCES, "consumer_count": 1, "first_ts": _TIME, "last_ts": _TIME}
_REPLICAS = [{"name": "b", "current": True, "active": 1000, "peer": "p"}]
_STREAM = {
    "type": "io.nats.jetstream.api.v1.stream_info_response",
    "config": {"name": "S", "subjects": ["s.>"], "retention": "limits", "max_age": 10**9},
    "state": _STATE,
    "created": _TIME,
    "cluster": {"leader": "a", "replicas": _REPLICAS},
}
_CONSUMER = {
    "type": "io.nats.jetstream.api.v1.consumer_info_response",
    "stream_name": "S",
    "name": "c",
    "created": _TIME,
    "config": {"durable_name": "c", "ack_policy": "explicit", "backoff": [1, 2]},
    "delivered": {"consumer_seq": 1, "stream_seq": 1, "last_active": _TIME},
    "ack_floor": {"consumer_seq": 1, "stream_seq": 1},
}


def _event_of(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"io.nats.{kind}", "id": "i", "timestamp": _TIME, **more}


_ADVISORY = _event_of(
    "jetstream.advisory.v1.max_deliver", stream="S", consumer="c", stream_seq=1, deliveries=3
)
_AUDIT = _event_of(
    "jetstream.advisory.v1.api_audit",
    server="s",
    subject="$JS.API.STREAM.INFO.S",
    response='{"error": {"code": 404, "description": "x"}}',
    client={"acc": "A"},
)
_SERVICE = {"name": "s", "id": "i", "version": "1.0.0", "metadata": {"a": "b"}}
_GROUP = {
    "max_members": 6,
    "filter": "a.*",
    "members": None,
    "member_mappings": [{"member": "m", "partitions": [0, 1, 2, 3, 4, 5]}],
}
_ELASTIC = _GROUP | {
    "partitioning_filters": [{"filter": "a.*", "partitioning_wildcards": [1]}],
    "max_buffered_msg": 1,
}
_REPORT = {
    "server": {"name": "n", "id": "I"},
    "request": {"header": {"Nats-Trace-Hop": ["1"]}},
    "events": [
        {"type": "in", "ts": _TIME, "kind": 0, "cid": 1, "acc": "A", "subj": "s"},
        {"type": "eg", "ts": _TIME, "kind": 0, "cid": 2},
    ],
}
_LETTER = (
    b"NATS/1.0\r\nDead-Letter-Reason: terminated\r\nDead-Letter-Stream: S\r\n"
    b"Dead-Letter-Consumer: c\r\nDead-Letter-Sequence: 1\r\nDead-Letter-Deliveries: 1\r\n"
    b"Dead-Letter-Time: 2026-01-31T12:00:00Z\r\n\r\n"
)


def _event(data: bytes) -> None:
    event = parse_event(data)
    to_wire(event)
    if isinstance(event, ApiAuditEvent):
        assert event.error is None or event.error.code is not None


def _stream(data: bytes) -> None:
    answer = js_api.parse_answer(js_api.STREAM_INFO, data, {"stream": "S"})
    facts_of("S", answer)
    observation_of(answer, 0.0, 1.0)
    to_wire(from_wire(StreamInfo, answer))


def _consumer(data: bytes) -> None:
    answer = js_api.parse_answer(js_api.CONSUMER_INFO, data, {"stream": "S", "consumer": "c"})
    to_wire(from_wire(ConsumerInfo, answer))


def _letter(data: bytes) -> None:
    read_letter(StoredMsg(subject="s", seq=1, time=_NOW, data=b"", hdrs=data))


def _of_service(kind: str, document: type[Any], **more: Any) -> tuple[Any, Any]:
    answer = {"type": f"io.nats.micro.v1.{kind}_response", **_SERVICE, **more}
    return answer, partial(decode_answer, document)


READERS: dict[str, tuple[Any, Callable[[bytes], object]]] = {
    "advisory": (_ADVISORY, _event),
    "audit": (_AUDIT, _event),
    "trace of the API": (_STREAM, describe_payload),
    "stream": (_STREAM, _stream),
    "consumer": (_CONSUMER, _consumer),
    "ack": ({"stream": "S", "seq": 1, "duplicate": True, "domain": "d"}, parse_pub_ack),
    "batch": ({"stream": "S", "seq": 3, "count": 2}, lambda data: parse_batch_ack(data, "S")),
    "refusal": ({"error": {"code": 400, "err_code": 1, "description": "x"}}, parse_pub_ack),
    "object": (
        {"name": "o", "bucket": "b", "nuid": "n", "size": 1, "chunks": 1, "headers": {"a": ["b"]}},
        lambda data: info_of(data, _NOW),
    ),
    "ping": _of_service("ping", ServicePing),
    "info": _of_service(
        "info", ServiceInfo, description="d", endpoints=[{"name": "e", "subject": "s"}]
    ),
    "stats": _of_service(
        "stats",
        ServiceStats,
        started=_TIME,
        endpoints=[{"name": "e", "subject": "s", "processing_time": 1.5}],
    ),
    "latency": (
        _event_of("server.metric.v1.service_latency", status=200, service=1000, total=2000),
        parse_latency,
    ),
    "report": (_REPORT, parse_report),
    "server": ({"server": _SERVER, "statsz": {"cpu": 1.5}}, partial(read_answer, Statsz)),
    "elastic": (_ELASTIC, GroupLocation("S", "g", elastic=True).decode),
    "static": (_GROUP, GroupLocation("S", "g", elastic=False).decode),
    "backup": ({"config": {"name": "S"}, "state": _STATE}, parse_metadata),
    "INFO": ({"server_id": "I", "version": "2.12.0", "connect_urls": ["a:1"]}, parse_info),
    "letter": (_LETTER, _letter),
    "pack": (
        pack_messages([(b"s", None, b"x"), (b"t", b"NATS/1.0\r\n\r\n", b"")]),
        unpack_messages,
    ),
    "decision": (
        b"\x83\xa5batch\x01\xa5lanes\x91\x83\xa8previous\x00\xa4rows\x01\xa6pieces\x91\x05"
        b"\xa4name\xa1n",
        decode_decision,
    ),
}

_VALUES: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**63, 2**64, 10**30, -(10**30), "", "x", "\x00", "\x1b[2J", "ü"),
    *([], {}, [[]], [None], {"": None}, "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"),
    *("0001-01-01T00:00:00Z", "x" * 5000, {"a": {"b": [1, {}]}}),
]
_PIECES = [
    *(b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\x00", b"1e999", b"9" * 5000, b"null", b"{}", b"[]"),
    *(b'"', b"{", b"}", b"[" * 2000, b'{"a":' * 150, b"\xef\xbb\xbf", b"-", b"1e-9999", b"NaN"),
]


def _other(value: Any, rng: random.Random) -> Any:
    """The value with one part of it replaced, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        changed, key = dict(value), rng.choice(list(value))
        what = rng.random()
        if what < 0.1:
            del changed[key]
        elif what < 0.2:
            changed[str(rng.choice(_VALUES))] = rng.choice(_VALUES)
        else:
            changed[key] = _other(value[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], _other(value[at], rng), *value[at + rng.randrange(2) :]]
    return rng.choice(_VALUES)


def _spoiled(data: bytes, rng: random.Random) -> bytes:
    """The bytes with some of them replaced, removed or added."""
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((0, 1, 1, 2, 10)))
    piece = rng.choice((b"", rng.randbytes(1), rng.choice(_PIECES), data[at:end] * 2))
    return data[:at] + piece + (b"" if rng.random() < 0.1 else data[end:])


def mutated(document: Any, rng: random.Random) -> bytes:
    """What somebody may have written in place of the document, or of the bytes."""
    if not isinstance(document, bytes):
        for _ in range(rng.choice((0, 1, 1, 2))):
            document = _other(document, rng)
        document = json.dumps(document, ensure_ascii=rng.random() < 0.5).encode()
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        document = _spoiled(document, rng)
    return bytes(document)


@dataclass
class Figures(campaign.Figures):
    read: Counter[str] = field(default_factory=Counter)


def run(runs: int = 1_000_000, seed: int = 0) -> Figures:
    """A run is a document."""
    rng, figures = random.Random(seed), Figures()
    kinds = list(READERS)
    for number in range(runs):
        kind = kinds[number % len(kinds)]
        document, read = READERS[kind]
        data = mutated(document, rng)
        try:
            read(data)
            figures.read[kind] += 1
        except JetsparkError:
            pass
        except Exception as error:
            figures.wrong.append(f"{kind}, number {number}: {error!r}: {data[:2000]!r}")
        figures.count_run()
    return figures

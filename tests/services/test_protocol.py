"""Names and the wire form: strict readers take what we write, and we read what others write."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetspark import errors
from jetspark.documents.document import Duration
from jetspark.services import error_headers, protocol, service_error
from jetspark.services.protocol import (
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    decode_answer,
    encode_answer,
    verb_subject,
)
from jetspark.wire.headers import Headers
from jetspark.wire.service_api import ServiceVerb

VERSIONS = """
0.0.0 10.20.30 1.0.0-alpha 1.0.0-alpha.1 1.0.0-0.3.7 1.0.0-x-y.z 1.0.0+20130313
1.0.0-beta+exp.sha.5114f85 1.0.0+21AF26D3---117B344092BD 1.0.0--1
"""
NO_VERSIONS = "1 1.0 v1.0.0 01.0.0 1.0.0- 1.0.0-01 1.0.0+ 1.0.0-a..b 1.0.0.0 1.0.0-é ٣.0.0"
IDENTITY: dict[str, Any] = {"name": "n", "id": "i", "version": "1.0.0"}


def test_subjects_of_the_three_levels() -> None:
    assert verb_subject(ServiceVerb.PING) == "$SRV.PING"
    assert verb_subject(ServiceVerb.INFO, "n") == "$SRV.INFO.n"
    assert verb_subject(ServiceVerb.STATS, "n", "i", "acc.$SRV") == "acc.$SRV.STATS.n.i"
    with pytest.raises(errors.BadNameError, match="service"):
        verb_subject(ServiceVerb.PING, "a.b")
    with pytest.raises(errors.BadNameError, match="instance"):
        verb_subject(ServiceVerb.PING, "a", ">")


def test_statistics_have_every_field_and_a_time_with_six_digits() -> None:
    stats = ServiceStats(
        **IDENTITY,
        type=ServiceVerb.STATS.type,
        started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        endpoints=[
            EndpointStats(
                name="e",
                subject="s",
                processing_time=timedelta(microseconds=5),
                average_processing_time=timedelta(0),
            )
        ],
    )
    raw = json.loads(encode_answer(stats))
    assert raw == {
        **IDENTITY,
        "metadata": {},
        "type": "io.nats.micro.v1.stats_response",
        "started": "2026-01-02T03:04:05.000000Z",
        "endpoints": [
            {
                "name": "e",
                "subject": "s",
                "queue_group": "",
                "last_error": "",
                "data": None,
                "num_requests": 0,
                "num_errors": 0,
                "average_processing_time": 0,
                "processing_time": 5000,
            }
        ],
    }
    assert decode_answer(ServiceStats, encode_answer(stats)).endpoints[0].data is None


def test_answer_of_another_client_may_leave_out_fields_and_say_null() -> None:
    raw: dict[str, Any] = {**IDENTITY, "type": ServiceVerb.STATS.type, "metadata": None, "new": 1}
    raw["started"] = "2026-01-02T03:04:05.123456789Z"
    raw["endpoints"] = [
        {"name": "e", "subject": "s", "average_processing_time": 1500.7, "last_error": None}
    ]
    stats = decode_answer(ServiceStats, json.dumps(raw).encode())
    assert stats.metadata == {}
    assert stats.extra == {"new": 1}
    assert stats.endpoints[0].average_processing_time == Duration.from_ns(1501)
    assert stats.endpoints[0].last_error == ""
    assert stats.started is not None
    info = {**IDENTITY, "type": ServiceVerb.INFO.type, "endpoints": None, "description": None}
    assert decode_answer(ServiceInfo, json.dumps(info).encode()).endpoints == []


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff", b"[]", b"{}", b'{"name":1}', json.dumps({**IDENTITY, "type": "x"}).encode()],
)
def test_answer_of_another_kind_is_refused(payload: bytes) -> None:
    with pytest.raises(errors.DocumentError):
        decode_answer(ServicePing, payload)


def test_error_headers_are_one_line_and_keep_the_others() -> None:
    headers = error_headers(404, "no\r\nsuch\0 order", {"Trace": "1"})
    assert headers == Headers(
        {"Trace": "1", "Nats-Service-Error": "no such order", "Nats-Service-Error-Code": "404"}
    )
    assert len(error_headers(500, "x" * 5000)["Nats-Service-Error"]) == 1000
    assert error_headers(500, "\ud800")["Nats-Service-Error"] == "?"
    for wrong in (0, -1, 1.5, "404", None, True):
        with pytest.raises(errors.ConfigError, match="code"):
            error_headers(wrong, "x")  # type: ignore[arg-type]
    with pytest.raises(errors.BadHeaderError):
        error_headers(1, "x", {"a b": "1"})


def test_answer_is_an_error_when_it_has_one_of_the_headers() -> None:
    assert service_error(None) is None
    assert service_error(Headers({"a": "b"})) is None
    error = service_error(error_headers(404, "gone"), b"more")
    assert error is not None
    assert (error.code, error.description, error.data) == (404, "gone", b"more")
    assert str(error) == "Service error 404: gone"
    error = service_error(Headers({"Nats-Service-Error": "x"}))
    assert error is not None
    assert error.code == 0
    codes = {"400": 400, "9" * 9: 999_999_999}
    for code in (*codes, "", "x", "-1", "٤", "4²", "9" * 5000):
        error = service_error(Headers({"Nats-Service-Error-Code": code}))
        assert error is not None
        assert error.code == codes.get(code, 0)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", ">", "é", "a\n", "a\0"])
def test_wrong_service_name_is_refused(name: str) -> None:
    with pytest.raises(errors.BadNameError, match="Bad service name"):
        protocol.check_service_name("service", name)
    assert protocol.check_service_name("service", "A-b_9") == "A-b_9"


@pytest.mark.parametrize("version", [*NO_VERSIONS.split(), "", "1.0.0\n", " 1.0.0"])
def test_other_version_is_refused(version: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"^version is a semantic"):
        protocol.check_version(version)
    for semantic in VERSIONS.split():
        assert protocol.check_version(semantic) == semantic


def test_metadata_is_a_copy_without_reserved_or_empty_keys() -> None:
    given = {"region": "eu"}
    kept = protocol.checked_metadata(given)
    given["region"] = "us"
    assert kept == {"region": "eu"}
    for key in ("", "_nats", "_nats.level"):
        with pytest.raises(errors.ConfigError, match="metadata"):
            protocol.checked_metadata({key: "x"})


def test_group_is_a_prefix_that_may_be_empty_and_may_have_an_asterisk() -> None:
    assert protocol.check_group("", "") == ""
    assert protocol.check_group("", "a.*.b") == "a.*.b"
    assert protocol.check_group("a", "b") == "a.b"
    assert protocol.check_group("a", "") == "a"
    for wrong in ("a.>", ">"):
        with pytest.raises(errors.ConfigError, match="prefix"):
            protocol.check_group("", wrong)
    assert protocol.check_endpoint_subject("a.b", "c.*") == "a.b.c.*"
    for wrong in ("", "a b", "a.>.b", "a."):
        with pytest.raises(errors.BadSubjectError):
            protocol.check_endpoint_subject("g", wrong)

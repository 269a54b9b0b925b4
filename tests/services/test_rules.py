"""Names, versions, subjects and metadata of services, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from jetspark.errors import BadNameError, BadQueueError, BadSubjectError, ConfigError
from jetspark.services import protocol


@pytest.mark.parametrize("name", ["a", "A-b_9", "-", "0"])
def test_service_name_is_of_letters_digits_dash_and_underscore(name: str) -> None:
    assert protocol.check_service_name("service", name) == name


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", ">", "é", "a\n", "a\0", 5, None, b"a"])
def test_wrong_service_name_is_refused(name: Any) -> None:
    with pytest.raises(BadNameError, match="Bad service name"):
        protocol.check_service_name("service", name)


@pytest.mark.parametrize(
    "version",
    [
        "0.0.0",
        "1.2.3",
        "10.20.30",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-0.3.7",
        "1.0.0-x-y.z",
        "1.0.0+20130313",
        "1.0.0-beta+exp.sha.5114f85",
        "1.0.0+21AF26D3---117B344092BD",
        "1.0.0--1",
    ],
)
def test_semantic_version_is_taken(version: str) -> None:
    assert protocol.check_version(version) == version


@pytest.mark.parametrize(
    "version",
    [
        "",
        "1",
        "1.0",
        "v1.0.0",
        "01.0.0",
        "1.0.0-",
        "1.0.0-01",
        "1.0.0+",
        "1.0.0-a..b",
        "1.0.0\n",
        "1.0.0.0",
        " 1.0.0",
        "1.0.0-é",
        "٣.0.0",
        1,
        None,
    ],
)
def test_other_version_is_refused(version: Any) -> None:
    with pytest.raises(ConfigError, match=r'^version is a semantic version such as "1\.2\.0"'):
        protocol.check_version(version)


def test_metadata_is_a_copy() -> None:
    given = {"region": "eu"}
    kept = protocol.checked_metadata(given)
    given["region"] = "us"
    assert kept == {"region": "eu"}
    assert protocol.checked_metadata(None) == {}


@pytest.mark.parametrize("key", ["", "_nats", "_nats.level"])
def test_metadata_key_that_is_reserved_or_empty_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="metadata"):
        protocol.checked_metadata({key: "x"})


def test_group_is_a_prefix_that_may_be_empty_and_may_have_an_asterisk() -> None:
    assert protocol.check_group("", "") == ""
    assert protocol.check_group("", "a.*.b") == "a.*.b"
    assert protocol.check_group("a", "b") == "a.b"
    assert protocol.check_group("a", "") == "a"
    for wrong in ("a.>", ">"):
        with pytest.raises(ConfigError, match="prefix"):
            protocol.check_group("", wrong)
    for wrong in ("a..b", ".a", "a b"):
        with pytest.raises(BadSubjectError):
            protocol.check_group("", wrong)


def test_endpoint_subject_follows_that_of_its_group() -> None:
    assert protocol.check_endpoint_subject("a.b", "c.*") == "a.b.c.*"
    assert protocol.check_endpoint_subject("", ">") == ">"
    for wrong in ("", "a b", "a.>.b", "a."):
        with pytest.raises(BadSubjectError):
            protocol.check_endpoint_subject("g", wrong)


def test_queue_group_has_no_blanks() -> None:
    assert protocol.check_queue_group("") == ""
    with pytest.raises(BadQueueError):
        protocol.check_queue_group("a b")

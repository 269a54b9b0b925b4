"""What the statuses that end a pull request mean, and the request itself."""

from __future__ import annotations

import json

import pytest

from jetspark.errors import ConsumerDeletedError, ConsumerIsPushError, PullError
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.pull import (
    PENDING_MESSAGES,
    PullEnd,
    PullLimit,
    PullRequest,
    delivery_size,
    limit_of,
    number_in,
    pull_end,
    pull_error,
)
from jetspark.wire.status import Status

MEANINGS = [
    (404, "No Messages", PullEnd.ORDINARY),
    (408, "Request Timeout", PullEnd.ORDINARY),
    (409, "Batch Completed", PullEnd.ORDINARY),
    (409, "Message Size Exceeds MaxBytes", PullEnd.TOO_LARGE),
    (409, "Leadership Change", PullEnd.NO_LEADER),
    (409, "Server Shutdown", PullEnd.NO_LEADER),
    (503, "", PullEnd.NO_LEADER),
    (423, "Nats-Wrong-Pin-Id", PullEnd.PIN_LOST),
    (409, "Exceeded MaxWaiting", PullEnd.REFUSED),
    (409, "Exceeded MaxRequestBatch of 5", PullEnd.LIMITED),
    (409, "Exceeded MaxRequestMaxBytes of 5000", PullEnd.LIMITED),
    (409, "Exceeded MaxRequestExpires of 1m0.5s", PullEnd.LIMITED),
    (409, "Exceeded MaxRequestBatch of several", PullEnd.INVALID),
    (409, "Exceeded MaxRequestBatch of 0", PullEnd.INVALID),
    (409, "Exceeded MaxRequestExpires of 5", PullEnd.INVALID),
    (409, "Exceeded MaxRequestSomething of 5", PullEnd.INVALID),
    (429, "Too Many", PullEnd.REFUSED),
    (400, "Bad Request", PullEnd.INVALID),
    (409, "Consumer Deleted", PullEnd.UNUSABLE),
    (409, "Consumer is push based", PullEnd.UNUSABLE),
]


@pytest.mark.parametrize(("code", "description", "end"), MEANINGS)
def test_each_status_that_ends_a_pull_request_has_one_meaning(
    code: int, description: str, end: PullEnd
) -> None:
    assert pull_end(Status(code, description)) is end


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("Batch of 100", PullLimit(batch=100)),
        ("MaxBytes of 2048", PullLimit(max_bytes=2048)),
        ("Expires of 5s", PullLimit(expires=5)),
        ("Expires of 1h2m3.5s", PullLimit(expires=3723.5)),
        ("Expires of 250ms", PullLimit(expires=0.25)),
        ("Expires of 0s", None),
    ],
)
def test_the_limit_that_a_request_exceeded(limit: str, found: PullLimit | None) -> None:
    assert limit_of(Status(409, f"Exceeded MaxRequest{limit}")) == found


@pytest.mark.parametrize(
    ("description", "error"),
    [
        ("Consumer Deleted", ConsumerDeletedError),
        ("Consumer is push based", ConsumerIsPushError),
        ("Exceeded MaxWaiting", PullError),
    ],
)
def test_the_error_for_a_refused_pull_request(description: str, error: type[PullError]) -> None:
    found = pull_error(Status(409, description))
    assert type(found) is error
    assert (found.status, found.description) == (409, description)


@pytest.mark.parametrize(
    ("block", "number"),
    [
        (b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 7\r\n\r\n", 7),
        (b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: x\r\n\r\n", None),
        (b"NATS/1.0 408 Request Timeout\r\n\r\n", None),
        (b"nonsense", None),
        (None, None),
    ],
)
def test_the_number_of_undelivered_messages(block: bytes | None, number: int | None) -> None:
    assert number_in(block, PENDING_MESSAGES) == number


def test_a_pull_request_has_only_the_fields_that_were_given() -> None:
    assert json.loads(PullRequest(batch=5).encode()) == {"batch": 5}
    request = PullRequest(batch=1, no_wait=True, group="g", id="pin", priority=0)
    assert json.loads(request.encode()) == {
        "batch": 1,
        "no_wait": True,
        "group": "g",
        "id": "pin",
        "priority": 0,
    }


def test_the_size_of_a_delivery_counts_subject_reply_headers_and_payload() -> None:
    assert delivery_size(MessageFrame(1, b"ab", b"cde", None, b"fghi")) == 9

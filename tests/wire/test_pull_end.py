"""What the statuses that end a pull request mean, and the request itself."""

from __future__ import annotations

import json

import pytest

from jetspark.errors import ConsumerDeletedError, ConsumerIsPushError, PullError
from jetspark.wire import pull
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.status import Status

MEANINGS = [
    (404, "No Messages", pull.PullEnd.ORDINARY),
    (408, "Request Timeout", pull.PullEnd.ORDINARY),
    (409, "Batch Completed", pull.PullEnd.ORDINARY),
    (409, "Message Size Exceeds MaxBytes", pull.PullEnd.TOO_LARGE),
    (409, "Leadership Change", pull.PullEnd.NO_LEADER),
    (409, "Server Shutdown", pull.PullEnd.NO_LEADER),
    (503, "", pull.PullEnd.NO_LEADER),
    (423, "Nats-Wrong-Pin-Id", pull.PullEnd.PIN_LOST),
    (409, "Exceeded MaxWaiting", pull.PullEnd.REFUSED),
    (409, "Exceeded MaxRequestBatch of 5", pull.PullEnd.LIMITED),
    (409, "Exceeded MaxRequestMaxBytes of 5000", pull.PullEnd.LIMITED),
    (409, "Exceeded MaxRequestExpires of 1m0.5s", pull.PullEnd.LIMITED),
    (409, "Exceeded MaxRequestBatch of several", pull.PullEnd.INVALID),
    (409, "Exceeded MaxRequestBatch of 0", pull.PullEnd.INVALID),
    (409, "Exceeded MaxRequestExpires of 5", pull.PullEnd.INVALID),
    (409, "Exceeded MaxRequestSomething of 5", pull.PullEnd.INVALID),
    (429, "Too Many", pull.PullEnd.REFUSED),
    (400, "Bad Request", pull.PullEnd.INVALID),
    (409, "Consumer Deleted", pull.PullEnd.UNUSABLE),
    (409, "Consumer is push based", pull.PullEnd.UNUSABLE),
]


@pytest.mark.parametrize(("code", "description", "end"), MEANINGS)
def test_each_ending_status_has_one_meaning(code: int, description: str, end: pull.PullEnd) -> None:
    assert pull.pull_end(Status(code, description)) is end


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("Batch of 100", pull.PullLimit(batch=100)),
        ("MaxBytes of 2048", pull.PullLimit(max_bytes=2048)),
        ("Expires of 5s", pull.PullLimit(expires=5)),
        ("Expires of 1h2m3.5s", pull.PullLimit(expires=3723.5)),
        ("Expires of 250ms", pull.PullLimit(expires=0.25)),
        ("Expires of 0s", None),
    ],
)
def test_the_limit_that_a_request_exceeded(limit: str, found: pull.PullLimit | None) -> None:
    assert pull.limit_of(Status(409, f"Exceeded MaxRequest{limit}")) == found


@pytest.mark.parametrize(
    ("description", "error"),
    [
        ("Consumer Deleted", ConsumerDeletedError),
        ("Consumer is push based", ConsumerIsPushError),
        ("Exceeded MaxWaiting", PullError),
    ],
)
def test_the_error_for_a_refused_pull_request(description: str, error: type[PullError]) -> None:
    found = pull.pull_error(Status(409, description))
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
    assert pull.number_in(block, pull.PENDING_MESSAGES) == number


def test_a_pull_request_has_only_the_fields_that_were_given() -> None:
    assert json.loads(pull.PullRequest(batch=5).encode()) == {"batch": 5}
    request = pull.PullRequest(batch=1, no_wait=True, group="g", id="pin", priority=0)
    assert json.loads(request.encode()) == {
        "batch": 1,
        "no_wait": True,
        "group": "g",
        "id": "pin",
        "priority": 0,
    }


def test_the_size_of_a_delivery_counts_subject_reply_headers_and_payload() -> None:
    assert pull.delivery_size(MessageFrame(1, b"ab", b"cde", None, b"fghi")) == 9

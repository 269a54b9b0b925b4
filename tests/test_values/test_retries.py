from __future__ import annotations

import pytest

from jetspark import errors
from jetspark.err_codes import INSUFFICIENT_RESOURCES, STREAM_NOT_FOUND, STREAM_WRONG_LAST_SEQUENCE
from jetspark.errors import APIError
from jetspark.retries import FULL, TRANSIENT_CODES, Backoff, is_transient, is_transient_for_client


@pytest.mark.parametrize("code", sorted(TRANSIENT_CODES))
def test_a_refusal_of_the_table_is_transient(code: int) -> None:
    assert is_transient(APIError(503, code, ""))


@pytest.mark.parametrize(
    ("code", "err_code", "transient"),
    [
        (503, 0, True),
        (400, 0, False),
        (400, STREAM_WRONG_LAST_SEQUENCE, False),
        (404, STREAM_NOT_FOUND, False),
    ],
)
def test_refusals_outside_the_table_are_not_transient(
    code: int, err_code: int, transient: bool
) -> None:
    assert is_transient(APIError(code, err_code, "")) is transient


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (errors.BrokenSocketError(""), True),
        (errors.ServerRefusedError(""), True),
        (errors.RequestTimeoutError(""), True),
        (errors.NoRespondersError("s"), True),
        (errors.ProtocolError(""), True),
        (errors.AuthExpiredError(""), False),
        (errors.TLSError(""), False),
        (errors.SecureConnectionWantedError(""), False),
        (errors.ConfigError(""), False),
        (errors.LedgerError(""), False),
    ],
)
def test_failures_of_the_connection_pass_unless_a_person_has_to_act(
    error: errors.JetsparkError, transient: bool
) -> None:
    assert is_transient(error) is transient


def test_for_a_client_a_closed_connection_is_not_transient() -> None:
    assert is_transient(errors.ConnectionClosedError())
    assert not is_transient_for_client(errors.ConnectionClosedError())
    assert not is_transient_for_client(errors.ConnectionLostError())
    assert is_transient_for_client(errors.BrokenSocketError(""))
    assert is_transient_for_client(errors.RequestTimeoutError(""))
    assert is_transient_for_client(errors.OutboundBufferError(""))
    assert is_transient_for_client(errors.NoStreamResponseError("s"))


def test_a_caller_may_leave_out_codes_of_the_table() -> None:
    full = APIError(503, INSUFFICIENT_RESOURCES, "")
    assert is_transient(full)
    assert not is_transient(full, but=FULL)
    assert not is_transient_for_client(full, but=FULL)


def test_pauses_double_up_to_the_longest() -> None:
    assert [Backoff(0.5, 3.0).pause(attempts) for attempts in (1, 2, 3, 4, 5000)] == [
        *(0.5, 1.0, 2.0, 3.0, 3.0)
    ]

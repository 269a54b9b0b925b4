"""One answer to whether an error is transient."""

from __future__ import annotations

import pytest

from jetspark import errors
from jetspark.err_codes import STREAM_NOT_FOUND, WRONG_LAST_SEQUENCE
from jetspark.errors import APIError
from jetspark.transient import TRANSIENT_CODES, is_transient


@pytest.mark.parametrize("code", sorted(TRANSIENT_CODES))
def test_a_refusal_of_the_table_is_transient(code: int) -> None:
    assert is_transient(APIError(503, code, ""))


@pytest.mark.parametrize(
    ("code", "err_code", "transient"),
    [
        (503, 0, True),
        (400, 0, False),
        (400, WRONG_LAST_SEQUENCE, False),
        (404, STREAM_NOT_FOUND, False),
    ],
)
def test_other_refusals(code: int, err_code: int, transient: bool) -> None:
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

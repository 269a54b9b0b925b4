"""Codes of errors, as a service writes them."""

from __future__ import annotations

import pytest

from jetspark.wire.headers import Headers
from jetspark.wire.service_api import service_error


@pytest.mark.parametrize(
    ("code", "number"),
    [("400", 400), ("", 0), ("x", 0), ("-1", 0), ("٤", 0), ("9" * 9, 999_999_999), ("9" * 5000, 0)],
)
def test_any_code_is_read(code: str, number: int) -> None:
    error = service_error(Headers({"Nats-Service-Error-Code": code}))
    assert error is not None
    assert error.code == number

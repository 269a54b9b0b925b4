"""The ledger of an exactly-once writer: refusals that decide nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.support.streams import Admin, answered

from jetspark.connection.options import make_options
from jetspark.err_codes import STREAM_WRONG_LAST_SEQUENCE, STREAM_WRONG_LAST_SEQUENCE_CONSTANT
from jetspark.errors import WrongLastSequenceError
from jetspark.stream_writes.ledger import Ledger, ledger_stream


def refusal(code: int) -> bytes:
    error = {"code": 400, "err_code": code, "description": "wrong last sequence"}
    return msgspec.json.encode({"error": error})


@pytest.mark.parametrize(
    ("code", "passes"),
    [(STREAM_WRONG_LAST_SEQUENCE_CONSTANT, True), (STREAM_WRONG_LAST_SEQUENCE, False)],
)
def test_rows_whose_first_attempt_the_replicas_are_storing_are_staged_again(
    admin: Admin, unique: Callable[[str], str], code: int, passes: bool
) -> None:
    """As after an ack that was lost with its leader; nothing of the subject can be read yet."""
    target = unique("T")
    admin.create(ledger_stream(target), target)
    answers = [refusal(code)]
    if passes:
        answers.append(b'{"stream":"%b","seq":7}' % ledger_stream(target).encode())
    options = make_options(admin.url)
    with answered(options, f"_spark.{target}.stage.q.*", answers):
        ledger = Ledger(options, target, "q")
        if passes:
            assert ledger.stage_pack(b"rows") == 7
        else:
            with pytest.raises(WrongLastSequenceError):
                ledger.stage_pack(b"rows")

"""What Spark says of a failure becomes a sentence of ours: what it was, and what to do."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from jetspark.spark.failures import explain

ENDED = "[STREAM_FAILED] Query terminated.\njetspark.errors."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030\n"
            "Caused by: java.io.IOException: No space left on device",
            "No space left on device: free some, and run the same again, which goes on where it "
            "was.",
        ),
        (
            ": org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to "
            "find the data source: x. SQLSTATE: 42K02\n\tat a.b",
            "Failed to find the data source: x.",
        ),
        ("Task failed\njetspark.errors.re: a\njetspark.errors.Nobody: b", "Task failed"),
        ("[PARSE_SYNTAX_ERROR] Syntax error at 'a'. SQLSTATE: 42601", "Syntax error at 'a'."),
        (
            "[STREAM_FAILED] Broken pipe SQLSTATE: XXKST",
            "A Python process of Spark has ended while it was needed: it was killed, the memory "
            "may have run out. See to that, and run the same again, which goes on where it was.",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker "
            "failed to connect back. SQLSTATE: XXKST",
            "A Python process of Spark did not start in the ten seconds that Spark gives it: the "
            "machine is too busy, or PYSPARK_PYTHON names a Python without pyspark. See to that, "
            "and run the same again, which goes on where it was.",
        ),
    ],
)
def test_sparks_marks_are_no_part_of_the_sentence(text: str, sentence: str) -> None:
    assert str(explain(RuntimeError(text))) == sentence


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("AuthorizationError: nats://h:4222 refused these credentials.", "Correct that, here or "),
        ("TLSError: The certificate has expired.", "Correct that, here or in"),
        (
            "NoServersError: No server answers.",
            "The options 'readTimeout' and 'publishTimeout' say",
        ),
    ],
)
def test_a_refused_login_is_to_be_corrected_not_to_be_tried_again(error: str, advice: str) -> None:
    said = str(explain(StreamingQueryException(f"{ENDED}{error}\n")))
    assert advice in said
    assert error.partition(": ")[2] in said


class _Failed(RuntimeError):
    """As PySpark's exceptions keep what Java says."""

    def __init__(self, text: str, trace: str) -> None:
        super().__init__(text)
        self._cause = RuntimeError()
        self._cause._stackTrace = trace  # type: ignore[attr-defined]


_CLEANING = (
    "\tSuppressed: org.apache.spark.SparkException: abort: Traceback (most recent call last):\n"
    "jetspark.errors.ConnectionFailure: while cleaning up\n\n\tat a.b\n"
)


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        (
            "org.apache.spark.SparkException: Writing job failed.\n\tat a.b\n" + _CLEANING +
            "Caused by: org.apache.spark.SparkException: [X] commit: Traceback:\n"
            "jetspark.errors.ServerRefusedError: Connection refused.\n\n\tat a.b\n" + _CLEANING,
            "Connection refused.",
        ),
        (
            "org.apache.spark.SparkException: Writing job failed.\n\tat a.b\n"
            "Caused by: java.io.IOException: Broken disk\n\tat a.b\n",
            "Broken disk",
        ),
        (
            "java.lang.IllegalStateException: batch 0 doesn't exist\n\tat a.b",
            "The query's checkpoint has lost its batch 0: it was removed while the query ran. To "
            "start over, remove what is left of it and of the query's table, or name other "
            "folders.",
        ),
    ],
)  # fmt: skip
def test_the_reason_of_a_failed_commit_is_told(trace: str, sentence: str) -> None:
    text = "[STREAM_FAILED] Writing job failed. SQLSTATE: XXKST"
    assert str(explain(_Failed(text, trace))) == sentence

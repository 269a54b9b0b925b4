"""`jetspark table` with names and numbers that are wrong: a sentence each, before anything else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from jetspark.cli import app
from jetspark.tables.formats import Format, open_or_create_table
from jetspark.tables.table import TableName


def option(text: str) -> tuple[str, str]:
    return ("--storage", text)


STORE = [
    *("s3://bucket/none", "--format", "delta", *option("max_retries=0")),
    *(*option("AWS_ENDPOINT_URL=http://127.0.0.1:9"), *option("AWS_ACCESS_KEY_ID=me")),
    *option("AWS_SECRET_ACCESS_KEY=s3cret"),
]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["info", "nobody:lake.x"], "PyIceberg has no configuration of a catalog 'nobody': "),
        (["info", "nobody:x"], "'nobody:x' has no namespace: write nobody:namespace.x "),
        (["info", "nowhere"], "There is no Delta or Iceberg table at 'nowhere'."),
        (["vacuum", "nowhere", "--keep", "7"], "--keep must be hours, days or weeks, such as "),
        (["info", *STORE], "s3://bucket/none cannot be read: URL scheme is not allowed."),
        (["info", *STORE, *option("AWS_ALLOW_HTTP=true")], "s3://bucket/none cannot be reached: "),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert app.run(["table", *arguments]) == 1
    err = capsys.readouterr().err
    assert err.replace("\n", " ").startswith(said)
    assert "Traceback" not in err
    assert "\x1b" not in err
    assert "s3cret" not in err


def test_a_very_long_retention_keeps_everything(tmp_path: Path) -> None:
    open_or_create_table(
        Format.DELTA, TableName(path=str(tmp_path)), pa.schema([("a", pa.int64())]), ()
    )
    assert app.run(["table", "vacuum", str(tmp_path), "--keep", "999999999999d"]) == 0

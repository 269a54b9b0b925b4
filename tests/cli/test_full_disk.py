"""`jetspark ingest` into a file system that becomes full: a tmpfs, where one may be mounted."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.support.streams import Admin
from tests.support.table_readers import column

MESSAGES, SIZE, PER_BATCH = 1200, 2000, 200


def _mount(place: Path, *options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for about three batches."""
    place = tmp_path / "small"
    place.mkdir()
    if not _mount(place, "size=1536k"):
        pytest.skip("this user may not mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.full
def test_a_full_disk_is_said_and_with_more_room_the_same_command_goes_on(
    admin: Admin, small: Path, run_in_spark: Run
) -> None:
    name = admin.stream()
    admin.fill([(name, os.urandom(SIZE)) for _ in range(MESSAGES)])
    table = small / "table"
    ingest = ["ingest", name, "--to", str(table), "--max-offsets-per-trigger", str(PER_BATCH)]
    code, out, err = run_in_spark(*ingest)
    sentence, *log = err.splitlines()[-2:]
    assert (code, out) == (1, ""), err
    assert sentence == (
        "No space left on device: free some, and run the same again, which goes on where it was."
    )
    assert [line.partition(":")[0] for line in log] == ["Spark's log"]
    before = column("delta", table, "seq")
    assert 0 < len(before) < MESSAGES
    assert before == Counter(range(1, len(before) + 1))
    assert _mount(small, "remount", "size=64m")
    code, out, err = run_in_spark(*ingest)
    assert (code, out) == (0, f"{MESSAGES - len(before):,} rows written to {table}.\n"), err
    assert column("delta", table, "seq") == Counter(range(1, MESSAGES + 1))

"""`jetspark backup`: what a backup holds, and extraction, without a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run
from tests.support.processes import first_document, python
from tests.support.streams import Admin

from jetspark import blocking


@pytest.fixture
def folder(admin: Admin, url: str, unique: Callable[[str], str], tmp_path: Path) -> Path:
    name = unique("SAVED")
    admin.create(name, "saved.>")
    admin.fill([(f"saved.{number % 30}", b"x" * number) for number in range(1, 1001)])
    with blocking.connect(url) as nc:
        nc.jetstream().backup_stream(name, tmp_path / "b")
    admin.call(f"STREAM.DELETE.{name}")
    return tmp_path / "b"


def test_info_counts_by_subject(folder: Path, run: Run) -> None:
    def info(*more: str) -> tuple[int, str, str]:
        return run("backup", "info", str(folder), *more, server="")

    code, said, _ = info()
    assert code == 0
    assert "messages  1,000" in said
    assert "sequence 1 at 20" in said
    assert "sequence 1,000 at 20" in said
    assert "saved.1         34" in said
    assert "and 10 more subjects" in said
    document = json.loads(info("--subjects", "saved.1,saved.2", "--json")[1])
    assert document["subjects"] == {"saved.1": 34, "saved.2": 34}
    assert (document["first"]["seq"], document["last"]["seq"]) == (1, 992)
    assert json.loads(info("--subjects", "saved.x", "--json")[1])["first"] is None
    code, _, said = info("--subjects", "save.a")
    assert code == 1
    assert "--subjects: no message under 'save.a' is in the backup" in said
    assert "did you mean 'saved.>'?" in said


def test_a_range_is_extracted_to_parquet(folder: Path, tmp_path: Path, run: Run) -> None:
    def extract(to: Path) -> tuple[int, str, str]:
        part = ["--start", "10", "--end", "20", "--subjects", "saved.>"]
        return run("backup", "extract", str(folder), "--to", str(to), *part, server="")

    file = tmp_path / "part.parquet"
    assert extract(file)[1].startswith("Extracted 10 messages of stream SAVED_")
    table = pq.read_table(file)
    assert table["seq"].to_pylist() == list(range(10, 20))
    assert table["data"].to_pylist() == [b"x" * number for number in range(10, 20)]
    link = tmp_path / "link.parquet"
    link.symlink_to("nowhere")
    for there in (file, link):
        assert extract(there) == (1, "", f"{there} exists already: name a new file.\n")
    assert link.is_symlink()


def test_what_a_killed_extraction_has_left_is_removed_by_the_next(
    folder: Path, tmp_path: Path, run: Run
) -> None:
    """To a file whose name is as long as can be."""
    into = tmp_path / "new"
    into.mkdir()
    file = into / f"{'x' * 247}.parquet"
    stuck = (
        "import sys; from jetspark.cli import app, backup\n"
        "def wait(*_, **__): print('{}', flush=True); sys.stdin.read()\n"
        "backup._read_with_progress = wait\n"
        "app.run(['backup', 'extract', *sys.argv[1:]])\n"
    )
    arguments = (str(folder), "--to", str(file))
    with python(stuck, *arguments) as killed:
        first_document(killed)
        killed.kill()
        killed.wait()
    assert len(list(into.iterdir())) == 1
    assert run("backup", "extract", *arguments, server="")[0] == 0
    assert list(into.iterdir()) == [file]
    assert pq.read_table(file).num_rows == 1000


def test_mistakes_are_one_sentence_and_leave_no_file(
    folder: Path, tmp_path: Path, run: Run
) -> None:
    (folder / "stream.tar.s2").write_bytes((folder / "stream.tar.s2").read_bytes()[:-9] + bytes(9))
    file = tmp_path / "new" / "part.parquet"
    for arguments, sentence in {
        ("info", str(tmp_path)): "is not a backup of a stream: there is no file backup.json in it.",
        ("info", str(folder)): "The archive is damaged",
        ("info", str(folder), "--subjects", ","): "--subjects is empty",
        ("extract", str(folder), "--to", str(file)): f"Cannot write {file}: No such file",
        ("extract", str(folder), "--to", str(tmp_path / "p")): "The archive is damaged",
        ("extract", str(folder), "--to", "p", "--start", "5", "--end", "2"): "--end 2 is before",
        ("extract", str(folder), "--to", "p", "--start", "-1"): "--start must be at least 1",
        ("extract", str(folder), "--to", "p", "--end", "0"): "--end must be at least 1",
        ("extract", str(folder), "--to", ""): "--to is empty",
        ("extract", str(folder), "--to", "s3://a/b"): "--to is a file on this machine, not s3://",
        ("extract", str(folder), "--to", "x" * 256): "(at most 255 bytes).",
        ("info", "x/" * 3000): "folder is too long: ",
        ("info", str(folder), "--subjects", "saved.*,saved.a"): "'saved.*' and 'saved.a' overlap",
        ("info", str(folder / "no")): "is not a backup of a stream: there is no such folder.",
        ("info", "hdfs://nowhere/b"): "Cannot read the backup hdfs://nowhere/b: ",
    }.items():
        code, _, said = run("backup", *arguments, server="")
        assert sentence in said
        assert (code, said.count("\n")) == (1, 1)
    assert [one.name for one in tmp_path.iterdir()] == ["b"]

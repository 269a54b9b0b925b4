"""Temporary folders: a kill leaves one behind only until the next command."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from tests.support.processes import finish, first_document, python

from jetspark import files
from jetspark.cli.folders import temporary_folder

HOLDER = """
import json, sys
from jetspark.cli.folders import temporary_folder
with temporary_folder("jetspark-x-") as folder:
    (folder / "big").write_text("x")
    print(json.dumps({"folder": str(folder)}), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_a_killed_process_s_folder_is_removed_by_the_next_and_a_living_one_s_stays(
    tmp_path: Path,
) -> None:
    with python(HOLDER) as killed, python(HOLDER) as living:
        left, held = (Path(first_document(one)["folder"]) for one in (killed, living))
        killed.kill()
        killed.wait()
        with temporary_folder("jetspark-y-"):
            assert left.exists()  # of another command
        with temporary_folder("jetspark-x-") as folder:
            assert names(tmp_path) == {held.name, folder.name}
            assert (held / "big").exists()
        assert names(tmp_path) == {held.name}
        finish(living)
    assert names(tmp_path) == set()


def test_a_folder_whose_owner_may_live_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ["jetspark-x-0123456789abcdef", "jetspark-x-mine", f"jetspark-x-{'0' * 16}"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / others[1] / files.LOCK).write_text(socket.gethostname())
    (tmp_path / others[2] / files.LOCK).write_text("of another host")
    (tmp_path / f"jetspark-x-{'1' * 16}").symlink_to(tmp_path / others[1])
    before = names(tmp_path)
    with temporary_folder("jetspark-x-"):
        pass
    assert names(tmp_path) == before
    monkeypatch.setattr(files, "fcntl", None)
    with temporary_folder("jetspark-x-") as folder:
        assert folder.exists()
    assert names(tmp_path) == before


def test_a_folder_that_was_removed_meanwhile_is_no_error() -> None:
    with temporary_folder("jetspark-x-") as folder:
        shutil.rmtree(folder)

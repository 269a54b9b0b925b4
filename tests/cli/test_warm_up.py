"""`jetspark warm-up`, and what commands of Spark do about the class archive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from jetspark.cli import app
from jetspark.spark.fast_start import class_archive

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(class_archive.VARIABLE, str(tmp_path / "archives"))
    return tmp_path / "archives"


@pytest.mark.spark
def test_archive_is_made_and_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    monkeypatch.setattr(class_archive, "_train", lambda file: file.write_text("classes") and "")
    assert app.run(["warm-up"]) == app.DONE
    (archive,) = folder.glob("*.jsa")
    assert capsys.readouterr().out == f"Spark starts faster with {archive}.\n"
    assert app.run(["warm-up", "--remove"]) == app.DONE
    assert capsys.readouterr().out == "1 removed.\n"
    assert not list(folder.glob("spark-*"))


@pytest.mark.spark
def test_remove_reports_an_archive_that_another_process_creates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = []

    def train(file: Path) -> str:
        codes.append(app.run(["warm-up", "--remove"]))
        return "" if file.write_text("classes") else "nothing written"

    monkeypatch.setattr(class_archive, "_train", train)
    assert app.run(["warm-up"]) == app.DONE
    assert codes == [app.FAILED]
    assert capsys.readouterr().err == (
        "Another process is creating an archive: run this again afterwards.\n"
    )


@pytest.mark.spark
def test_failure_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(class_archive, "_train", lambda _file: "Traceback\nno space left")
    assert app.run(["warm-up"]) == app.FAILED
    assert capsys.readouterr().err == "Spark does not start faster: no space left\n"


@pytest.mark.spark
def test_a_full_disk_is_told_with_its_folder_and_no_archive_is_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    monkeypatch.setattr(class_archive, "_train", lambda _file: pytest.fail("begun"))
    free = SimpleNamespace(free=50_331_648)
    monkeypatch.setattr("shutil.disk_usage", lambda place: free if place == folder else None)
    assert app.run(["warm-up"]) == app.FAILED
    assert capsys.readouterr().err == (
        f"Spark does not start faster: the disk of {folder} has 50 MB free, and an archive needs "
        "about 200: free some, or set JETSPARK_CLASS_ARCHIVES to a folder on another disk.\n"
    )
    archive = class_archive.class_archive()
    assert archive is not None
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("begun"))
    assert not archive.make_later()
    assert not list(folder.glob("spark-*"))
    free.free = 10**9  # the user has freed some
    monkeypatch.setattr(class_archive, "_train", lambda file: file.write_text("classes") and "")
    assert app.run(["warm-up"]) == app.DONE


def test_switched_off_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(class_archive.VARIABLE, "off")
    assert app.run(["warm-up"]) == app.FAILED
    assert capsys.readouterr().err == "It is switched off: JETSPARK_CLASS_ARCHIVES=off.\n"


def test_without_a_folder_it_says_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(class_archive.VARIABLE, "/proc/archives")
    assert app.run(["warm-up"]) == app.FAILED
    assert "set JETSPARK_CLASS_ARCHIVES to" in capsys.readouterr().err


def test_with_a_folder_of_sparks_configuration_it_says_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert class_archive.class_archive() is None  # none is made in the background either
    assert app.run(["warm-up"]) == app.FAILED
    assert capsys.readouterr().err == (
        "Java takes no archive where Spark has a configuration folder, here "
        f"{tmp_path}: unset SPARK_CONF_DIR, or rename the folder, and give settings with --conf.\n"
    )

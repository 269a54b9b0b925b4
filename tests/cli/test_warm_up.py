"""`jetspark warm-up`, and what commands of Spark do about the class archive."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from collections.abc import Callable
from pathlib import Path

from jetspark.cli import app
from jetspark.spark.fast_start import class_archive, switch


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(class_archive.VARIABLE, str(tmp_path / "archives"))
    return tmp_path / "archives"


@pytest.fixture
def warm_up(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    return lambda *more: (app.run(["warm-up", *more]), *capsys.readouterr())


Command = Callable[..., tuple[int, str, str]]


@pytest.mark.spark
def test_archive_is_made_and_removed(
    monkeypatch: pytest.MonkeyPatch, warm_up: Command, folder: Path
) -> None:
    monkeypatch.setattr(
        class_archive, "_run_training", lambda file: file.write_text("classes") and ""
    )
    code, out, err = warm_up()
    (archive,) = folder.glob("*.jsa")
    assert (code, out, err) == (app.SUCCEEDED, f"Spark starts faster with {archive}.\n", "")
    assert warm_up("--remove") == (app.SUCCEEDED, "1 removed.\n", "")
    assert not list(folder.glob("spark-*"))


@pytest.mark.spark
def test_remove_reports_an_archive_that_another_process_creates(
    monkeypatch: pytest.MonkeyPatch, warm_up: Command
) -> None:
    told = []

    def train(file: Path) -> str:
        told.append(warm_up("--remove"))
        return "" if file.write_text("classes") else "nothing written"

    monkeypatch.setattr(class_archive, "_run_training", train)
    assert warm_up()[0] == app.SUCCEEDED
    says = "Another process is creating an archive: run this again afterwards.\n"
    assert told == [(app.FAILED, "", says)]


@pytest.mark.spark
def test_failure_is_one_sentence(monkeypatch: pytest.MonkeyPatch, warm_up: Command) -> None:
    monkeypatch.setattr(class_archive, "_run_training", lambda _file: "Traceback\nno space left")
    assert warm_up() == (app.FAILED, "", "Spark does not start faster: no space left\n")


@pytest.mark.spark
def test_a_full_disk_is_told_with_its_folder_and_no_archive_is_begun(
    monkeypatch: pytest.MonkeyPatch, warm_up: Command, folder: Path
) -> None:
    monkeypatch.setattr(class_archive, "_run_training", lambda _file: pytest.fail("begun"))
    free = SimpleNamespace(free=50_331_648)
    monkeypatch.setattr("shutil.disk_usage", lambda place: free if place == folder else None)
    says = (
        f"Spark does not start faster: the disk of {folder} has 50 MB free, and an archive needs "
        "about 200: free some, or set JETSPARK_CLASS_ARCHIVES to a folder on another disk.\n"
    )
    assert warm_up() == (app.FAILED, "", says)
    archive = class_archive.class_archive()
    assert archive is not None
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("begun"))
    assert not archive.make_later()
    assert not list(folder.glob("spark-*"))
    free.free = 10**9  # the user has freed some
    monkeypatch.setattr(
        class_archive, "_run_training", lambda file: file.write_text("classes") and ""
    )
    assert warm_up()[0] == app.SUCCEEDED


def test_where_there_can_be_none_it_says_why(
    monkeypatch: pytest.MonkeyPatch, warm_up: Command, tmp_path: Path
) -> None:
    for variable, value, says in (
        (switch.VARIABLE, "off", "It is switched off: JETSPARK_FAST_START=off.\n"),
        (class_archive.VARIABLE, "/proc/archives", "set JETSPARK_CLASS_ARCHIVES to"),
        (
            "SPARK_CONF_DIR",
            str(tmp_path),
            "Java takes no archive where Spark has a configuration folder, here "
            f"{tmp_path}: unset SPARK_CONF_DIR, or rename the folder, and give settings with "
            "--conf.\n",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            code, out, err = warm_up()
            assert (code, out, says in err) == (app.FAILED, "", True)
            assert class_archive.class_archive() is None  # nor in the background

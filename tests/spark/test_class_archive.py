"""The archive of Spark's classes: used when it is whole, never in the way when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.blocking.eventually import eventually
from tests.support.processes import descendants, python, wait_until_gone

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from jetspark.errors import ConfigError, SparkUnavailableError
from jetspark.spark.fast_start import class_archive, switch
from jetspark.spark.fast_start.class_archive import ClassArchive

JAVA, JAVA_VERSION = Path("/no/java"), 'openjdk version "17.0.15"'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "archives"
    folder.mkdir(0o700)
    return folder


@pytest.fixture(autouse=True)
def training(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of Spark's run."""

    def train(file: Path) -> str:
        file.write_bytes(b"classes" * 1000)
        return ""

    monkeypatch.setattr(class_archive, "_run_training", train)


def made(folder: Path, version: str = JAVA_VERSION) -> ClassArchive:
    archive = ClassArchive(folder, JAVA, version)
    archive.make()
    assert archive.is_sound()
    return archive


def archives(folder: Path) -> list[str]:
    return sorted(file.suffix for file in folder.glob("spark-*"))


def test_jvm_starts_without_an_archive_until_there_is_one(folder: Path) -> None:
    archive = ClassArchive(folder, JAVA, JAVA_VERSION)
    (archive.file / "below").mkdir(parents=True)  # is replaced
    assert archive.jvm_options() == []
    archive.make()
    assert archive.is_sound()
    assert archive.jvm_options()[0] == f"-XX:SharedArchiveFile={archive.file}"
    assert archives(folder) == [".crc32", ".jsa"]


def test_damaged_archive_is_not_used_and_made_again(folder: Path) -> None:
    archive = made(folder)
    whole = archive.file.read_bytes()
    for damaged in (whole[:-1], whole[:2000] + b"?" + whole[2001:], b""):
        archive.file.write_bytes(damaged)
        assert archive.jvm_options() == []
    archive.file.write_bytes(whole)
    assert archive.jvm_options()
    archive.file.with_suffix(".crc32").unlink()
    assert archive.jvm_options() == []
    archive.make()
    assert archive.jvm_options()


def test_archive_that_others_can_write_is_not_used(folder: Path) -> None:
    archive = made(folder)
    archive.file.chmod(0o666)
    assert archive.jvm_options() == []
    archive.file.chmod(0o444)
    assert archive.jvm_options()
    folder.chmod(0o777)
    assert archive.jvm_options() == []


def test_last_used_archives_are_kept_and_nothing_of_killed_makers(folder: Path) -> None:
    (folder / "spark-4.0.0-a.unfinished").write_text("half of one")
    (folder / "spark-4.0.0-a.failed").write_text("why")
    made_before = []
    for number in range(6):
        made_before.append(made(folder, f"{number}"))
        os.utime(made_before[-1].file.with_suffix(".crc32"), (number, number))
    # The newest was the last one used when it was made.
    assert [archive.is_sound() for archive in made_before] == [False, False, True, True, True, True]
    assert archives(folder) == [".crc32"] * 4 + [".jsa"] * 4


def test_each_java_and_spark_has_an_archive_of_its_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ClassArchive(folder, JAVA, JAVA_VERSION)
    assert ClassArchive(folder, JAVA, 'openjdk version "21"').file != one.file
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    other = ClassArchive(folder, JAVA, JAVA_VERSION)
    assert other.file != one.file
    (home / "jars" / "patched.jar").write_bytes(b"")
    assert ClassArchive(folder, JAVA, JAVA_VERSION).file != other.file


def test_failure_is_reported_and_retried_after_a_day(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **_: started.append(a))
    archive = ClassArchive(folder, JAVA, JAVA_VERSION)
    with monkeypatch.context() as patch:
        patch.setattr(class_archive, "_run_training", lambda _file: "Traceback\nno space left")
        with pytest.raises(SparkUnavailableError, match=r"^no space left$"):
            archive.make()
    assert not archive.make_later()
    yesterday = time.time() - 86_401
    os.utime(archive.file.with_suffix(".failed"), (yesterday, yesterday))
    assert archive.make_later()
    assert len(started) == 1
    archive.make()
    assert not archive.make_later()


def test_there_is_none_when_switched_off_or_without_a_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for chosen, master, is_on in (
        ("off", "local", False),
        ("", "k8s://https://api", False),
        ("on", "k8s://https://api", True),
        ("", "local[2]", True),
    ):
        monkeypatch.setenv(switch.VARIABLE, chosen)
        assert (class_archive.class_archive(master) is not None) == is_on
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(class_archive.VARIABLE, str(tmp_path / "file" / "below"))
    assert class_archive.class_archive() is None


def test_folder_may_begin_with_a_tilde_and_nothing_is_no_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(class_archive.VARIABLE, "~/x")
    assert class_archive.archives_folder() == tmp_path / "x"
    monkeypatch.setenv(class_archive.VARIABLE, "")
    assert class_archive.archives_folder() == tmp_path / ".cache" / "jetspark"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert class_archive.archives_folder() == tmp_path / "cache" / "jetspark"


def test_all_archives_are_removed_also_when_they_are_switched_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    monkeypatch.setenv(switch.VARIABLE, "OFF")
    cache = tmp_path / "jetspark"
    assert class_archive.remove_archives() == 0
    assert not cache.exists()
    cache.mkdir(0o700)
    made(cache)
    (cache / "other").write_text("not ours")
    assert class_archive.remove_archives() == 1
    assert archives(cache) == []
    assert (cache / "other").exists()


def test_archive_that_is_being_made_is_neither_removed_nor_made_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(class_archive.VARIABLE, str(folder))
    monkeypatch.setattr(class_archive, "_CREATION_TIMEOUT_SECONDS", 0.0)
    seen = []
    of_another_java = made(folder, "21")

    def train(file: Path) -> str:
        of_another_java.make()
        other = ClassArchive(folder, JAVA, JAVA_VERSION)
        with pytest.raises(SparkUnavailableError, match="another process makes the archive"):
            other.make()
        with pytest.raises(ConfigError, match="Another process is creating an archive"):
            class_archive.remove_archives()
        seen.append(other.make_later())
        file.write_bytes(b"classes")
        return ""

    monkeypatch.setattr(class_archive, "_run_training", train)
    assert made(folder).is_sound()
    assert seen == [False]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_jvm_takes_the_archive_that_fits(spark: SparkSession) -> None:
    """The hook in tests/conftest.py has made it; the JVM maps no other one."""
    archive = class_archive.class_archive()
    assert archive is not None
    gateway: Any = spark.sparkContext._gateway
    assert str(archive.file) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the JVM in /proc")
def test_nothing_goes_on_after_a_maker_that_was_killed(tmp_path: Path) -> None:
    """As soon as there is a JVM: PySpark has no link to it yet."""
    environment = {class_archive.VARIABLE: str(tmp_path / "archives"), "TMPDIR": str(tmp_path)}
    command = "from jetspark.cli.main import main; main()"
    with python(command, "warm-up", environment=environment) as maker:
        eventually(lambda: any(map(_writes_archive, descendants(maker.pid))), within=60)
        everything = descendants(maker.pid)
        maker.kill()
        for one in everything:
            wait_until_gone(one)
    assert archives(tmp_path / "archives") == []
    assert not list(tmp_path.glob("jetspark-training-*"))


def _writes_archive(pid: int) -> bool:
    with suppress(OSError):
        return b"ArchiveClassesAtExit" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False

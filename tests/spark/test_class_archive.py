"""The archive of Spark's classes: used when it is whole, never in the way when it is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.blocking.eventually import eventually
from tests.support.processes import descendants, first_line, python, wait_until_gone

pytest.importorskip("pyspark")

from jetspark.spark import class_archive
from jetspark.spark.class_archive import ClassArchive

JAVA_VERSION = 'openjdk version "17.0.15"'


@pytest.fixture
def java(tmp_path: Path) -> Path:
    return tmp_path / "java"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "archives"
    folder.mkdir(0o700)
    return folder


@pytest.fixture(autouse=True)
def training(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of Spark's run."""

    def train(file: Path, _lock: int) -> str:
        file.write_bytes(b"classes" * 1000)
        return ""

    monkeypatch.setattr(class_archive, "_train", train)


def made(folder: Path, java: Path, version: str = JAVA_VERSION) -> ClassArchive:
    archive = ClassArchive(folder, java, version)
    assert archive.make()
    return archive


def test_jvm_starts_without_an_archive_until_there_is_one(folder: Path, java: Path) -> None:
    archive = ClassArchive(folder, java, JAVA_VERSION)
    assert archive.jvm_options() == []
    assert archive.make()
    assert archive.jvm_options()[0] == f"-XX:SharedArchiveFile={archive.file}"
    assert sorted(file.suffix for file in folder.iterdir()) == [".crc32", ".jsa"]


def test_damaged_archive_is_not_used(folder: Path, java: Path) -> None:
    archive = made(folder, java)
    whole = archive.file.read_bytes()
    for damaged in (whole[:-1], whole[:2000] + b"?" + whole[2001:], b""):
        archive.file.write_bytes(damaged)
        assert archive.jvm_options() == []
    archive.file.write_bytes(whole)
    assert archive.jvm_options()
    archive.file.with_suffix(".crc32").unlink()
    assert archive.jvm_options() == []


def test_damaged_archive_is_made_again(folder: Path, java: Path) -> None:
    archive = made(folder, java)
    archive.file.write_bytes(b"")
    assert archive.make()
    assert archive.jvm_options()


def test_archive_that_others_can_write_is_not_used(folder: Path, java: Path) -> None:
    archive = made(folder, java)
    archive.file.chmod(0o666)
    assert archive.jvm_options() == []
    archive.file.chmod(0o444)
    assert archive.jvm_options()
    folder.chmod(0o777)
    assert archive.jvm_options() == []


def test_what_a_killed_making_left_is_removed(folder: Path, java: Path) -> None:
    archive = ClassArchive(folder, java, JAVA_VERSION)
    left = archive.file.with_suffix(".unfinished1")
    left.write_text("half of one")
    assert archive.make()
    assert not left.exists()


def test_what_makers_of_other_archives_left_is_removed_unless_they_live(
    folder: Path, java: Path
) -> None:
    import fcntl

    for left in ("a.lock", "b.lock", "b.unfinished1", "c.unfinished2", "d.lock", "d.unfinished3"):
        (folder / f"spark-4.0.0-{left}").write_text("")
    with (folder / "spark-4.0.0-d.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        archive = made(folder, java)
        assert {file.name for file in folder.iterdir()} == {
            *("spark-4.0.0-d.lock", "spark-4.0.0-d.unfinished3"),
            *(archive.file.name, archive.file.with_suffix(".crc32").name),
        }
    made(folder, java, "another")
    assert {file.suffix for file in folder.iterdir()} == {".jsa", ".crc32"}


def test_each_java_and_spark_has_an_archive_of_its_own(
    folder: Path, java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ClassArchive(folder, java, JAVA_VERSION)
    assert ClassArchive(folder, java, 'openjdk version "21"').file != one.file
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    other = ClassArchive(folder, java, JAVA_VERSION)
    assert other.file != one.file
    (home / "jars" / "patched.jar").write_bytes(b"")
    assert ClassArchive(folder, java, JAVA_VERSION).file != other.file


def test_last_used_archives_are_kept(folder: Path, java: Path) -> None:
    archives = []
    for number in range(6):
        archives.append(made(folder, java, f"{number}"))
        os.utime(archives[-1].file.with_suffix(".crc32"), (number, number))
    kept = [archive.sound() for archive in archives]
    # The newest was the last one used when it was made.
    assert kept == [False, False, True, True, True, True]


def test_failure_is_reported_and_retried_after_a_day(
    folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **_: started.append(a))
    archive = ClassArchive(folder, java, JAVA_VERSION)
    with monkeypatch.context() as patch:
        patch.setattr(class_archive, "_train", lambda _file, _lock: "Traceback\nno space left")
        assert not archive.make()
    assert archive.failure() == "no space left"
    assert not archive.make_later()
    yesterday = time.time() - 86_401
    os.utime(archive.file.with_suffix(".failed"), (yesterday, yesterday))
    assert archive.make_later()
    assert len(started) == 1
    assert archive.make()
    assert not archive.make_later()


def test_there_is_none_when_switched_off_or_without_a_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(class_archive.VARIABLE, "off")
    assert class_archive.class_archive() is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(class_archive.VARIABLE, str(tmp_path / "file" / "below"))
    assert class_archive.class_archive() is None
    monkeypatch.delenv(class_archive.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert class_archive.archives_folder() == tmp_path / "cache" / "jetspark"


def test_all_archives_are_removed(
    folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(class_archive.VARIABLE, str(folder))
    made(folder, java)
    (folder / "other").write_text("not ours")
    assert class_archive.remove_archives() == (1, False)
    assert [file.name for file in folder.iterdir()] == ["other"]


def test_removing_makes_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(class_archive.VARIABLE, str(tmp_path / "none"))
    assert class_archive.remove_archives() == (0, False)
    assert not (tmp_path / "none").exists()


def test_switched_off_archives_of_the_cache_are_removed(
    java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "jetspark").mkdir(0o700)
    made(tmp_path / "jetspark", java)
    monkeypatch.setenv(class_archive.VARIABLE, "OFF")
    assert class_archive.remove_archives() == (1, False)


def test_folder_may_begin_with_a_tilde_and_nothing_is_no_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(class_archive.VARIABLE, "~/x")
    assert class_archive.archives_folder() == tmp_path / "x"
    monkeypatch.setenv(class_archive.VARIABLE, "")
    assert class_archive.archives_folder() == tmp_path / ".cache" / "jetspark"


def test_archive_that_is_being_made_is_not_removed(
    folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(class_archive.VARIABLE, str(folder))
    made(folder, java, "another")
    seen = []

    def train(file: Path, _lock: int) -> str:
        file.write_bytes(b"classes")
        seen.append(class_archive.remove_archives())
        return ""

    monkeypatch.setattr(class_archive, "_train", train)
    assert made(folder, java).sound()
    assert seen == [(1, True)]
    assert list(folder.glob("*.lock")) == []


MAKER = """
import subprocess, sys
from pathlib import Path
from jetspark.spark import class_archive

def train(file, lock):
    file.write_text("half")
    wait = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    child = subprocess.Popen(wait, stdin=subprocess.PIPE, pass_fds=[lock])
    print(child.pid, flush=True)
    return sys.stdin.read()

class_archive._train = train
class_archive.ClassArchive(Path(sys.argv[1]), Path("java"), "17").make()
"""


def test_archive_is_being_made_until_the_last_process_has_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(class_archive.VARIABLE, str(folder))
    with python(MAKER, str(folder)) as maker:
        child = int(first_line(maker))
        os.kill(child, signal.SIGSTOP)
        maker.kill()
        maker.wait()
        try:
            assert class_archive.remove_archives() == (0, True)
        finally:
            os.kill(child, signal.SIGCONT)
        wait_until_gone(child)
        assert class_archive.remove_archives() == (1, False)
    assert list(folder.iterdir()) == []


def test_one_process_begins_and_the_others_do_not(
    folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    code = f"import os, sys; open({str(held)!r}).read(); os.fstat(int(sys.argv[-1]))"
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def begin(command: list[str], **options: Any) -> None:
        begun.append(popen([command[0], "-c", code, command[-1]], **options))

    monkeypatch.setattr(subprocess, "Popen", begin)
    assert ClassArchive(folder, java, JAVA_VERSION).make_later()
    archive = ClassArchive(folder, java, JAVA_VERSION)
    assert not archive.make_later()
    held.write_text("")
    assert begun[0].wait(60) == 0
    assert archive.make_later()
    held.write_text("")
    assert [one.wait(60) for one in begun] == [0, 0]


def test_folder_in_the_place_of_an_archive_is_replaced(folder: Path, java: Path) -> None:
    archive = ClassArchive(folder, java, JAVA_VERSION)
    (archive.file / "below").mkdir(parents=True)
    assert archive.make()
    assert archive.sound()


PROGRAM = """
import sys
from pathlib import Path
from jetspark.spark.class_archive import class_archive
from jetspark.spark.session import close_session, local_session
loads = Path(sys.argv[1])
options = [*class_archive().jvm_options(), f"-Xlog:class+load:file={loads}"]
conf = {"spark.driver.extraClassPath": sys.argv[2]} if sys.argv[2] else {}
spark = local_session("archive", master="local[1]", conf=conf, jvm_options=options)
print(spark.range(3).count())
close_session(spark)
"""


@pytest.mark.spark
@pytest.mark.parametrize("fits", [True, False])
def test_jvm_takes_sparks_classes_from_the_archive_if_it_fits(tmp_path: Path, fits: bool) -> None:
    """The hook in tests/conftest.py has made it."""
    loads, other = tmp_path / "loads", tmp_path / "other.jar"
    with zipfile.ZipFile(other, "w") as jar:
        jar.writestr("README", "no classes")
    front = "" if fits else str(other)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(loads), front], capture_output=True, check=True
    )
    assert ran.stdout == b"3\n"
    (line,) = [
        line for line in loads.read_text().splitlines() if "org.apache.spark.SparkContext " in line
    ]
    assert ("shared objects file (top)" in line) is fits


@pytest.mark.spark
def test_training_ends_with_the_process_that_wants_it(tmp_path: Path) -> None:
    training = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jetspark.spark.class_archive_training",
            str(tmp_path / "file"),
            "2",
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert training.stdin is not None
    training.stdin.close()
    assert training.wait(60) == 1
    assert not (tmp_path / "file").exists()


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
    (left,) = (tmp_path / "archives").iterdir()
    assert left.suffix == ".lock"
    assert not list(tmp_path.glob("jetspark-training-*"))


def _writes_archive(pid: int) -> bool:
    with suppress(OSError):
        return b"ArchiveClassesAtExit" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False

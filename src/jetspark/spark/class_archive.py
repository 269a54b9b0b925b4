"""A class archive: Spark's classes, loaded and verified, in a file that the JVM maps (AppCDS).

A short job spends most of its time loading Spark's classes from JARs. Java can store them in an
archive (`-XX:ArchiveClassesAtExit`, `-XX:SharedArchiveFile`). There is one for each version and
location of Spark and Java, in the user's cache. It is optional, and created in the background:
without it Spark starts as usual.

The JVM compares the JARs' paths, sizes and times with those in the archive, and ignores an archive
that does not match. It does not detect damage: a wrong bit is a wrong class, and a truncated file
crashes the JVM. So the file's checksum is stored beside it and compared before each use.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pyspark

from jetspark.spark.java import find_java, version_text

logger = logging.getLogger("jetspark.spark")

VARIABLE = "JETSPARK_CLASS_ARCHIVES"
"""The environment variable with the folder of the archives. "off": no archives. "": as if it were
not set."""

_KEPT = 4
_SIZE = 200_000_000
"""About what an archive needs, in bytes."""
_MAKING_SECONDS = 600.0
_AFTER_FAILURE_SECONDS = 86_400.0
_BLOCK = 1 << 20
# No output about an archive that does not match.
_SILENT = "-Xlog:cds*=off"


class ClassArchive:
    """The archive for one Java and the Spark of this Python. It need not exist."""

    def __init__(self, folder: Path, java: Path, java_version: str) -> None:
        """`java_version`: what `java -version` prints."""
        self._folder = folder
        self.file = folder / f"spark-{pyspark.__version__}-{_fingerprint(java, java_version)}.jsa"
        self._checksum = self.file.with_suffix(".crc32")
        self._failed = self.file.with_suffix(".failed")
        self._lock_file = self.file.with_suffix(".lock")
        self._compared: tuple[str, int, int, int] | None = None

    def jvm_options(self) -> list[str]:
        """Options for the JVM; empty when there is no archive, or a damaged one."""
        if not self.sound():
            return []
        with suppress(OSError):
            os.utime(self._checksum)  # recently used: removed last
        return [f"-XX:SharedArchiveFile={self.file}", _SILENT]

    def sound(self) -> bool:
        """Whether it exists, is unchanged, and only this user can have written it."""
        try:
            with self.file.open("rb") as file:
                about = os.fstat(file.fileno())
                if not (_mine_alone(about) and _mine_alone(self._folder.stat())):
                    return False
                wanted = self._checksum.read_text()
                version = (wanted, about.st_ino, about.st_size, about.st_mtime_ns)
                if self._compared != version:
                    if wanted != _crc32(self.file):
                        return False
                    self._compared = version
                return True
        except OSError:
            return False

    def make(self, held: int | None = None) -> bool:
        """Create it if it does not exist, in about half a minute; returns whether it then exists.

        Waits for another process that is creating it. `held`: the lock, if `make_later` has it.
        """
        with _lock(self._lock_file, _MAKING_SECONDS, held) as lock:
            if lock is None:
                return False
            if self.sound():
                return True
            self._failed.unlink(missing_ok=True)
            _remove_unfinished(self._folder, self.file.stem)
            if self._lacking_room():  # not for a day: there may be room at any time
                return False
            unfinished = self.file.with_suffix(f".unfinished{os.getpid()}")
            try:
                reason = _train(unfinished, lock)
                if reason:
                    self._failed.write_text(reason)
                    logger.debug("No class archive: %s", reason)
                    return False
                self._checksum.write_text(_crc32(unfinished))
                if self.file.is_dir():
                    _remove(self.file)
                unfinished.replace(self.file)
            finally:
                unfinished.unlink(missing_ok=True)
            self._remove_old()
            self._remove_left()
            return True

    def make_later(self) -> bool:
        """Create it in a separate process of lowest priority, which outlives this one.

        Returns whether it does: not if that is unnecessary, without the room for it, or if another
        process is creating it.
        """
        if self.sound() or self._failed_lately() or self._lacking_room():
            return False
        with suppress(OSError):
            if (held := _acquired(self._lock_file, 0)) is None:
                return False
            try:
                subprocess.Popen(  # noqa: S603
                    [sys.executable, "-m", "jetspark.spark.class_archive", str(held)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(held,),
                    start_new_session=True,
                )
                return True
            finally:
                os.close(held)  # the new process has it
        return False

    def failure(self) -> str:
        """Why the last `make` failed."""
        if lacking := self._lacking_room():
            return lacking
        try:
            return self._failed.read_text().strip().rpartition("\n")[2]
        except OSError:
            return "another process makes the archive, and is not done."

    def _lacking_room(self) -> str:
        """A sentence if the disk is too full for it; Java would only write nothing."""
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError:
            return ""
        if free >= _SIZE:
            return ""
        return (
            f"the disk of {self._folder} has {free // 10**6} MB free, and an archive needs about "
            f"{_SIZE // 10**6}: free some, or set {VARIABLE} to a folder on another disk."
        )

    def _failed_lately(self) -> bool:
        try:
            return time.time() - self._failed.stat().st_mtime < _AFTER_FAILURE_SECONDS
        except OSError:
            return False

    def _remove_old(self) -> None:
        """Of the archives of other Sparks, Javas and environments keep the last used ones."""
        used = sorted(self._folder.glob("*.crc32"), key=lambda file: -file.stat().st_mtime)
        for checksum in used[_KEPT:]:
            checksum.with_suffix(".jsa").unlink(missing_ok=True)
            checksum.unlink(missing_ok=True)

    def _remove_left(self) -> None:
        """What makers of other archives left that were killed."""
        for kind in ("lock", "unfinished*"):
            for file in self._folder.glob(f"spark-*.{kind}"):
                stem = file.name.rpartition(".")[0]
                if stem != self.file.stem:
                    with _lock(self._folder / f"{stem}.lock", 0) as lock:
                        if lock is not None:
                            _remove_unfinished(self._folder, stem)


def _remove_unfinished(folder: Path, stem: str) -> None:
    """For the holder of the lock: left by a maker that was killed."""
    for left in folder.glob(f"{stem}.unfinished*"):
        left.unlink(missing_ok=True)


def class_archive() -> ClassArchive | None:
    """The archive for the Java that Spark will use.

    None: switched off, no folder for it, or Java would not take it (`configuration_folder`). Raises
    SparkUnavailableError without a Java.
    """
    folder = archives_folder()
    if folder is None or configuration_folder() is not None:
        return None
    java = find_java()
    return _archive_for(folder, java, version_text(java))


@cache
def _archive_for(folder: Path, java: Path, java_version: str) -> ClassArchive:
    return ClassArchive(folder, java, java_version)


def switched_off() -> bool:
    """Whether the user has switched archives off."""
    return _named().lower() == "off"


def archives_folder() -> Path | None:
    """The folder of the archives, created if necessary. None: switched off, or no folder."""
    folder = None if switched_off() else _folder()
    if folder is None:
        return None
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


def _named() -> str:
    """The value of the variable; "" if it is not set."""
    return os.environ.get(VARIABLE, "").strip()


def _folder() -> Path | None:
    """The folder of the variable, else of the user's cache. None: there is none."""
    if os.name != "posix":
        return None
    named = "" if switched_off() else _named()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return (Path(named) if named else Path(cache, "jetspark")).expanduser()
    except RuntimeError:  # there is no home folder
        return None


def remove_archives() -> tuple[int, bool]:
    """Remove everything that `make` has created, also when archives are switched off.

    Returns the number of archives, and whether one stays because it is being created.
    """
    folder = _folder()
    if folder is None or not folder.is_dir():
        return 0, False
    removed, busy = 0, False
    for stem in {file.name.rpartition(".")[0] for file in folder.glob("spark-*.*")}:
        with _lock(folder / f"{stem}.lock", 0) as lock:
            if lock is None:
                busy = True
                continue
            for file in folder.glob(f"{stem}.*"):
                removed += file.suffix.startswith((".jsa", ".unfinished"))
                _remove(file)
    return removed, busy


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def configuration_folder() -> Path | None:
    """The folder of Spark's configuration, if there is one.

    Spark puts it before its JARs in the class path, where Java takes an archive of JARs only.
    """
    folder = Path(os.environ.get("SPARK_CONF_DIR") or _spark_home() / "conf")
    return folder if folder.is_dir() else None


def _spark_home() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _fingerprint(java: Path, java_version: str) -> str:
    """A fingerprint of everything that the JVM compares, and of what it does not."""
    home = _spark_home()
    parts = [str(java.resolve()), java_version, str(home)]
    for entry in sorted(os.scandir(home / "jars"), key=lambda entry: entry.name):
        status = entry.stat()
        parts.append(f"{entry.name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _mine_alone(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.getuid()) and not status.st_mode & 0o022


def _crc32(file: Path) -> str:
    value = 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            value = zlib.crc32(block, value)
    return f"{value:08x}"


@contextmanager
def _lock(file: Path, seconds: float, held: int | None = None) -> Iterator[int | None]:
    """Its descriptor; None if others hold it after time for one to finish. Who held it removes it.

    `held`: it is held already, by this descriptor.
    """
    if held is None:
        held = _acquired(file, seconds)
    try:
        yield held
    finally:
        if held is not None:
            file.unlink(missing_ok=True)
            os.close(held)


def _acquired(file: Path, seconds: float) -> int | None:
    """The lock's descriptor; None if others hold it for so long.

    Processes that it is passed to hold it, too: what a killed maker has started still writes the
    archive.
    """
    import fcntl

    deadline = time.monotonic() + seconds
    while True:
        held = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = _is_at(held, file)  # not removed in the meantime, with the archive
        except BlockingIOError:
            os.close(held)
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.5)
        else:
            if mine:
                return held
            os.close(held)


def _is_at(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _train(file: Path, lock: int) -> str:
    """Run Spark with a typical job to create the archive; returns why it failed, or "".

    The training and its JVM hold the lock, too.
    """
    training = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "jetspark.spark.class_archive_training", str(file), str(lock)],
        stdin=subprocess.PIPE,  # closed when this process ends: then the training ends, too
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(lock,),
    )
    with training:
        assert training.stdin is not None  # noqa: S101
        assert training.stderr is not None  # noqa: S101
        timer = threading.Timer(_MAKING_SECONDS, training.stdin.close)
        timer.start()
        try:
            said = training.stderr.read()
            code = training.wait()
        finally:
            timer.cancel()
    if code == 0 and file.exists():
        return ""
    return said.decode("utf-8", "replace")[-2000:] or "Java wrote none, or took too long"


if __name__ == "__main__":
    _archive = class_archive()
    if _archive is not None and sys.argv[1] == "options":  # for who starts a JVM in a shell
        print(*_archive.jvm_options(), sep="\n")
    elif _archive is not None:
        os.nice(19)
        _archive.make(int(sys.argv[1]))

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
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

import pyspark

from jetspark.errors import ConfigError, SparkUnavailableError
from jetspark.own_python import SAFE_PATH, module_command
from jetspark.spark.fast_start import switch
from jetspark.spark.java import find_java, read_version_text

logger = logging.getLogger("jetspark.spark")

VARIABLE = "JETSPARK_CLASS_ARCHIVES"
"""The environment variable with the folder of the archives. Unset or empty: in the user's cache."""

_MAX_ARCHIVES = 4
_ARCHIVE_BYTES = 200_000_000
"""About what an archive needs, in bytes."""
_CREATION_TIMEOUT_SECONDS = 600.0
_RETRY_AFTER_FAILURE_SECONDS = 86_400.0
_BLOCK = 1 << 20


class ClassArchive:
    """A file with Spark's classes, loaded and verified, from which a JVM starts faster.

    It is for one Java and the Spark of this Python, and need not exist yet.
    """

    def __init__(self, folder: Path, java: Path, java_version: str) -> None:
        """Name the archive of Spark's classes for one Java; it is not created yet.

        `folder`: of all archives; `java_version`: the output of `java -version`.
        """
        self._folder = folder
        self.file = folder / f"spark-{pyspark.__version__}-{_fingerprint(java, java_version)}.jsa"
        self._checksum = self.file.with_suffix(".crc32")
        # Exists after a creation that failed, with the reason.
        self._failed = self.file.with_suffix(".failed")
        self._verified: tuple[str, int, int, int] | None = None
        """The checksum, and the file's inode, size and time, when the content was last compared."""

    def jvm_options(self) -> list[str]:
        """Options with which a JVM uses the archive; none if it does not exist or is damaged."""
        if not self.is_sound():
            return []
        with suppress(OSError):
            os.utime(self._checksum)  # recently used: removed last
        # The JVM prints nothing about an archive that does not match its JARs.
        return [f"-XX:SharedArchiveFile={self.file}", "-Xlog:cds*=off"]

    def is_sound(self) -> bool:
        """Whether the archive exists, has its checksum, and only this user and root can write it.

        The content is read again only if the file has changed since the last call.
        """
        try:
            status = self.file.stat()
            if not all(map(_only_this_user_writes, (status, self._folder.stat()))):
                return False
            checksum = self._checksum.read_text()
            version = (checksum, status.st_ino, status.st_size, status.st_mtime_ns)
            if version != self._verified and checksum == _crc32(self.file):
                self._verified = version
            return version == self._verified
        except OSError:
            return False

    def make(self) -> None:
        """Create the archive if it does not exist, in about half a minute.

        Waits for another process that creates it. Raises SparkUnavailableError.
        """
        if self.is_sound():  # without waiting for a process that creates another archive
            return
        with _lock(self._folder, _CREATION_TIMEOUT_SECONDS) as is_held:
            if not is_held:
                raise SparkUnavailableError("another process makes the archive, and is not done.")
            if self.is_sound():
                return
            self._failed.unlink(missing_ok=True)
            # A full disk is not noted as a failure, after which none is made for a day: there may
            # be room at any time.
            if problem := self._describe_full_disk():
                raise SparkUnavailableError(problem)
            unfinished = self.file.with_suffix(".unfinished")
            try:
                if reason := _run_training(unfinished):
                    self._failed.write_text(reason)
                    logger.debug("No class archive: %s", reason)
                    raise SparkUnavailableError(reason.strip().rpartition("\n")[2])
                self._checksum.write_text(_crc32(unfinished))
                if self.file.is_dir():  # which no file can replace
                    shutil.rmtree(self.file)
                unfinished.replace(self.file)
            finally:
                unfinished.unlink(missing_ok=True)
            self._remove_unused_archives()

    def make_later(self) -> bool:
        """Start a process of lowest priority that creates the archive, and outlives this one.

        Returns whether it was started: not if the archive exists, has no room on the disk, could
        not be made within the last day, or is being created.
        """
        if self.is_sound() or self._has_failed_lately() or self._describe_full_disk():
            return False
        with suppress(OSError):
            # The lock is only tested here: the process takes it itself.
            with _lock(self._folder, 0) as is_held:
                if not is_held:
                    return False
            subprocess.Popen(  # noqa: S603
                module_command("jetspark.spark.fast_start.class_archive"),
                env=os.environ | SAFE_PATH,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            return True
        return False

    def _describe_full_disk(self) -> str:
        """A sentence for the user if the disk has no room for an archive, else "".

        Java itself would not say why it writes none.
        """
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError:
            return ""
        if free >= _ARCHIVE_BYTES:
            return ""
        return (
            f"the disk of {self._folder} has {free // 10**6} MB free, and an archive needs about "
            f"{_ARCHIVE_BYTES // 10**6}: free some, or set {VARIABLE} to a folder on another disk."
        )

    def _has_failed_lately(self) -> bool:
        """Whether the archive could not be created within the last day, so that it is not tried."""
        try:
            return time.time() - self._failed.stat().st_mtime < _RETRY_AFTER_FAILURE_SECONDS
        except OSError:
            return False

    def _remove_unused_archives(self) -> None:
        """Remove all archives but the few used last, and files that killed processes left.

        Archives of other versions of Spark and Java are in the same folder, and count as well. The
        time of a checksum's file is that of the archive's last use.
        """
        by_last_use = sorted(self._folder.glob("*.crc32"), key=lambda file: -file.stat().st_mtime)
        kept_names = {checksum.stem for checksum in by_last_use[:_MAX_ARCHIVES]}
        for file in self._folder.glob("spark-*.*"):
            if file.stem not in kept_names or file.suffix not in (".jsa", ".crc32"):
                _remove(file)


def class_archive(master: str = "local") -> ClassArchive | None:
    """The class archive for the Java that Spark will use; it need not exist yet.

    None if archives are switched off for this master, there is no folder for them, or Java would
    ignore them, as it does beside a folder of Spark's configuration (`configuration_folder`).
    Raises SparkUnavailableError if there is no Java.
    """
    if not switch.is_on(master) or configuration_folder() is not None:
        return None
    folder = archives_folder()
    if folder is None:
        return None
    java = find_java()
    return _archive_for(folder, java, read_version_text(java))


_archive_for = cache(ClassArchive)
"""The same object for the same arguments, since it remembers what it has verified."""


def archives_folder() -> Path | None:
    """The folder of the class archives, created if necessary.

    None if it cannot be created, or archives are not supported on this system.
    """
    folder = _name_archives_folder()
    try:
        if folder is not None:
            folder.mkdir(0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


def _name_archives_folder() -> Path | None:
    """The path of the class archives' folder: from `VARIABLE`, or else in the user's cache.

    None on Windows, which lacks the locks that archives need, or if the user has no home folder.
    """
    if os.name != "posix":
        return None
    named = os.environ.get(VARIABLE, "").strip()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return (Path(named) if named else Path(cache, "jetspark")).expanduser()
    except RuntimeError:  # there is no home folder
        return None


def remove_archives() -> int:
    """Remove all class archives of this user, even when archives are switched off.

    Returns how many there were. Raises ConfigError while one is being created.
    """
    folder = _name_archives_folder()
    if folder is None or not folder.is_dir():
        return 0
    with _lock(folder, 0) as is_held:
        if not is_held:
            raise ConfigError("Another process is creating an archive: run this again afterwards.")
        files = list(folder.glob("spark-*.*"))
        for file in files:
            _remove(file)
    return sum(file.suffix == ".jsa" for file in files)


def _remove(path: Path) -> None:
    """Remove a file, or a folder with its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def configuration_folder() -> Path | None:
    """The folder of Spark's configuration, if there is one.

    Then no class archive is used: Spark puts the folder before its JARs in the class path, and Java
    uses an archive only if that has nothing but JARs.
    """
    folder = Path(os.environ.get("SPARK_CONF_DIR") or _spark_home() / "conf")
    return folder if folder.is_dir() else None


def _spark_home() -> Path:
    """The folder of Spark: SPARK_HOME, or else PySpark's own."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _fingerprint(java: Path, java_version: str) -> str:
    """A digest of all that a class archive depends on, for its file's name.

    It includes what the JVM does not compare itself, such as the output of `java -version`.
    """
    home = _spark_home()
    parts = [str(java.resolve()), java_version, str(home)]
    for entry in sorted(os.scandir(home / "jars"), key=lambda entry: entry.name):
        status = entry.stat()
        parts.append(f"{entry.name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _only_this_user_writes(status: os.stat_result) -> bool:
    """Whether only this user and root can write a file or folder with this status."""
    return status.st_uid in (0, os.getuid()) and not status.st_mode & 0o022


def _crc32(file: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    value = 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            value = zlib.crc32(block, value)
    return f"{value:08x}"


@contextmanager
def _lock(folder: Path, seconds: float) -> Iterator[bool]:
    """Lock the archives' folder for changes during the block, and yield whether that succeeded.

    It yields False if another process keeps the lock for `seconds`.
    """
    import fcntl

    deadline = time.monotonic() + seconds
    with (folder / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield False
                    return
                time.sleep(0.5)
        yield True


def _run_training(file: Path) -> str:
    """Run a typical Spark job in another process, whose JVM then writes its classes to `file`.

    Returns why there is no archive, or "" if there is one.
    """
    with TemporaryFile() as log:
        with (
            subprocess.Popen(  # noqa: S603
                module_command("jetspark.spark.session.training", str(file)),
                env=os.environ | SAFE_PATH,
                stdin=subprocess.PIPE,  # closed when this process ends: then the training ends, too
                stdout=subprocess.DEVNULL,
                stderr=log,
            ) as training,
            suppress(subprocess.TimeoutExpired),
        ):
            training.wait(_CREATION_TIMEOUT_SECONDS)
        if training.returncode == 0 and file.exists():
            return ""
        log.seek(0)
        text = log.read().decode("utf-8", "replace")
    return text[-2000:] or "Java wrote none, or took too long"


if __name__ == "__main__":
    _archive = class_archive()
    if _archive is not None and sys.argv[1:] == ["options"]:  # for users who start a JVM in a shell
        print(*_archive.jvm_options(), sep="\n")
    elif _archive is not None:
        os.nice(19)
        with suppress(SparkUnavailableError):
            _archive.make()

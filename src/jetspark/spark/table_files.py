"""The file operations for a table's note and lock, on any file system that Spark can use.

Before Spark is started, local files are read directly (`LocalFiles`); everything else uses Hadoop's
FileSystem in the session's JVM (`HadoopFiles`), which supports s3a:// and hdfs:// as Spark does.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from jetspark.errors import ConfigError


class Files(Protocol):
    """The file system's operations; paths are the user's."""

    def names(self, folder: str) -> list[str] | None:
        """The names in a folder; None if it does not exist."""
        ...

    def is_file(self, path: str) -> bool:
        """Whether this is a file."""
        ...

    def read(self, path: str) -> str | None:
        """The text of a file; None if it does not exist."""
        ...


class LocalFiles:
    """Local files, read-only."""

    def names(self, folder: str) -> list[str] | None:
        """The names in a folder; None if it does not exist."""
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None

    def is_file(self, path: str) -> bool:
        """Whether this is a file."""
        return Path(path).is_file()

    def read(self, path: str) -> str | None:
        """The text of a file; None if it does not exist."""
        try:
            return Path(path).read_text("utf-8", "replace")
        except OSError:
            return None


def local_path(uri: str) -> str | None:
    """The path of a local file or folder, as far as that is known without Spark; else None."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    # Hadoop's configuration may give paths without a scheme another file system.
    return uri if not parts.scheme and "HADOOP_CONF_DIR" not in os.environ else None


def file_in_the_way(folder: str) -> str | None:
    """The local file that prevents the creation of the folder, if there is one."""
    for part in (Path(folder), *Path(folder).parents):
        if part.is_file():
            return str(part)
        if part.exists():
            break
    return None


def make_local_folder(name: str, here: str) -> None:
    """Create a local folder and its parents. Raises ConfigError with the reason."""
    try:
        Path(here).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{name} cannot be written: {here} cannot be made ({error.strerror})."
        ) from None


def not_writable(folder: str) -> str | None:
    """Why nothing can be written into a local folder, or where it would be made; None if it can."""
    there = next((part for part in (Path(folder), *Path(folder).parents) if part.exists()), None)
    if there is None or os.access(there, os.W_OK | os.X_OK):
        return None
    read_only = os.name == "posix" and os.statvfs(there).f_flag & os.ST_RDONLY
    reason = "is on a read-only file system" if read_only else "is not writable for this user"
    return f"{there} {reason}"


def place(folder: str) -> str:
    """A canonical form, so that one folder has one text as far as possible."""
    path = folder.removeprefix("file://").removeprefix("file:")
    return path if "://" in path else os.path.abspath(path)


class HadoopFiles:
    """Files through the session's JVM. Failures raise Py4JJavaError."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise ConfigError(
                "A table is written where Spark's driver runs, since its folder is looked at "
                "first; with Spark Connect use writeStream, or run this beside the server."
            )
        self.jvm = jvm
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    def names(self, folder: str) -> list[str] | None:
        """The names in a folder; None if it does not exist."""
        fs, path = self._at(folder)
        # Object stores have no empty folders: a missing one is None.
        if not fs.exists(path) or fs.getFileStatus(path).isFile():
            return None
        return [status.getPath().getName() for status in fs.listStatus(path)]

    def is_file(self, path: str) -> bool:
        """Whether this is a file."""
        fs, at = self._at(path)
        return bool(fs.exists(at) and fs.getFileStatus(at).isFile())

    def read(self, path: str) -> str | None:
        """The text of a file; None if it does not exist."""
        fs, at = self._at(path)
        if not fs.exists(at):
            return None
        stream = fs.open(at)
        try:
            return bytes(stream.readAllBytes()).decode("utf-8", "replace")
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Create a file atomically. Raises Py4JJavaError if that fails."""
        folder, _, name = path.rpartition("/")
        fs, beside = self._at(f"{folder}/.{name}.{secrets.token_hex(4)}.tmp")
        self._create(fs, beside, text)
        if not fs.rename(beside, self._at(path)[1]):
            fs.delete(beside, False)
            raise ConfigError(f"{path} is there already: another run writes this table.")

    def overwrite(self, path: str, text: str) -> None:
        """Write a file, replacing an existing one; for a moment it may be empty."""
        self._create(*self._at(path), text)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        fs, at = self._at(path)
        fs.delete(at, False)

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        fs, at = self._at(path)
        fs.mkdirs(at)

    def local(self, path: str) -> str | None:
        """The path on the driver's own file system, or None when it is on another."""
        fs, at = self._at(path)
        return str(fs.makeQualified(at).toUri().getPath()) if self._is_local(fs) else None

    def qualified(self, path: str) -> str:
        """A canonical form of the path."""
        fs, at = self._at(path)
        return str(fs.makeQualified(at).toString())

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self.jvm.org.apache.hadoop.fs.Path(path)
        return at.getFileSystem(self._conf), at

    @staticmethod
    def _is_local(fs: Any) -> bool:
        return str(fs.getUri().getScheme()) == "file"

    @staticmethod
    def _create(fs: Any, at: Any, text: str) -> None:
        out = fs.create(at, True)
        try:
            out.write(bytearray(text.encode()))
        except BaseException:
            with suppress(Exception):
                out.close()
            raise
        out.close()

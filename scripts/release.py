"""The files of a release: `python scripts/release.py dist` builds and checks them in that folder.

Needs the extra `release`. From the commit, not from the work tree: an sdist; from that, a wheel for
each platform of `PLATFORMS`, whose C kernel Zig's clang compiles, and a pure one for all others,
with the kernel's twin in Python; and a bill of materials. With --twice everything is built again
elsewhere, and has to be the same byte for byte.

The Python that runs this needs its C headers in one folder, as python.org's, pyenv's and uv's have
them; Debian's have a part for one machine only.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

_ROOT = Path(__file__).parent.parent

PLATFORMS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
}
"""Each platform's tag and what Zig calls it; the numbers are the oldest C library or system."""

KERNEL = "jetspark/wire/_kernel.abi3.so"


class ReleaseError(Exception):
    """A file is not as it has to be, or a tool failed."""


def build_sdist(commit: str, out: Path) -> Path:
    """The sdist of a commit, whose time is the one of all files in it."""
    seconds = commit_time(commit)
    with tempfile.TemporaryDirectory() as tree:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as files:
            files.extractall(tree, filter="data")
        _run("build", "--no-isolation", "--sdist", "--outdir", out, tree)
    (sdist,) = out.glob("*.tar.gz")
    _same_times(sdist, seconds)
    return sdist


def build_wheel(sdist: Path, out: Path, platform: str | None) -> Path:
    """The wheel of an sdist for one of PLATFORMS, or for all, without C: None."""
    before = set(out.glob("*.whl"))
    with tempfile.TemporaryDirectory() as folder:
        tree = _unpacked(sdist, folder)
        seconds = int((tree / "PKG-INFO").stat().st_mtime)
        options: list[str | Path] = ["--no-isolation", "--wheel", "--outdir", out, tree]
        environment = {"SOURCE_DATE_EPOCH": str(seconds), "JETSPARK_KERNEL": "python"}
        if platform is not None:
            options.append(f"--config-setting=--build-option=--plat-name={platform}")
            environment |= _cross_compiler(platform, cache=Path(folder, "zig"))
        _run("build", *options, environment=environment)
    (wheel,) = set(out.glob("*.whl")) - before
    check_wheel(wheel, platform)
    return wheel


def _unpacked(sdist: Path, folder: str) -> Path:
    with tarfile.open(sdist) as files:
        files.extractall(folder, filter="data")
    (tree,) = Path(folder).iterdir()
    return tree


def _cross_compiler(platform: str, cache: Path) -> dict[str, str]:
    """The environment for setuptools to compile for another machine."""
    compiler = f"{sys.executable} -m ziglang cc -target {PLATFORMS[platform]}"
    # Python's own functions are found when the module is loaded.
    undefined = "-Wl,-undefined,dynamic_lookup" if "macos" in platform else "-dynamic"
    return {
        "JETSPARK_KERNEL": "c",
        "CC": compiler,
        "CFLAGS": "-g0 -Wall -Wextra -Werror",
        "LDSHARED": f"{compiler} -shared -s {undefined}",
        "ZIG_LOCAL_CACHE_DIR": str(cache),
        "ZIG_GLOBAL_CACHE_DIR": str(cache),
    }


def check_wheel(wheel: Path, platform: str | None) -> None:
    """Raise ReleaseError unless the name and the files are those of a wheel for this platform."""
    tag = "py3-none-any" if platform is None else f"cp311-abi3-{platform}"
    if not wheel.name.endswith(f"-{tag}.whl"):
        raise ReleaseError(f"{wheel.name} is not tagged {tag}.")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    if "jetspark/py.typed" not in names:
        raise ReleaseError(f"{wheel.name} lacks jetspark/py.typed.")
    if (KERNEL in names) != (platform is not None):
        raise ReleaseError(f"{wheel.name} {'has' if platform is None else 'lacks'} {KERNEL}.")
    for name in names:
        top = name.partition("/")[0]
        modules = top == "jetspark" or top.startswith("pyspark_jet")
        if not (
            (modules and name.endswith((".py", ".pyi", ".typed", ".html", KERNEL)))
            or ".dist-info" in top
        ):
            raise ReleaseError(f"{wheel.name} has {name}, which nobody needs there.")


def commit_time(commit: str) -> int:
    """Seconds since 1970."""
    return int(_git("log", "-1", "--format=%ct", commit))


def build_all(commit: str, out: Path) -> None:
    """Build the sdist and all wheels into `out`."""
    sdist = build_sdist(commit, out)
    for platform in (*PLATFORMS, None):
        build_wheel(sdist, out, platform)


def audit(out: Path) -> None:
    """Raise ReleaseError unless the tools of Python's packaging find nothing wrong."""
    wheels = sorted(out.glob("*.whl"))
    _run("twine", "check", "--strict", *wheels, *out.glob("*.tar.gz"))
    with tempfile.TemporaryDirectory() as folder:  # compared with the modules of the sdist
        (sdist,) = out.glob("*.tar.gz")
        _run("check_wheel_contents", *wheels, folder=_unpacked(sdist, folder))
    for wheel in wheels:
        if "abi3" in wheel.name:
            _run("abi3audit", "--strict", wheel)
    for platform in PLATFORMS:
        if "linux" in platform:
            (wheel,) = out.glob(f"*-{platform}.whl")
            _audit_platform(wheel, platform)


def _audit_platform(wheel: Path, platform: str) -> None:
    """Raise ReleaseError if the wheel needs a newer C library, or another one, than its tag."""
    with tempfile.TemporaryDirectory() as none:  # or this machine's libraries are looked at
        command = [sys.executable, "-m", "auditwheel", "show", "--json", "--ldpaths", none]
        shown = subprocess.run([*command, wheel], check=True, capture_output=True).stdout
    found = json.loads(shown)
    # Alpine calls musl's C library by another name; its loader takes both for itself.
    libraries = found["external_libs"].keys() - {"libc.so"}
    kind, _, minor, *_ = found["sym_tag"].split("_")
    tagged_kind, _, tagged_minor, *_ = platform.split("_")
    if libraries or kind != tagged_kind or int(minor) > int(tagged_minor):
        needs = " and ".join([found["sym_tag"], *sorted(libraries)])
        raise ReleaseError(f"{wheel.name} needs {needs}.")


def write_bill(out: Path, seconds: int) -> Path:
    """Write which packages an installation without extras consists of, as CycloneDX."""
    (wheel,) = out.glob("*-py3-none-any.whl")
    bill = out / wheel.name.replace("-py3-none-any.whl", ".cdx.json")
    with tempfile.TemporaryDirectory() as folder:
        _run("venv", "--without-pip", folder)
        python = Path(folder, "bin", "python")
        _run("pip", "--python", python, "install", "--quiet", wheel)
        root = ("--pyproject", _ROOT / "pyproject.toml", "--mc-type", "library")
        result = ("--output-reproducible", "--output-file", bill)
        environment = {"SOURCE_DATE_EPOCH": str(seconds)}
        _run("cyclonedx_py", "environment", *root, *result, python, environment=environment)
    return bill


def digests(out: Path) -> dict[str, str]:
    """The SHA-256 of each file, by its name."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.iterdir())
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="FOLDER", help="a new or empty folder")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--twice", action="store_true", help="build again and compare")
    options = parser.parse_args()
    os.umask(0o022)  # the files' permissions are packed, too
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.absolute()
    if any(out.iterdir()):
        parser.error(f"{out} is not empty")
    commit = _git("rev-parse", options.commit).decode().strip()  # HEAD may move meanwhile
    try:
        build_all(commit, out)
        audit(out)
        if options.twice:
            with tempfile.TemporaryDirectory() as again:
                build_all(commit, Path(again))
                if digests(out) != digests(Path(again)):
                    raise ReleaseError(f"Two builds differ: {digests(out)}, {digests(Path(again))}")
            print("Two builds are the same, byte for byte.")
        write_bill(out, commit_time(commit))
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    for name, digest in digests(out).items():
        print(digest, name)
    return 0


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=_ROOT, check=True, capture_output=True).stdout


def _run(
    module: str,
    *arguments: str | Path,
    environment: dict[str, str] | None = None,
    folder: Path = _ROOT,
) -> None:
    """Run a module of this Python, which prints what it finds."""
    command = [sys.executable, "-m", module, *arguments]
    if subprocess.run(command, env=os.environ | (environment or {}), cwd=folder).returncode:
        raise ReleaseError(f"{module} failed: see above.")


def _same_times(sdist: Path, seconds: int) -> None:
    """Pack it again: setuptools takes the time of the build, and the user's name."""
    packed = io.BytesIO()
    with (
        tarfile.open(sdist) as old,
        gzip.GzipFile("", "wb", fileobj=packed, mtime=seconds) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.pax_headers = seconds, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    sdist.write_bytes(packed.getvalue())


if __name__ == "__main__":
    sys.exit(main())

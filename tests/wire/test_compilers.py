"""Strict compilers build the C kernel, too: it is optional, so nobody would see that they do not.

The compilers that are there are asked; clang is Debian's package of that name.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

WIRE = Path(__file__).parents[2] / "src" / "jetspark" / "wire"
SOURCES = sorted(WIRE.glob("*.c"))
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
# No warning, none of the errors of GCC 14 and clang 16 without a flag; and a target without the
# instructions that are looked for at run time.
STRICT = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Werror=implicit-function-declaration",
    "-Werror=implicit-int",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
    "-Werror=return-type",
]
BASELINE = {"x86_64": ["-march=x86-64", "-mno-crc32"]}


def _refusal(compiler: str, flags: list[str], include: str, folder: Path) -> str | None:
    """What a compiler says about the kernel; None if it takes it."""
    about = subprocess.check_output([compiler, "--version"], text=True).splitlines()[0]
    machine = subprocess.check_output([compiler, "-dumpmachine"], text=True).partition("-")[0]
    print(f"found {about} for {machine}")
    build = [compiler, *flags, "-O0", "-fPIC", *STRICT, *BASELINE.get(machine, []), f"-I{include}"]
    done = subprocess.run(
        [*build, "-c", *SOURCES], cwd=folder, capture_output=True, text=True, check=False
    )
    return f"{about}: {done.stderr}" if done.returncode else None


@pytest.mark.full
@pytest.mark.parametrize("standard", ["gnu11", "gnu2x"])
def test_every_compiler_that_is_there_takes_the_c_kernel(standard: str, tmp_path: Path) -> None:
    if not COMPILERS:
        print("found no compiler")  # and so no C kernel: there is nothing that could be refused
    for compiler in COMPILERS:
        include = sysconfig.get_path("include")
        assert _refusal(compiler, [f"-std={standard}"], include, tmp_path) is None


def _newest_headers() -> str | None:
    """Where the headers of Python 3.13 or newer are, of this or another interpreter on the path."""
    program = "import sysconfig; print(sysconfig.get_path('include'))"
    this = [sys.executable] if sys.version_info >= (3, 13) else []
    for python in (*this, *map(shutil.which, ("python3.15", "python3.14", "python3.13"))):
        if python is None:
            continue
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, check=False, timeout=60
        )
        include = done.stdout.strip()
        if done.returncode == 0 and Path(include, "Python.h").is_file():
            return include
    return None


@pytest.mark.full
@pytest.mark.skipif(not COMPILERS, reason="there is no compiler")
def test_c_kernel_compiles_for_free_threaded_python(tmp_path: Path) -> None:
    """Only compiles: its headers are those of other builds, with Py_GIL_DISABLED."""
    if (include := _newest_headers()) is None:
        pytest.skip("there are no headers of Python 3.13 or newer")
    for compiler in COMPILERS:
        assert _refusal(compiler, ["-DPy_GIL_DISABLED=1"], include, tmp_path) is None

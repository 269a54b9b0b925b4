"""Strict compilers build the C kernel, too: it is optional, so nobody would see that they do not.

The compilers that are there are asked; clang is Debian's package of that name.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

WIRE = Path(__file__).parents[2] / "src" / "jetspark" / "wire"
SOURCES = sorted(WIRE.glob("*.c"))
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
# Errors of GCC 14 and clang 16 without a flag; and a target without the instructions that are
# looked for at run time.
STRICT = [
    "-Werror=implicit-function-declaration",
    "-Werror=implicit-int",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
    "-Werror=return-type",
]
BASELINE = {"x86_64": ["-march=x86-64", "-mno-crc32"]}


@pytest.mark.full
@pytest.mark.parametrize("standard", ["gnu11", "gnu2x"])
def test_every_compiler_that_is_there_takes_the_c_kernel(standard: str, tmp_path: Path) -> None:
    if not COMPILERS:
        print("found no compiler")  # and so no C kernel: there is nothing that could be refused
    for compiler in COMPILERS:
        about = subprocess.check_output([compiler, "--version"], text=True).splitlines()[0]
        machine = subprocess.check_output([compiler, "-dumpmachine"], text=True).partition("-")[0]
        print(f"found {about} for {machine}")
        include = f"-I{sysconfig.get_path('include')}"
        flags = [f"-std={standard}", "-O0", "-fPIC", *STRICT]
        done = subprocess.run(
            [compiler, *flags, *BASELINE.get(machine, []), include, "-c", *SOURCES],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{about}: {done.stderr}"

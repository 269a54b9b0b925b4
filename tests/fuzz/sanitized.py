"""The C kernel built with AddressSanitizer and UndefinedBehaviorSanitizer (gcc).

They end the process at the first access outside of a buffer.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

_SOURCES = Path(__file__).parent.parent.parent / "src/jetspark/wire"
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_VARIABLE = "JETSPARK_SANITIZED_KERNEL"

Fuzz: TypeAlias = Callable[[int, list[ModuleType], int], object]
"""(number of inputs, kernels, seed) -> what is printed."""


def main(module: str, description: str | None, count: int, fuzz: Fuzz) -> int:
    """The command line of a module whose `fuzz` gives so many inputs to kernels."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("count", type=int, nargs="?", default=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sanitize", action="store_true")
    given = parser.parse_args()
    if given.sanitize:
        return _run_again(module, [str(given.count), "--seed", str(given.seed)])
    _load()
    from jetspark.wire import _kernel, _python_kernel  # type: ignore[attr-defined]

    print(f"kernel: {_kernel.__file__}", file=sys.stderr)
    print(fuzz(given.count, [_python_kernel, _kernel], given.seed))
    return 0


def _run_again(module: str, arguments: list[str]) -> int:
    """`python -m module`, with a kernel that is checked at each access."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "_kernel.abi3.so"
        sources = [str(source) for source in sorted(_SOURCES.glob("*.c"))]
        include = f"-I{sysconfig.get_path('include')}"
        build = ["gcc", "-g", "-O1", "-shared", "-fPIC", *_SANITIZERS, include, *sources]
        subprocess.run([*build, "-o", str(library)], check=True)
        asan = subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True).strip()
        environment = {
            **os.environ,
            "LD_PRELOAD": asan,
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
            _VARIABLE: str(library),
        }
        return subprocess.run(
            [sys.executable, "-m", module, *arguments], env=environment
        ).returncode


def _load() -> None:
    """In such a process: its kernel, in place of the installed one."""
    path = os.environ.get(_VARIABLE)
    if path is None:
        return
    spec = importlib.util.spec_from_file_location("jetspark.wire._kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import jetspark.wire

    sys.modules[spec.name] = jetspark.wire._kernel = module  # type: ignore[attr-defined]

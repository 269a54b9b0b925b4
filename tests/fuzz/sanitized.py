"""The C kernel built with AddressSanitizer and UndefinedBehaviorSanitizer (gcc).

They end the process at the first access outside of a buffer.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

_SOURCES = Path(__file__).parent.parent.parent / "src/jetspark/wire"
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_VARIABLE = "JETSPARK_SANITIZED_KERNEL"


def run_again(module: str, arguments: list[str]) -> int:
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


def load() -> None:
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

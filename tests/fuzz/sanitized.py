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
from typing import Any

_SOURCES = Path(__file__).parent.parent.parent / "src/jetspark/wire"
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_VARIABLE = "JETSPARK_SANITIZED_KERNEL"


def c_kernel(*, sanitize: bool) -> Any:
    """The C kernel. `sanitize`: this process begins anew with one that checks each access.

    Nothing may have imported jetspark's before.
    """
    if sanitize:
        if _VARIABLE not in os.environ:
            _begin_anew()
        _load(Path(os.environ[_VARIABLE]))
    from jetspark.wire import _kernel  # type: ignore[attr-defined]

    return _kernel


def _begin_anew() -> None:
    library = Path(tempfile.mkdtemp()) / "_kernel.abi3.so"
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
    os.execve(sys.executable, sys.orig_argv, environment)


def _load(library: Path) -> None:
    """In place of the installed one."""
    spec = importlib.util.spec_from_file_location("jetspark.wire._kernel", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library.unlink()
    library.parent.rmdir()
    import jetspark.wire

    sys.modules[spec.name] = jetspark.wire._kernel = module  # type: ignore[attr-defined]

"""The C kernel built with AddressSanitizer and UndefinedBehaviorSanitizer (gcc).

They end the process at the first access outside of a buffer.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.damage import damaged

_SOURCES = Path(__file__).parent.parent.parent / "src/jetspark/wire"
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_VARIABLE = "JETSPARK_SANITIZED_KERNEL"
VARIANTS = 100
"""How many damaged forms of a payload are decoded with sanitizers."""
_LIMITS = (1 << 30, 1 << 30, 1 << 30, 0, 64, 1_000)


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


class Decoder:
    """A decoder of the kernel, in whose place it puts itself, to repeat its last call with other
    payloads."""

    def __init__(self, kernel: Any, name: str) -> None:
        self._decode = getattr(kernel, name)
        self._plan: tuple[Any, ...] = ()
        setattr(kernel, name, self)

    def __call__(self, data: Any, offsets: Any, *plan: Any) -> Any:
        self._plan = plan
        return self._decode(data, offsets, *plan)

    def decode_damaged(
        self,
        rng: random.Random,
        payloads: Sequence[bytes],
        alphabet: bytes,
        behind: Sequence[bytes] = (b"",),
    ) -> int:
        """Decode each payload and damaged forms of it, and return how many these were.

        Each is alone, in memory of its size, with a limit of bytes that is sometimes too low.
        `behind`: what is in memory behind a payload.
        """
        columns, names, _, *fields = self._plan
        for payload in payloads:
            data = payload
            for _ in range(VARIANTS):
                memory = array("B", data + rng.choice(behind))
                offsets = array("i", (0, len(data)))
                self._decode(memory, offsets, columns, names, rng.choice(_LIMITS), *fields)
                # Damage adds up, now and then.
                data = damaged(rng, data if rng.random() < 0.3 else payload, alphabet)
        return VARIANTS * len(payloads)

"""Processes forked from one that has imported what they need. Each by itself would take seconds of
a processor for that, more than for what it does."""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import sys
import warnings
from multiprocessing.context import ForkServerContext
from pathlib import Path


def forked_from(*modules: str) -> ForkServerContext:
    """The first call decides what a process of pytest has imported; others import the rest."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *modules])
    return context


def run_program(file: Path, arguments: tuple[str, ...], folder: Path) -> None:
    """In such a process, as `python -W error` runs a file. What it prints is in `out` and `err`."""
    for fd, stream in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / stream, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
    sys.argv = [str(file), *arguments]
    warnings.simplefilter("error")
    runpy.run_path(sys.argv[0], run_name="__main__")
    gc.collect()

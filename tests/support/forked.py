"""Processes forked from one that has imported what they need. Each by itself would take seconds of
a processor for that, more than for what it does."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext


def forked_from(*modules: str) -> ForkServerContext:
    """The first call decides what a process of pytest has imported; others import the rest."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context

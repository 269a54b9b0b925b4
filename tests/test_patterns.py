"""Regular expressions take a time that grows with the text, and not with its square."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import jetspark

SECONDS = 1.0
LENGTH = 20_000
"""A pattern that takes the square of it needs many seconds."""
METHODS = "fullmatch|match|search|finditer|findall|sub|split"
OF_OWN_TEXT = (
    "jetspark.cli.", "jetspark.spark.session.jvm", "jetspark.spark.pipelines.toml_table",
    "jetspark.spark.failures",
)  # fmt: skip
"""Modules whose patterns read what this user, or Spark, has written."""
EXCEPT = {
    "jetspark.payloads.ddl._TEXT_OR_CHARACTER": "a schema as this user writes it",
    "jetspark.tables.partitions._SEPARATOR": "partitions as this user writes them",
    "jetspark.tables.upserts._CONDITION": "a condition as this user writes it",
    "jetspark.wire.pull._PART": "reads only what _DURATION takes",
}


def patterns() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes], list[str]]]:
    """Each pattern, and the methods that its module calls."""
    for info in pkgutil.walk_packages(jetspark.__path__, "jetspark."):
        if info.name.startswith(OF_OWN_TEXT) or info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(info.name)
            source = inspect.getsource(module)
        except (ImportError, OSError):  # of an extra that is not installed, or in C
            continue
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern) and f"{info.name}.{name}" not in EXCEPT:
                called = set(re.findall(rf"\b{name}\.({METHODS})\(", source))
                yield f"{info.name}.{name}", value, sorted(called)


def attacks(pattern: str) -> Iterator[str]:
    """Texts of a repeated part, and an end that fits nothing."""
    literals = re.findall(r"[A-Za-z]{3,}", pattern)
    marks = sorted({one for one in pattern if not one.isalnum()} - set("\\^$*+?|()[]-, ._/"))
    parts = [" ", "\n", "a", "1", ".", "/", "`", "a,", '\\"', *marks]
    for start in ("", "1", "100 ", "a", '"', *literals[:2]):
        for part in parts:
            for end in ("\n!", "a\nb"):
                yield f"{start}{part * (LENGTH // len(part))}{end}"


@contextmanager
def time_limit(text: str) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"more than {SECONDS} s for {text[:40]!r}… {text[-5:]!r}")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.full
@pytest.mark.parametrize(
    ("pattern", "methods"), [pytest.param(*one, id=name) for name, *one in patterns()]
)
def test_no_text_keeps_a_pattern_busy(pattern: re.Pattern[Any], methods: list[str]) -> None:
    is_text = isinstance(pattern.pattern, str)
    source = pattern.pattern if is_text else pattern.pattern.decode("latin-1")
    for text in attacks(source):
        subject = text if is_text else text.encode("latin-1")
        with time_limit(text):
            for method in methods:
                if method in ("fullmatch", "match"):
                    getattr(pattern, method)(subject)
                else:
                    deque(pattern.finditer(subject), maxlen=0)

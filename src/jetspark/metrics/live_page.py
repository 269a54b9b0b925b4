"""The page for people on the port of the metrics, and its figures.

`/` is one page without anything from elsewhere, which asks for `/live.json` every few seconds. No
action can be taken from it, and texts of others reach it only as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Final

from prometheus_client import REGISTRY

from jetspark.version import __version__

Queries = Callable[[], Sequence[dict[str, Any]]]
"""Returns what the page shows of each query, as `spark.queries.live_queries` makes it."""

_MAX_WARNINGS: Final = 10
_OWN_METRICS: Final = ("jetspark_", "messaging_")


class LivePage:
    """The page and its figures: `html`, `document`."""

    def __init__(self, command: str, queries: Queries) -> None:
        """`command`: the command line, without secrets."""
        self._command = command
        self._queries = queries
        self._began = time.time()
        self._warnings: deque[dict[str, Any]] = deque(maxlen=_MAX_WARNINGS)

    def document(self, not_ready: Sequence[str], not_alive: Sequence[str]) -> bytes:
        """The figures as JSON. `not_ready`, `not_alive`: the reasons of the probes."""
        queries = self._queries()
        document = {
            "command": self._command,
            "version": __version__,
            "began": self._began,
            "now": time.time(),
            "not_ready": [*not_ready],
            "not_alive": [*not_alive],
            "queries": queries,
            "warnings": [*reversed(self._warnings)],
            # Shown in place of queries; collecting them would read the checkpoints once more.
            "metrics": [] if queries else [*_own_metrics()],
        }
        return json.dumps(document).encode()

    @contextmanager
    def gathering_warnings(self) -> Iterator[None]:
        """Keep the last warnings of jetspark's loggers that are logged in the block."""
        handler = _Kept(self._warnings)
        logger = logging.getLogger("jetspark")
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


class _Kept(logging.Handler):
    """Puts warnings into a list."""

    def __init__(self, warnings: deque[dict[str, Any]]) -> None:
        super().__init__(logging.WARNING)
        self._warnings = warnings

    def emit(self, record: logging.LogRecord) -> None:
        self._warnings.append(
            {"at": record.created, "level": record.levelname, "text": record.getMessage()}
        )


def _own_metrics() -> Iterator[dict[str, Any]]:
    """The values of jetspark's metrics, as `/metrics` has them, without histograms' buckets."""
    for family in REGISTRY.collect():
        if not family.name.startswith(_OWN_METRICS):
            continue
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                yield {"name": sample.name, "labels": sample.labels, "value": sample.value}


@cache
def page_html() -> bytes:
    """The page."""
    return files("jetspark.metrics").joinpath("live_page.html").read_bytes()


@cache
def page_headers() -> tuple[tuple[str, str], ...]:
    """The headers of the page: only its own script and style may run, and nothing may frame it."""
    page = page_html().decode()
    script, style = (_hash_of(page, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return (
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
    )


def _hash_of(page: str, tag: str) -> str:
    """The source of the page's only element with this tag, for its policy."""
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

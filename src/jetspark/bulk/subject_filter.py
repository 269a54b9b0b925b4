"""Filters messages by many subjects, where that is faster than the server's own filter.

With several subjects, nats-server takes about 0.6 ms to find each next message, the longer the
more subjects there are (2.15: 0.5 s for 500 messages under 10 subjects of 200,000, 29 s for
50,000 under 1,000); delivering all takes 2 to 7 µs for each message, the others included.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jetspark.subjects import subject_matches

_WORTH = 100
"""Deliveries that cost as much as finding one message, for payloads of 1 KB on a fast network."""


def reading_all_is_faster(subjects: Sequence[str], matching: int, stored: int) -> bool:
    """Whether to filter here, if so many of `stored` sequences match several subjects."""
    return len(subjects) > 1 and matching * _WORTH > stored


class SubjectFilter:
    """Chooses rows by subject, which may have wildcards."""

    def __init__(self, subjects: Sequence[str]) -> None:
        self._exact = {one for one in subjects if not {"*", ">"} & set(one.split("."))}
        self._patterns = [one for one in subjects if one not in self._exact]
        self._known: dict[bytes, bool] = {}

    def mask(self, subjects: pa.BinaryArray) -> pa.BooleanArray:
        """True for each row whose subject is wanted."""
        encoded = subjects.dictionary_encode()
        wanted = [self._is_wanted(subject) for subject in encoded.dictionary.to_pylist()]
        return pa.array(wanted, pa.bool_()).take(encoded.indices)

    def _is_wanted(self, raw: bytes) -> bool:
        known = self._known.get(raw)
        if known is None:
            subject = raw.decode("utf-8", "surrogateescape")
            known = self._known[raw] = subject in self._exact or any(
                subject_matches(pattern, subject) for pattern in self._patterns
            )
            if len(self._known) > 100_000:
                self._known.clear()
        return known

"""Seven values of an event as JSON, flat and nested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

FLAT = "id BIGINT, lat DOUBLE, lon DOUBLE, a STRING, b STRING, k STRING, v DOUBLE"
NESTED = (
    "id BIGINT, pos STRUCT<lat: DOUBLE, lon: DOUBLE>, tags ARRAY<STRING>, m MAP<STRING, DOUBLE>"
)


def events(count: int, *, nested: bool) -> Iterator[bytes]:
    for number in range(count):
        lat, lon, tags = 52.1 + number % 89 / 100, 13.4 + number % 97 / 100, (f"t{number % 7}", "b")
        if nested:
            pos = {"lat": lat, "lon": lon}
            row: dict[str, Any] = {"id": number, "pos": pos, "tags": tags, "m": {"k": 0.5}}
        else:
            row = {"id": number, "lat": lat, "lon": lon, "a": tags[0], "b": "b", "k": "k", "v": 0.5}
        yield json.dumps(row, separators=(",", ":")).encode()

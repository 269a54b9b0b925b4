"""No garbage is collected while a trigger is planned."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Admin, numbered

from jetspark.spark import planning
from jetspark.spark.options import parse_options
from jetspark.spark.stream import JetStreamStreamReader, gc_paused

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.server import NatsServer


def test_a_trigger_is_planned_gc_paused(
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = unique("PLANNED")
    admin.create(name, name)
    admin.fill(numbered(name, 10))
    options = {"servers": shared_server.url, "stream": name, "startingOffsets": "earliest"}
    reader = JetStreamStreamReader(parse_options(options))
    seen = []

    def looking(planned: Callable[..., Any]) -> Callable[..., Any]:
        def look(*arguments: Any, **named: Any) -> Any:
            seen.append(gc.isenabled())
            return planned(*arguments, **named)

        return look

    for function in ("next_offsets", "batch_ranges"):
        monkeypatch.setattr(planning, function, looking(getattr(planning, function)))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert len(reader.partitions(start, end)) == 1
    assert seen == [False, False]
    assert gc.isenabled()


class Planner:
    @gc_paused()
    def plan(self, error: Exception | None) -> bool:
        if error is not None:
            raise error
        return gc.isenabled()


def test_afterwards_it_is_as_it_was() -> None:
    with pytest.raises(KeyError):
        Planner().plan(KeyError("S"))
    assert gc.isenabled()
    gc.disable()
    try:
        assert not Planner().plan(None)
        assert not gc.isenabled()
    finally:
        gc.enable()

"""A comparison of schemas ends, however often they name their parts."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.payloads.test_doubling_schemas import messages, properties, records

from jetspark.payloads.schema import PayloadSchema
from jetspark.registry import effort
from jetspark.registry.compatibility import incompatibilities, load_rules


def all_of(times: int, innermost: str) -> str:
    """A JSON Schema in which everything is said several times, again and again."""
    parts: dict[str, Any] = {"D9": {"type": innermost}}
    for at in range(9):
        parts[f"D{at}"] = {"allOf": [{"$ref": f"#/$defs/D{at + 1}"}] * times}
    return json.dumps({"$defs": parts, "$ref": "#/$defs/D0"})


@pytest.mark.full
def test_what_is_named_twice_again_and_again_is_compared_once_or_not_at_all() -> None:
    load_rules()
    begun = time.monotonic()
    for reader, writer in (
        (
            PayloadSchema("avro", json.dumps(records(40, {"name": "x", "type": one})))
            for one in ("int", "string")
        ),
        (PayloadSchema("json", all_of(30, one)) for one in ("integer", "string")),
        (PayloadSchema("json", json.dumps(properties(one))) for one in (60, 61)),
        (
            PayloadSchema("protobuf", messages(60).replace("int32", one))
            for one in ("int32", "string")
        ),
    ):
        assert 0 < len(incompatibilities(reader, writer)) <= 101
    assert time.monotonic() - begun < 30


def test_a_comparison_whose_steps_are_long_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "MAX_SECONDS", 0.05)
    union = [{"type": "record", "name": f"R{at}", "fields": []} for at in range(2000)]
    schema = PayloadSchema("avro", json.dumps(union))
    assert incompatibilities(schema, schema) == ["they are too complex to be compared"]

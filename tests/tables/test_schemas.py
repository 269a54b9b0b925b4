"""Which values a table's columns take."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from jetspark.tables.schemas import accepts_type


@pytest.mark.parametrize(
    "around",
    [
        lambda kind: kind,
        lambda kind: pa.struct([("x", kind)]),
        lambda kind: pa.list_(kind),
        lambda kind: pa.map_(pa.string(), pa.list_(pa.struct([("x", kind)]))),
    ],
)
def test_a_column_takes_smaller_integers_at_any_depth_and_no_larger_ones(
    around: Callable[[pa.DataType], pa.DataType],
) -> None:
    small, wide, long = map(around, (pa.int16(), pa.int32(), pa.int64()))
    assert accepts_type(wide, small)
    assert accepts_type(wide, wide)
    assert not accepts_type(small, wide)
    assert not accepts_type(wide, long)
    assert not accepts_type(long, wide)

"""Which table a row goes to."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jetspark.errors import ConfigError
from jetspark.tables.table_templates import TableTemplate

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


def rows(**columns: list[object]) -> pa.RecordBatch:
    types = {"headers": HEADERS, "n": pa.int64()}
    return pa.RecordBatch.from_arrays(
        [pa.array(values, types.get(name, pa.string())) for name, values in columns.items()],
        names=list(columns),
    )


def route(template: str, *, in_catalog: bool = False) -> TableTemplate:
    found = TableTemplate.parse("--to", template, in_catalog=in_catalog)
    assert found is not None
    return found


def divided(template: str, batch: pa.RecordBatch, *, in_catalog: bool = False) -> dict[object, int]:
    pieces = list(route(template, in_catalog=in_catalog).split_by_table(batch))
    assert sum(piece.num_rows for _, piece in pieces) == batch.num_rows
    return {name: piece.num_rows for name, piece in pieces}


def test_a_row_goes_to_the_table_that_its_values_name() -> None:
    batch = rows(
        subject=["o.eu.a", "o.us.a", "o.eu.b", "o"],
        headers=[
            [{"key": "Site", "value": "x"}, {"key": "Site", "value": "y"}], None,
            [{"key": "site", "value": "z"}], [],
        ],
        n=[1, 1, 2, None],
    )  # fmt: skip
    assert divided("lake/{subject[1]}/t", batch) == {"lake/eu/t": 2, "lake/us/t": 1, None: 1}
    assert divided("lake/{header[Site]}", batch) == {"lake/x": 1, None: 3}
    assert divided("lake/{n}-{subject[2]}", batch) == {"lake/1-a": 2, "lake/2-b": 1, None: 1}


@given(st.lists(st.text(max_size=200), min_size=1, max_size=20), st.booleans())
def test_a_value_of_others_stays_within_its_folder_and_different_values_have_different_names(
    values: list[str], in_catalog: bool
) -> None:
    values = [one.encode(errors="replace").decode() for one in values]
    one = route("lake/{region}", in_catalog=in_catalog)
    names = {
        piece.column("region").to_pylist()[0]: name
        for name, piece in one.split_by_table(rows(region=list(values)))
    }
    assert set(names) == set(values) or "" in values
    assert len(set(names.values())) == len(names)
    for name in filter(None, names.values()):
        folder = name.removeprefix("lake/")
        assert folder.isascii()
        assert folder
        assert "/" not in folder
        assert folder[0] != "."
        assert len(folder) <= 255
        assert one.may_name(name)
        assert not one.may_name(one.sibling_name(name))


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("lake/{}", "not a value of a row"),
        ("lake/{subject[x]}", "has a number"),
        ("lake/{field[1]}", "not a value of a row"),
    ],
)
def test_a_template_that_cannot_be_read_is_refused(template: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TableTemplate.parse("--to", template)


def test_a_column_that_the_rows_lack_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'region'"):
        route("lake/{regoin}").check("--to", ["region", "subject"])
    assert TableTemplate.parse("--to", "lake/orders") is None


_TEXTS = st.text("ax5f_-.~7E", min_size=1, max_size=4) | st.sampled_from(
    ["x5f", "_x5f_", "a" * 103, "a" * 150, "a" * 103 + "b" * 50, "3a52ce780950d4d9"]
)


@pytest.mark.parametrize(
    ("template", "in_catalog"),
    [
        ("lake/{a}-{b}_{c}", False),
        ("lake/{a}-{b}-{c}", False),
        ("lake/{a}x5f_{b}.{c}", False),
        ("lake/{a}_t_{b}.{c}", False),
        ("lake/{a}/{b}~-{c}", False),
        ("shop.{a}_{b}_{c}", True),
        ("shop.{a}_a_{b}.{c}", True),
        ("shop.{a}_5{b}a__{c}", True),
    ],
)
@given(st.lists(st.tuples(_TEXTS, _TEXTS, _TEXTS), min_size=2, max_size=40, unique=True))
@example([("x-y", "z", "d"), ("x", "y-z", "d"), ("x_t", "z", "d"), ("x", "t_z", "d")])
@example([("x.y", "x.y", "z"), ("x.y", "x", "y.z"), ("y", "x-y", "z"), ("y", "x", "y-z")])
@example([("a_c", "x5f", "d"), ("a", "x5f", "c_d")])
@example([("a_x5f", "a", "b"), ("a", "x5f_a", "b")])
@example([("a" * 103, hashlib.sha256(b"a" * 150).hexdigest()[:16], "b"), ("a" * 150, "b", "b")])
def test_different_values_never_share_a_table(
    template: str, in_catalog: bool, values: list[tuple[str, str, str]]
) -> None:
    batch = rows(**dict(zip("abc", map(list, zip(*values, strict=True)), strict=True)))
    one = route(template, in_catalog=in_catalog)
    names = [name for name, _ in one.split_by_table(batch)]
    assert len(names) == len(values)
    assert all(name is not None and one.may_name(name) for name in names)


@pytest.mark.parametrize(
    ("template", "in_catalog"),
    [
        ("lake/{a}{b}", False),
        ("lake/{a}x{b}", False),
        ("lake/{a}~{b}", False),
        ("lake/{a}-{b}1{c}", False),
        ("shop.{a}{b}", True),
        ("shop.{a}and{b}", True),
        ("shop.{a}-{b}", True),
        ("shop.{a}_x{b}", True),
    ],
)
def test_a_template_of_shared_tables_is_refused(template: str, in_catalog: bool) -> None:
    with pytest.raises(ConfigError, match="nothing tells where a value ends"):
        TableTemplate.parse("--to", template, in_catalog=in_catalog)

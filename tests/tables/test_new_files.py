"""Files that tasks write: every row once, in the file of its partition."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import ConfigError
from jetspark.tables import file_writer
from jetspark.tables.file_layout import Layout, Partition
from jetspark.tables.file_writer import FileWriter, write_files

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("day", pa.date32())])
ROWS = st.lists(
    st.tuples(
        st.integers(0, 99), st.sampled_from(["a", "b/c", "", None]), st.sampled_from([0, 1, None])
    ),
    max_size=40,
)


def by(*columns: str) -> tuple[Partition, ...]:
    return tuple(Partition(one, one) for one in columns)


class _Kept(io.BytesIO):
    """A stream whose bytes are there after it was closed."""

    def __init__(self, kept: dict[str, bytes], path: str) -> None:
        super().__init__()
        self._kept, self._path = kept, path

    def close(self) -> None:
        if not self.closed:
            self._kept[self._path] = self.getvalue()
        super().close()


@dataclass
class Memory:
    """A storage."""

    files: dict[str, bytes] = field(default_factory=dict)

    def create(self, path: str) -> _Kept:
        assert path not in self.files
        return _Kept(self.files, path)

    def open(self, path: str) -> io.BytesIO:
        return io.BytesIO(self.files[path])

    def remove(self, path: str) -> None:
        del self.files[path]


def batch(rows: list[tuple[int, str | None, int | None]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.RecordBatch.from_arrays(
        [pa.array(one, kind.type) for one, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


@given(st.lists(ROWS, max_size=5), st.sampled_from([(), ("key",), ("key", "day")]), st.booleans())
def test_every_row_is_once_in_the_file_of_its_partition(
    batches: list[list[tuple[int, str | None, int | None]]],
    partition_by: tuple[str, ...],
    keeps: bool,
) -> None:
    storage = Memory()
    layout = Layout(SCHEMA, by(*partition_by), keeps_partition_columns=keeps)
    files = write_files(layout, storage, "part-0", map(batch, batches))
    found: Counter[tuple[object, ...]] = Counter()
    for file in files:
        data = storage.files[file.path]
        assert file.size == len(data)
        table = pq.read_table(pa.BufferReader(data))
        assert table.num_rows == file.rows == file.metadata.num_rows
        values = dict(zip(partition_by, file.partition, strict=True))
        for row in table.to_pylist():
            assert not set(row) & set(values) or keeps
            whole = {**row, **values}
            assert all(row.get(name, value) == value for name, value in values.items())
            found[tuple(whole[name] for name in SCHEMA.names)] += 1
    wanted = [row for one in batches for row in batch(one).to_pylist()]
    assert found == Counter(tuple(row.values()) for row in wanted)
    assert set(storage.files) == {file.path for file in files}


def test_a_file_ends_at_its_size_and_row_groups_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "MAX_ROW_GROUP_ROWS", 1000)
    layout = Layout(SCHEMA, target_bytes=20_000, compression="none")
    batches = (
        batch([(start + one, str(start + one), one) for one in range(500)])
        for start in range(0, 20_000, 500)
    )
    files = write_files(layout, Memory(), "part-0", batches)
    assert len(files) > 3
    assert all(file.size < 60_000 for file in files)
    groups = [file.metadata.row_group(0).num_rows for file in files]
    assert set(groups) == {1000}


def test_many_partitions_do_not_open_as_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "MAX_OPEN_FILES", 3)
    batches = [batch([(turn, str(one), 0) for one in range(10)]) for turn in range(2)]
    files = write_files(Layout(SCHEMA, by("key")), Memory(), "part-0", batches)
    assert sum(file.rows for file in files) == 20
    assert {file.partition for file in files} == {(str(one),) for one in range(10)}


@pytest.mark.full
def test_a_rare_row_does_not_keep_the_memory_of_the_batch_that_it_was_cut_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_writer, "MAX_BUFFERED_BYTES", 1 << 20)
    monkeypatch.setattr(file_writer, "MAX_ROW_GROUP_BYTES", 1 << 18)
    rows: list[tuple[int, str | None, int | None]] = [
        (one, "rare" if one == 7 else "often", 0) for one in range(5_000)
    ]
    before, most = pa.total_allocated_bytes(), 0
    writer = FileWriter(Layout(SCHEMA, by("key")), Memory(), "part-0")
    for _ in range(200):
        writer.write(batch(rows))
        most = max(most, pa.total_allocated_bytes() - before)
    files = writer.close()
    assert sum(file.rows for file in files if file.partition == ("rare",)) == 200
    assert sum(file.rows for file in files) == 200 * len(rows)
    assert most < 6 << 20


def test_a_writer_that_is_given_up_removes_its_files() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch([(1, "a", 0), (2, "b", 0)])
        raise OSError("the stream is gone")

    storage = Memory()
    with pytest.raises(OSError, match="the stream is gone"):
        write_files(Layout(SCHEMA, by("key"), target_bytes=1), storage, "part-0", batches())
    assert storage.files == {}


def test_rows_are_cast_and_columns_that_they_lack_are_null() -> None:
    storage = Memory()
    schema = pa.schema([("id", pa.int64()), ("more", pa.string())])
    rows = pa.record_batch({"id": pa.array([1, 2], pa.int32()), "x": ["y", "z"]})
    (file,) = write_files(Layout(schema), storage, "part-0", [rows])
    table = pq.read_table(pa.BufferReader(storage.files[file.path]))
    assert table.to_pylist() == [{"id": 1, "more": None}, {"id": 2, "more": None}]


def test_a_null_is_refused_where_the_table_takes_none() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    rows = pa.record_batch({"id": pa.array([1, None], pa.int64())})
    with pytest.raises(ConfigError, match="column id of the table must not be null"):
        write_files(Layout(schema), Memory(), "part-0", [rows])


def test_bytes_that_are_not_utf8_are_replaced_at_any_depth() -> None:
    """Spark lets them pass, and no reader of the file would."""
    text = pa.array([b"a\xff", b"b"]).cast(pa.string(), safe=False)
    nested = pa.StructArray.from_arrays([text, pa.array([b"\xff", b""])], ["t", "b"])
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), nested)
    mapped = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["k", "l"]), text)
    rows = pa.RecordBatch.from_arrays([text, listed, mapped], ["text", "listed", "mapped"])
    memory = Memory()
    (file,) = write_files(Layout(rows.schema), memory, "t", [rows])
    assert pq.read_table(memory.open(file.path)).to_pylist() == [
        {
            "text": "a\ufffd",
            "listed": [{"t": "a\ufffd", "b": b"\xff"}],
            "mapped": [("k", "a\ufffd")],
        },
        {"text": "b", "listed": [{"t": "b", "b": b""}], "mapped": [("l", "b")]},
    ]


@pytest.mark.parametrize("value", ["x" * 300, "ü" * 50])
def test_a_value_too_long_for_a_folder_is_refused_with_its_column(value: str) -> None:
    layout = Layout(SCHEMA, by("key"))
    with pytest.raises(ConfigError, match=r"'key' has a value of .* too long .*left\(key, 20\)"):
        write_files(layout, Memory(), "t", [batch([(1, value, None)])])


def test_a_date_that_python_does_not_have_is_no_partition() -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    days = pa.array([10_000_000], pa.int32()).cast(pa.date32())
    rows = pa.RecordBatch.from_arrays([pa.array([1]), days], schema=schema)
    with pytest.raises(ConfigError, match="'day' has a value outside the years 1 to 9999"):
        write_files(Layout(schema, by("day")), Memory(), "t", [rows])


def test_only_columns_that_gain_by_it_are_compressed_or_have_a_dictionary() -> None:
    dice = random.Random(1)
    texts = [b"the same words over and over, and then %d" % number for number in range(20_000)]
    rows = pa.record_batch(
        {
            "seq": pa.array(range(20_000)),
            "key": [str(number % 50) for number in range(20_000)],
            "text": texts,
            "noise": [dice.randbytes(100) for _ in range(20_000)],
            "tags": [[{"key": "a", "value": "b"}]] * 20_000,
        }
    )
    storage = Memory()
    (file,) = write_files(Layout(rows.schema), storage, "part-0", [rows])
    group = file.metadata.row_group(0)
    found = {
        one.path_in_schema.partition(".")[0]: (one.compression, "RLE_DICTIONARY" in one.encodings)
        for one in map(group.column, range(group.num_columns))
    }
    assert found == {
        "seq": ("ZSTD", False),
        "key": ("ZSTD", True),
        "text": ("ZSTD", False),
        "noise": ("UNCOMPRESSED", False),
        "tags": ("ZSTD", True),
    }
    assert pq.read_table(io.BytesIO(storage.files[file.path])).to_batches() == [rows]

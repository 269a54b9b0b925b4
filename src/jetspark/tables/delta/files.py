"""The data files of Delta tables: their partitions, their storage, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from jetspark.tables import file_layout, new_files
from jetspark.tables.inside import check_path, remove_local_file
from jetspark.tables.table import ScanTask

if TYPE_CHECKING:
    import pyarrow.dataset  # it imports pandas, which writers do not need


@dataclass(frozen=True)
class DeltaPartition(file_layout.Partition):
    """A partition column of a Delta table, which rejects the values that Delta or deltalake cannot
    store in one."""

    def may_reject(self, column: pa.Array) -> bool:
        """Whether the column can have values that `rejection_reason` rejects, by its type."""
        return bool(pa.types.is_string(column.type) or pa.types.is_decimal(column.type))

    def rejection_reason(self, value: pa.Scalar) -> str | None:
        """Why no row may have this value in a partition column of Delta, as the end of a sentence;
        None if rows may have it."""
        match value.as_py():
            case "":
                return "has an empty text, which Delta takes for null"
            case file_layout.NULL_FOLDER:
                return f"has {file_layout.NULL_FOLDER}, which stands for null"
            case Decimal() as number if number < 0 and number != number.to_integral_value():
                return f"has {number:f}: deltalake reads no table with a negative fraction there"
        return super().rejection_reason(value)


@dataclass(frozen=True)
class DeltaStorage(new_files.Storage):
    """The files below a Delta table's location, written, read and removed through deltalake's
    client of the storage. Raises ConfigError for a path that leaves the table's folder."""

    uri: str
    options: Mapping[str, str] = field(repr=False)

    def create(self, path: str) -> pa.NativeFile:
        check_path(self.uri, path)
        return self.files().open_output_stream(path)

    def open(self, path: str) -> pa.NativeFile:
        """A file below the table's location, as a stream. Raises FileNotFoundError."""
        check_path(self.uri, path)
        try:
            return self.files().open_input_file(path)
        except TableNotFoundError as error:  # not even the folder is there
            raise FileNotFoundError(path) from error

    def remove(self, path: str) -> None:
        if not remove_local_file(self.uri, path):
            self.files().delete_file(path)

    def files(self) -> pyarrow.fs.FileSystem:
        """The file system whose root is the table's location."""
        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))


@dataclass(frozen=True)
class DeltaScanTask(ScanTask):
    """A part of a scan that one task reads: files of one version of a Delta table, and the columns
    to read from them."""

    fragments: Sequence[pyarrow.dataset.ParquetFileFragment]
    schema: pa.Schema
    columns: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for fragment in self.fragments:
            yield from fragment.to_batches(schema=self.schema, columns=list(self.columns))

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
    """A partition column, with the values that Delta or deltalake cannot store there."""

    def may_reject(self, column: pa.Array) -> bool:
        return bool(pa.types.is_string(column.type) or pa.types.is_decimal(column.type))

    def rejection_reason(self, value: pa.Scalar) -> str | None:
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
    """Storage of a table, through deltalake's client."""

    uri: str
    options: Mapping[str, str] = field(repr=False)

    def create(self, path: str) -> pa.NativeFile:
        check_path(self.uri, path)
        return self.files().open_output_stream(path)

    def open(self, path: str) -> pa.NativeFile:
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
    """Files of one version of a Delta table, and the columns to read."""

    fragments: Sequence[pyarrow.dataset.ParquetFileFragment]
    schema: pa.Schema
    columns: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for fragment in self.fragments:
            yield from fragment.to_batches(schema=self.schema, columns=list(self.columns))

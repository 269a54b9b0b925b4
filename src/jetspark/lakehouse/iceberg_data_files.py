"""The entry of a new file in an Iceberg manifest: its partition and its statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyiceberg.io.pyarrow as arrow_io
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from jetspark.lakehouse.new_files import NewFile, check_unchanged, table_changed
from jetspark.lakehouse.statistics import (
    column_bounds,
    leaf_columns,
    upper_bound_of_binary,
    upper_bound_of_text,
)
from jetspark.lakehouse.table import TableName


def _statistics(file: NewFile, schema: Schema, properties: Mapping[str, str]) -> dict[str, Any]:
    """The statistics of a file: counts by the library, and bounds that are cut here, since its own
    fail or are too narrow for some texts and row groups."""
    footer = file.metadata
    plan = arrow_io.compute_statistics_plan(schema, dict(properties))
    field_ids = arrow_io.parquet_path_to_id_mapping(schema)
    counts = arrow_io.MetricsMode(arrow_io.MetricModeTypes.COUNTS)
    of_bounds = (arrow_io.MetricModeTypes.FULL, arrow_io.MetricModeTypes.TRUNCATE)
    counted = {
        field_id: replace(collector, mode=counts) if collector.mode.type in of_bounds else collector
        for field_id, collector in plan.items()
    }
    metrics = arrow_io.data_file_statistics_from_parquet_metadata(footer, counted, field_ids)
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for path, index in leaf_columns(footer).items():
        collector = plan[field_ids[path]]
        if collector.mode.type not in of_bounds:
            continue
        low, high = column_bounds(footer, index, file.long_texts)
        if (width := collector.mode.length) is not None and isinstance(low, (str, bytes)):
            low = low[:width]
            high = high and (
                upper_bound_of_text if isinstance(high, str) else upper_bound_of_binary
            )(high, width)
        for bounds, value in ((lower, low), (upper, high)):
            if value is not None:
                bounds[collector.field_id] = to_bytes(collector.iceberg_type, value)
    return {**metrics.to_serialized_dict(), "lower_bounds": lower, "upper_bounds": upper}


def data_file(name: TableName, table: Table, columns: pa.Schema, file: NewFile) -> DataFile:
    """The manifest's entry of a file that a FileWriter wrote for this table.

    `columns`: the table's, in Arrow. Raises TableError if the table's columns or its partition spec
    have been changed since.
    """
    metadata = table.metadata
    schema, spec = metadata.schema(), metadata.spec()
    check_unchanged(name, columns, file)
    if file.spec_id != metadata.default_spec_id:
        raise table_changed(name, "its partitions")
    statistics = _statistics(file, schema, metadata.properties)
    # Not by PyIceberg's PartitionKey, which takes one transform of a column only.
    partition = Record(
        *(
            partition_record_value(partition_field, value, schema)
            for partition_field, value in zip(spec.fields, file.partition, strict=True)
        )
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location().rstrip('/')}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=file.size,
        sort_order_id=file.sort_order_id or None,
        spec_id=file.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )

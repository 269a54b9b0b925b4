"""What a Delta table demands of its writers, and whether deltalake and jetspark obey it."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from deltalake import DeltaTable

from jetspark.errors import ConfigError, named
from jetspark.tables.schemas import is_list

_ENFORCED_BY_WRITERS = ("delta.invariants", "delta.identity")
"""Prefixes of column metadata that every writer has to enforce."""
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
REWRITABLE_FEATURES = frozenset(
    {
        "appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors", "generatedColumns",
        "invariants", "timestampNtz",
    }
)  # fmt: skip
"""Features of tables whose files deltalake may replace by others with the same rows."""
VACUUMABLE_FEATURES = REWRITABLE_FEATURES | {
    "allowColumnDefaults", "clustering", "columnMapping", "domainMetadata", "icebergCompatV1",
    "icebergCompatV2", "identityColumns", "inCommitTimestamp", "rowTracking",
    "typeWidening", "v2Checkpoint", "vacuumProtocolCheck", "variantType",
}  # fmt: skip
"""Features of tables whose log names every data file that a version has."""


def table_features(table: DeltaTable) -> set[str]:
    """The table features (Delta protocol) of readers and writers that a table declares, but for
    one that it declares without using it."""
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    # deltalake declares variantType also when it adds a TIMESTAMP_NTZ.
    if '"type":"variant"' not in table.schema().to_json().replace(" ", ""):
        features.discard("variantType")
    return features


def check_features(name: object, table: DeltaTable, supported: frozenset[str], advice: str) -> None:
    """Raise ConfigError for a table with other features than the supported ones. `name`: the
    table's, for the message; `advice`: what its user can do instead."""
    unsupported = table_features(table) - supported
    # Tables of the older protocol have column mapping without declaring a feature.
    if "columnMapping" not in supported and _has_column_mapping(table):
        unsupported.add("columnMapping")
    if unsupported:
        raise ConfigError(
            f"{name} has the table feature {', '.join(sorted(unsupported))}, which is not "
            f"supported here: {advice}."
        )


def check_no_enforced_rules(name: object, table: DeltaTable) -> None:
    """Raise ConfigError for a table with constraints, or columns with rules, that nobody would
    enforce: deltalake does so only in files that it writes itself, and jetspark writes its own."""
    configuration = table.metadata().configuration
    rules = [key for key in configuration if key.startswith("delta.constraints.")]
    if _has_column_mapping(table):
        rules.append("delta.columnMapping.mode")
    rules += [
        f"{key} of {column.name}"
        for column in table.schema().fields
        for key in column.metadata
        if key.startswith(_ENFORCED_BY_WRITERS)
    ]
    if rules:
        raise ConfigError(
            f"{name} has {', '.join(rules)}, which only Delta's own connector for "
            "Spark enforces: write this table with that connector."
        )


def check_not_append_only(name: object, table: DeltaTable) -> None:
    """Raise ConfigError for a table whose property says that rows are only added, since the caller
    would replace or remove some."""
    if table.metadata().configuration.get("delta.appendOnly") == "true":
        raise ConfigError(
            f"{name} is append-only (delta.appendOnly=true): use mode('append') without "
            f"{named('keys')}, or write to another table."
        )


def check_txn_versions_retained(name: object, table: DeltaTable) -> None:
    """Raise ConfigError for a table that removes transaction versions after a time: one of these
    says which batch of a query it has, so that no batch is written twice."""
    if _TRANSACTION_RETENTION in table.metadata().configuration:
        raise ConfigError(
            f"{name} has {_TRANSACTION_RETENTION}, so it would forget which batches it "
            "has, and rows could be written twice: remove that property (ALTER TABLE … UNSET "
            "TBLPROPERTIES), or write to another table."
        )


def check_types(columns: Iterable[pa.Field]) -> None:
    """Raise ConfigError for a new table's column of a type with which deltalake creates the table,
    but neither it nor others can open it afterwards: times without a zone in a map."""
    for column in columns:
        if _has_local_time_in_map(column.type, in_map=False):
            raise ConfigError(
                f"Delta does not support a column: {column.name} has times without a zone "
                "(TIMESTAMP_NTZ) in a map. Make them TIMESTAMP, or texts."
            )


def _has_local_time_in_map(kind: pa.DataType, *, in_map: bool) -> bool:
    """Whether a type has a timestamp without zone in a map, at any depth. `in_map`: the type is
    itself inside of a map."""
    if pa.types.is_timestamp(kind):
        return in_map and kind.tz is None
    inner_types: list[pa.DataType] = []
    if pa.types.is_map(kind):
        in_map, inner_types = True, [kind.key_type, kind.item_type]
    elif pa.types.is_struct(kind) or is_list(kind):
        inner_types = [kind.field(index).type for index in range(kind.num_fields)]
    return any(_has_local_time_in_map(inner, in_map=in_map) for inner in inner_types)


def _has_column_mapping(table: DeltaTable) -> bool:
    """Whether columns have other names in the data files than in the table."""
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    return bool(mode != "none")

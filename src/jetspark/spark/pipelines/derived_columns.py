"""Derived columns of a table: a token of the subject, a header, the day or the hour of a time, and
the rescued data of payloads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from jetspark.errors import ConfigError, named
from jetspark.payloads.ddl import check_fields
from jetspark.reserved_names import check_names
from jetspark.tables.row_expressions import RowExpression

OTHER_FIELDS: Final = "other_fields"
"""The default column for the rescued data of payloads whose new fields become columns: some fields
can become no column."""
DAY: Final = "day"
"""A partition column that is derived if the rows have none of this name."""


def day_of(column: str) -> RowExpression:
    """The day of a time in another column."""
    return RowExpression.parse(DAY, f"day({column})")


def derived_columns(
    items: Sequence[str],
    rescued_data: str | None,
    *,
    columns: Sequence[str],
    schema: str | None,
    timestamps: Collection[str] = (),
) -> dict[str, RowExpression]:
    """Parse the derived columns, and check them against the columns of the rows.

    `items`: as `site=subject[1]`; `rescued_data`: the column for fields that the payloads' `schema`
    lacks; `columns`: of the rows; `timestamps`: those of them that are timestamps, where payloads
    are not JSON. Raises ConfigError.
    """
    derived: dict[str, RowExpression] = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        label = f"{named('derive')} {item!r}"
        if not name or not equals:
            raise ConfigError(
                f"{label}: write name=subject[1], name=header[Name] or name=day(timestamp)."
            )
        check_names(label, [name])
        for existing in (*columns, *derived):
            if existing.casefold() == name.casefold():
                raise ConfigError(f"{label}: there is a column {existing} already.")
        derived[name] = RowExpression.parse(named("derive"), value)
        if derived[name].column not in columns:
            raise ConfigError(
                f"{label}: there is no column {derived[name].column}; there are "
                f"{', '.join(columns)}."
            )
        _check_unit(label, derived[name], schema, timestamps)
    if rescued_data is not None:
        if schema is None:
            raise ConfigError(
                f"goes with {named('json_schema')}: it has what that schema lacks.",
                option="rescued_data_column",
            )
        if not rescued_data.strip() or rescued_data.casefold() in map(
            str.casefold, (*columns, *derived)
        ):
            raise ConfigError(
                f"{rescued_data!r}: give it a name that no column has.",
                option="rescued_data_column",
            )
        check_names(named("rescued_data_column"), [rescued_data])
        derived[rescued_data] = RowExpression.rest(schema)
    return derived


def _check_unit(
    label: str, value: RowExpression, schema: str | None, timestamps: Collection[str]
) -> None:
    """Raises ConfigError for the day or the hour of what is no timestamp."""
    if value.unit is None:
        return
    kinds = {} if schema is None else check_fields(schema, named("json_schema"))
    kinds |= dict.fromkeys(("timestamp", "created", *timestamps), "timestamp")
    kind = kinds.get(value.column, "no timestamp")
    if kind and not kind.startswith("timestamp"):  # empty: what depends on a setting
        raise ConfigError(
            f"{label}: {value.column} is {kind}, and {value.unit}(…) is of a timestamp."
        )

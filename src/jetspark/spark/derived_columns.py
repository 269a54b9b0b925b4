"""Columns that are made of others: of the subject, a header or the time, and the fields that a
schema lacks; as the flags of `jetspark ingest` and the keys of a pipeline's sink say them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from jetspark.codecs.ddl import check_fields
from jetspark.errors import ConfigError, named
from jetspark.lakehouse.row_expressions import RowExpression
from jetspark.reserved_names import check_names

OTHER_FIELDS: Final = "other_fields"
"""The column for the rest of payloads whose new fields become columns, if nobody names it: some
fields can become no column."""


DAY: Final = "day"
"""A partition column that is made if the rows have none of this name."""


def day_of(column: str) -> RowExpression:
    """What it is made of: the day of a time."""
    return RowExpression.parse(DAY, f"day({column})")


def derived_columns(
    items: Sequence[str],
    rest: str | None,
    *,
    there: Sequence[str],
    schema: str | None,
    times: Collection[str] = (),
) -> dict[str, RowExpression]:
    """The columns, and what they are made of.

    `items`: as `site=subject[1]`; `rest`: the column for fields that the payloads' `schema` lacks;
    `there`: the columns of the rows; `times`: those that are timestamps, of payloads that are not
    JSON. Raises ConfigError.
    """
    found: dict[str, RowExpression] = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        where = f"{named('derive')} {item!r}"
        if not name or not equals:
            raise ConfigError(
                f"{where}: write name=subject[1], name=header[Name] or name=day(timestamp)."
            )
        check_names(where, [name])
        for other in (*there, *found):
            if other.casefold() == name.casefold():
                raise ConfigError(f"{where}: there is a column {other} already.")
        found[name] = RowExpression.parse(named("derive"), value)
        if found[name].column not in there:
            raise ConfigError(
                f"{where}: there is no column {found[name].column}; there are {', '.join(there)}."
            )
        _check_unit(where, found[name], schema, times)
    if rest is not None:
        if schema is None:
            raise ConfigError(
                f"goes with {named('json_schema')}: it has what that schema lacks.",
                option="rescued_data_column",
            )
        if not rest.strip() or rest.casefold() in map(str.casefold, (*there, *found)):
            raise ConfigError(
                f"{rest!r}: give it a name that no column has.", option="rescued_data_column"
            )
        check_names(named("rescued_data_column"), [rest])
        found[rest] = RowExpression.rest(schema)
    return found


def _check_unit(
    where: str, value: RowExpression, schema: str | None, times: Collection[str]
) -> None:
    """Raises ConfigError for the day or the hour of what is no timestamp."""
    if value.unit is None:
        return
    kinds = {} if schema is None else check_fields(schema, named("json_schema"))
    kinds |= dict.fromkeys(("timestamp", "created", *times), "timestamp")
    kind = kinds.get(value.column, "no timestamp")
    if kind and not kind.startswith("timestamp"):  # empty: what depends on a setting
        raise ConfigError(
            f"{where}: {value.column} is {kind}, and {value.unit}(…) is of a timestamp."
        )

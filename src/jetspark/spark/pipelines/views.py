"""Views of a pipeline file: SQL that Spark must not execute before it is known to be a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from jetspark.errors import ConfigError


def read_view(name: str, sql: str, views: Sequence[str], spark: SparkSession) -> DataFrame:
    """Let Spark plan the SQL of a pipeline's view; returns its rows as a DataFrame.

    `name`: the view's; `views`: the names of all views of the file. Raises ConfigError for SQL that
    is not a query, since Spark would execute a command at once, and for a view that uses itself, or
    one below it in the file.
    """
    jvm_session: Any = spark._jsparkSession
    parser = jvm_session.sessionState().sqlParser()
    parser.parsePlan(sql)  # raises Spark's own error if this is no SQL
    if not _is_query(parser, sql):
        raise ConfigError(
            "sql is a command, which Spark would execute at once; a view is a query: SELECT, "
            "WITH, VALUES, TABLE or FROM. Nothing was executed."
        )
    try:
        return spark.sql(sql)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        unknown = str((error.getMessageParameters() or {}).get("relationName")).strip("`")
        used = next((view for view in views if view.casefold() == unknown.casefold()), None)
        if used is None:
            raise
        used_view = "itself" if used == name else f"the view {used}, which is below it"
        raise ConfigError(
            f"sql uses {used_view}: a view uses the sources, and the views above it in the file."
        ) from error


def _is_query(parser: Any, sql: str) -> bool:
    """Whether a SQL statement is a query and not a command. It is one if Spark parses it within
    EXISTS (…), which takes only queries; a semicolon at the end is left out for that."""
    while True:
        try:
            parser.parseQuery(f"SELECT EXISTS (\n{sql}\n)")
            return True
        except PySparkException:
            sql, semicolon, _ = sql.rpartition(";")
            if not semicolon:
                return False

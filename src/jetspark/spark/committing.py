"""Shared by Spark's Python sinks: the query's id, and the commit messages of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from jetspark.errors import PipelineError

_QUERY_ID = "sql.streaming.queryId"
Answer = TypeVar("Answer", bound=WriterCommitMessage)


def query_id() -> str | None:
    """The id of this task's streaming query; None if Spark does not provide it."""
    context = TaskContext.get()
    return (context.getLocalProperty(_QUERY_ID) if context is not None else None) or None


def needed_query_id() -> str:
    """The same. Raises PipelineError if Spark does not provide it."""
    query = query_id()
    if query is None:
        raise PipelineError(
            "Spark did not tell the query's id to the task, so exactly-once is not possible."
        )
    return query


def all_answers(messages: Sequence[WriterCommitMessage | None], kind: type[Answer]) -> list[Answer]:
    """The commit messages of all tasks, at least one. Raises PipelineError if one is missing."""
    answers = [one for one in messages if isinstance(one, kind)]
    if len(answers) < len(messages) or not answers:
        raise PipelineError("Spark commits a batch although not all of its tasks have reported.")
    return answers

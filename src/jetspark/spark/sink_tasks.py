"""The query, the batch and the commit messages of a Python sink's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from jetspark.errors import PipelineError

_QUERY_ID_PROPERTY = "sql.streaming.queryId"
_BATCH_ID_PROPERTY = "streaming.sql.batchId"
TaskMessage = TypeVar("TaskMessage", bound=WriterCommitMessage)


def query_id() -> str | None:
    """The id of the streaming query for which this code runs in a task of Spark.

    None in a batch write, or if Spark does not tell.
    """
    context = TaskContext.get()
    return (context.getLocalProperty(_QUERY_ID_PROPERTY) if context is not None else None) or None


def batch_of_query() -> tuple[str, int] | None:
    """The id of the streaming query for which this task runs, and the number of its micro-batch.

    None in a batch write.
    """
    query, context = query_id(), TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH_ID_PROPERTY)
    return None if query is None or not batch else (query, int(batch))


def require_query_id() -> str:
    """The id of the streaming query for which this task runs.

    Raises PipelineError if Spark does not tell it, since exactly-once is not possible without.
    """
    query = query_id()
    if query is None:
        raise PipelineError(
            "Spark did not tell the query's id to the task, so exactly-once is not possible."
        )
    return query


def collect_task_messages(
    messages: Sequence[WriterCommitMessage | None], message_type: type[TaskMessage]
) -> list[TaskMessage]:
    """Check that all tasks have sent the driver a commit message of this type; return the messages.

    Raises PipelineError if one is missing, or there was no task.
    """
    reports = [message for message in messages if isinstance(message, message_type)]
    if len(reports) < len(messages) or not reports:
        raise PipelineError("Spark commits a batch although not all of its tasks have reported.")
    return reports

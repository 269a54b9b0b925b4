"""df.write and df.writeStream to a stream, with one of three guarantees.

at-least-once      a task publishes its rows and waits for every ack; a task that Spark runs again
                   publishes them again
effectively-once   the same, with a message id that the stream remembers for its duplicate window
exactly-once       a task stages its rows, and the driver's commit decides on them and copies them
                   (`stream_writes.exactly_once`)

Rows for a bucket are published at least once and in order, so writing them again changes no value.

Spark may retry a batch with other partitions, calls `abort` even after a commit whose outcome is
not known, and creates a new writer for each of these calls. So a writer has no state, and `abort`
removes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from jetspark.errors import APIError, BadHeaderError, ConfigError
from jetspark.retries import is_transient
from jetspark.spark.failures import names_of_spark
from jetspark.spark.sink_tasks import collect_task_messages, query_id, require_query_id
from jetspark.spark.stream_sink.options import Guarantee, SinkOptions
from jetspark.spark.stream_sink.row_encoders import EntryEncoder, RowEncoder, encode_payloads
from jetspark.spark.stream_sink.target import SinkTarget
from jetspark.spark.versions import DataSourceStreamArrowWriter
from jetspark.stream_writes.encoded_messages import EncodedMessage
from jetspark.stream_writes.exactly_once import ExactlyOnceWriter
from jetspark.stream_writes.ledger import Ledger, TaskRows
from jetspark.stream_writes.publish import StreamPublisher


@dataclass
class WriteReport(WriterCommitMessage):
    """What a task reports to the driver's commit: what it has written, or why it could not.

    "Staged" rows (of exactly-once) are stored in the ledger, not in the target stream yet.
    """

    writer: str
    """The writer's id, by which the ledger knows it: the query's id, or a transaction's name."""
    output: TaskRows
    """The rows that were published or staged; none if there is an error."""
    error: ConfigError | BadHeaderError | APIError | None = None
    """Why a row cannot be stored. If the task raised it, Spark would run it again, and each time
    store the rows before this one again."""


class _StreamWriter:
    """Writes the rows of a DataFrame to a stream: what batch and streaming writes have in common.

    Tasks raise the errors of `StreamPublisher.send` or `stage`, except those that a rerun cannot
    change (ConfigError, BadHeaderError, APIError): the commit raises these, and the errors of
    `ExactlyOnceWriter.commit`.
    """

    def __init__(self, options: SinkOptions, target: SinkTarget) -> None:
        self._options = options
        self._target = target

    def _write(self, writer: str, batches: Iterator[pa.RecordBatch]) -> WriteReport:
        """Store a task's rows, and report to the driver what was stored.

        An error that a rerun of the task cannot change is reported, not raised: Spark would run the
        task again, and store the first rows again.
        """
        try:
            return WriteReport(writer, self._store_rows(writer, batches))
        except (ConfigError, BadHeaderError, APIError) as error:
            if is_transient(error):
                raise
            return WriteReport(writer, TaskRows(), error)

    def _store_rows(self, writer: str, batches: Iterator[pa.RecordBatch]) -> TaskRows:
        """Publish a task's rows to the stream; or for exactly-once stage them: store them in the
        ledger, from which the commit copies them.

        `writer`: the id by which the ledger knows the query or transaction.
        """
        options = self._options
        messages = self._encode_rows(batches)
        if options.guarantee is Guarantee.EXACTLY_ONCE:
            ledger = Ledger(
                options.connection, options.stream, writer, timeout=options.publish_timeout
            )
            # A transaction that is tried again must have the same rows, which a digest tells. A
            # query's batch may be computed again with other rows; its first decision counts.
            return ledger.stage(messages, digest=options.transaction_id is not None)
        with StreamPublisher(
            options.connection,
            options.stream,
            timeout=options.publish_timeout,
            in_order=options.bucket is not None,
        ) as publisher:
            publisher.send(messages)
        return TaskRows(publisher.acked)

    def _encode_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[EncodedMessage]:
        """Encode each of a task's rows as a message of the stream, or an entry of the bucket.

        Raises the errors of `RowEncoder` or `EntryEncoder`.
        """
        options, target, encoding = self._options, self._target, self._options.encoding
        max_bytes = target.max_message_bytes
        if options.bucket is not None:
            return EntryEncoder(options.bucket, max_bytes=max_bytes).messages(batches)
        if encoding is not None:
            batches = encode_payloads(options, encoding, batches)
        return RowEncoder(
            options.stream,
            target.subjects,
            subject=options.subject,
            max_bytes=max_bytes,
            headers=() if encoding is None else encoding.envelope[1],
        ).messages(batches)

    def abort(self, messages: list[WriterCommitMessage | None], *batch: int) -> None:
        """Nothing to do: published rows stay, and a commit removes staged ones."""

    def _commit(
        self, messages: list[WriterCommitMessage | None], batch: int, name: str | None = None
    ) -> None:
        """Finish a batch on the driver: raise the first error that a task has reported, or for
        exactly-once copy the staged rows from the ledger to the stream.

        `name`: by which the ledger knows a streaming query beyond its checkpoint.
        """
        options = self._options
        for message in messages:
            if isinstance(message, WriteReport) and message.error is not None:
                raise message.error
        if options.guarantee is not Guarantee.EXACTLY_ONCE:
            return
        written = collect_task_messages(messages, WriteReport)
        ExactlyOnceWriter(
            options.connection,
            options.stream,
            written[0].writer,  # the same in all
            name=name,
            keep_markers=self._target.keeps_markers,
            timeout=options.publish_timeout,
        ).commit(
            batch,
            [message.output for message in written],
            lanes=options.lanes,
            adopt=options.adopt_ledger,
        )


class JetStreamBatchWriter(_StreamWriter, DataSourceArrowWriter):
    """Writes a batch DataFrame to a stream (`df.write`).

    For exactly-once the write is a transaction, which the user names; its only batch has number 0.
    """

    @names_of_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteReport:
        """Write the rows of one task; Spark calls this on an executor."""
        return self._write(self._options.transaction_id or "", iterator)

    @names_of_spark()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Finish the write; Spark calls this on the driver when all tasks are done."""
        self._commit(messages, 0)


class JetStreamStreamWriter(_StreamWriter, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query to a stream (`df.writeStream`).

    The ledger knows the writer by the query's id, which the checkpoint keeps.
    """

    @names_of_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteReport:
        """Write the rows of one task; Spark calls this on an executor."""
        # Only exactly-once needs the writer's id.
        exactly = self._options.guarantee is Guarantee.EXACTLY_ONCE
        return self._write(require_query_id() if exactly else query_id() or "", iterator)

    @names_of_spark()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Finish a batch; Spark calls this on the driver when all tasks are done, and for the same
        batch again after a failure."""
        self._commit(messages, batchId, self._options.name)

"""`--lineage`: OpenLineage's events of a run, by the library's own configuration.

That is OPENLINEAGE_URL, other variables of this prefix, the file that OPENLINEAGE_CONFIG names, or
~/.openlineage/openlineage.yml. The library also takes openlineage.yml of the current folder, which
others may have written, and which names programs to run: that is refused. An event that cannot be
sent is a warning, since the rows matter more.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from openlineage.client import OpenLineageClient
from openlineage.client import facet_v2 as facets
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.uuid import generate_new_uuid

from jetspark.cli.signals import StopRequested
from jetspark.connection.options import ConnectOptions
from jetspark.connection.urls import parse_urls
from jetspark.errors import ConfigError
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.stream_sink.options import SinkOptions
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables.arguments import absolute_path
from jetspark.tables.formats import find_table

logger = logging.getLogger("jetspark.cli")
Sinks: TypeAlias = Mapping[str, SinkOptions | LakehouseOptions | None]
Rows: TypeAlias = Callable[[], Mapping[str, int]]
Lineage: TypeAlias = Callable[[Rows], AbstractContextManager[Callable[[], None]]]


def lineage_of(
    job: str, sources: Iterable[SourceOptions | None], sinks: Sinks, follow: bool
) -> Lineage:
    """Prepare the OpenLineage events of a run: which job it is, what it reads and writes.

    Returns a context that sends an event at its beginning and at its end; `Watch` enters it around
    the run. It takes a function that returns the rows of each sink so far, and yields a function
    that sends an event in between. `job`: the name of the work; `sources`: the streams and buckets
    (others are None); `sinks`: by name of the query that writes them; `follow`: a signal is the
    normal end of the run. Raises ConfigError without a target for the events.
    """
    client, run = _make_client(), str(generate_new_uuid())
    openlineage_job = Job(os.environ.get("OPENLINEAGE_NAMESPACE", "jetspark"), job)
    inputs = [
        InputDataset(_name_server(source.connection), name)
        for source in filter(None, sources)
        for name in source.streams or (source.bucket or str(source.stream_pattern),)
    ]

    @contextmanager
    def report_run(rows: Rows) -> Iterator[Callable[[], None]]:
        """Send the event START, and at the end of the run COMPLETE, ABORT (by a signal) or FAIL.

        Yields a function that sends RUNNING. `rows`: returns the rows of each sink so far.
        """

        def emit(state: RunState, **facets: Any) -> None:
            """Send one event with the rows so far; a failure is only logged."""
            try:
                event = RunEvent(
                    eventType=state,
                    eventTime=datetime.now(UTC).isoformat(),
                    job=openlineage_job,
                    run=Run(run, facets),
                    inputs=inputs,
                    outputs=[*_describe_outputs(sinks, rows())],
                    producer="https://pypi.org/project/jetspark",
                )
                client.emit(event)
            except Exception as error:
                logger.warning("Lineage: %s was not sent: %s", state.name, error)

        emit(RunState.START)
        try:
            yield partial(emit, RunState.RUNNING)
        except StopRequested:  # a signal, which with --follow is the normal end
            emit(RunState.COMPLETE if follow else RunState.ABORT)
            raise
        except BaseException as error:
            message = facets.error_message_run.ErrorMessageRunFacet(str(error), "Python")
            emit(RunState.FAIL, errorMessage=message)
            raise
        else:
            emit(RunState.COMPLETE)
        finally:
            client.close(timeout=10)

    return report_run


def _make_client() -> OpenLineageClient:
    """Make a client of OpenLineage by that library's own configuration.

    Raises ConfigError without a target for the events, and for a file openlineage.yml in the
    current folder, which the library would take although others may have written it.
    """
    file = Path("openlineage.yml")
    if os.path.lexists(file) and not Path(os.environ.get("OPENLINEAGE_CONFIG", "")).is_file():
        raise ConfigError(
            f"--lineage: {file} in the current folder may name programs to run: if it is yours, "
            f"set OPENLINEAGE_CONFIG={file.absolute()}."
        )
    try:
        client = OpenLineageClient()
        kind = client.transport.kind
    except Exception as error:
        raise ConfigError(
            f"--lineage: the configuration of OpenLineage is wrong: {error}"
        ) from error
    if kind == "console":  # the library's default without a configuration
        raise ConfigError(
            "--lineage: set OPENLINEAGE_URL, or write ~/.openlineage/openlineage.yml."
        )
    return client


def _name_server(connection: ConnectOptions) -> str:
    """The namespace of a connection's streams: the URL of its first server."""
    return str(parse_urls(connection.servers)[0])


def _describe_outputs(sinks: Sinks, rows: Mapping[str, int]) -> Iterator[OutputDataset]:
    """Describe what a run writes as datasets of OpenLineage, with rows so far and columns.

    `sinks`: streams, buckets and tables by the name of their query (others are None, and left out);
    `rows`: by the same names.
    """
    statistics, schema = facets.output_statistics_output_dataset, facets.schema_dataset
    for name, sink in sinks.items():
        count = statistics.OutputStatisticsOutputDatasetFacet(rows.get(name))
        outputs: dict[str, Any] = {"outputFacets": {"outputStatistics": count}}
        if isinstance(sink, SinkOptions):
            yield OutputDataset(
                _name_server(sink.connection), sink.bucket or sink.stream, **outputs
            )
        elif sink is not None and sink.tables:  # several tables, whose rows are counted together
            options = [routed.options for routed in sink.tables]
            yield from _describe_outputs({str(table.name): table for table in options}, {})
        elif sink is not None:
            # A template of tables (`route`) is described without columns.
            table = None if sink.route else find_table(sink.format, sink.name)
            fields = [] if table is None else table.schema
            columns = [schema.SchemaDatasetFacetFields(f.name, str(f.type)) for f in fields]
            outputs["facets"] = {"schema": schema.SchemaDatasetFacet(columns)}
            yield OutputDataset(*_dataset_name(sink), **outputs)


def _dataset_name(sink: LakehouseOptions) -> tuple[str, str]:
    """The namespace and the name of a table in OpenLineage.

    A folder is named by its URL or path, a catalog's table by the catalog and its identifier.
    """
    if sink.name.path is None:
        return str(sink.name.catalog), str(sink.name.identifier)
    url = urlsplit(absolute_path(sink.name.path))
    return (f"{url.scheme}://{url.netloc}", url.path[1:]) if url.netloc else ("file", url.path)

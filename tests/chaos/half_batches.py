"""A batch that fails between its commits and comes again under other options.

A run, or cell, is a query (one table, a template or a list
of tables, with a quarantine, keys, or a table for the rest), a commit after which its second batch
fails, and one thing that has changed when the batch comes again: an option, what the payloads mean,
how Spark divides the tasks, the table itself, or the checkpoint's place. Tasks, driver and Spark's
logs take part as in a query; no Spark is started. Then the batch comes once more with the first
options, and another batch after it.

Wrong is: a message that is in no table or in two places, an error that is none of jetspark's, and
a query that cannot go on with the options that it had.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, TypeAlias
from unittest.mock import patch

import pyarrow as pa
from tests.support import campaign

from jetspark.errors import JetsparkError
from jetspark.payloads.tolerant import CORRUPT
from jetspark.ranges.arrow import SCHEMA as MESSAGES
from jetspark.spark.pipelines.table_rows import split_by_table
from jetspark.spark.table_sink import batch_commits, task_files, writers
from jetspark.spark.table_sink.option_texts import (
    ListedTable,
    parse_lakehouse_options,
    table_list_option,
)
from jetspark.spark.table_sink.table_preparation import prepare_for_query
from jetspark.spark.table_sink.target import Target
from jetspark.spark.table_sink.task_files import TaskFiles
from jetspark.spark.table_sink.task_output import TaskCommit
from jetspark.spark.table_sink.writers import LakehouseStreamWriter
from jetspark.tables.batches import commit_batch
from jetspark.tables.formats import Format, open_table
from jetspark.tables.table import TableName

_QUERY = "00000000-0000-0000-0000-000000000001"
_PER_BATCH = 12
_BAD = 5
"""Each fifth payload is bad, unless the options see it otherwise."""


@dataclass
class Figures(campaign.Figures):
    messages: int = 0
    completed: int = 0
    """Batches that were begun and came again under something else."""
    refused: int = 0


@dataclass(frozen=True)
class Setup:
    """The options of a run, and what its rows look like."""

    sink: dict[str, str] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    """Of a list: subjects by folder."""
    columns: tuple[str, ...] = ("id", "n", "site")
    text: bool = False
    """Whether n is a text, with which no payload is bad."""
    framed: bool = False
    """Whether payloads are looked for behind a frame: then others are bad."""
    tasks: int = 2
    remote: bool = False
    """Whether the checkpoint's place is known to Spark only."""

    def with_sink(self, **more: str | None) -> Setup:
        given = self.sink | {name: value for name, value in more.items() if value is not None}
        gone = {name for name, value in more.items() if value is None}
        return replace(self, sink={name: one for name, one in given.items() if name not in gone})


_QUERIES: dict[str, Setup] = {
    "table": Setup({"path": "{root}/t", "quarantine": "{root}/_bad"}),
    "keyed": Setup(
        {"path": "{root}/t", "quarantine": "{root}/_bad", "keys": "id", "sequenceBy": "seq"}
    ),
    "template": Setup({"path": "{root}/{subject[1]}", "defaultTable": "{root}/_rest"}),
    "template with quarantine": Setup({"path": "{root}/{subject[1]}", "quarantine": "{root}/_bad"}),
    "list": Setup(
        {"defaultTable": "{root}/_rest"}, tables={"{root}/a": "S.a.>", "{root}/b": "S.b.>"}
    ),
}

_CHANGES: dict[str, Callable[[Setup], Setup]] = {
    "nothing": lambda one: one,
    "token": lambda one: _to(one, "{root}/{subject[2]}"),
    "root": lambda one: _to(one, "{root}/other/{subject[1]}"),
    "one table": lambda one: replace(one.with_sink(defaultTable=None), tables={}).with_sink(
        path="{root}/t2"
    ),
    "a template": lambda one: replace(one, tables={}).with_sink(path="{root}/_new/{site}"),
    "column": lambda one: _to(one, "{root}/{site}"),
    "quarantine gone": lambda one: one.with_sink(quarantine=None),
    "quarantine": lambda one: one.with_sink(quarantine="{root}/_bad2"),
    "rest gone": lambda one: one.with_sink(defaultTable=None),
    "rest": lambda one: one.with_sink(defaultTable="{root}/_rest2") if _divides(one) else one,
    "max new tables": lambda one: one.with_sink(maxNewTables="1") if _divides(one) else one,
    "keys": lambda one: one.with_sink(keys="id", sequenceBy="seq"),
    "other keys": lambda one: one.with_sink(keys="seq", sequenceBy="seq"),
    "keys gone": lambda one: one.with_sink(keys=None, sequenceBy=None),
    "history": lambda one: one.with_sink(keys="id", sequenceBy="seq", historyBy="timestamp"),
    "partitions": lambda one: one.with_sink(partitionBy="site"),
    "schema": lambda one: replace(one, columns=("id", "n", "site", "more")).with_sink(
        mergeSchema="true"
    ),
    "fewer columns": lambda one: replace(one, columns=("id", "site")),
    "types": lambda one: replace(one, text=True),
    "framing": lambda one: replace(one, framed=True),
    "tasks": lambda one: replace(one, tasks=1),
    "more tasks": lambda one: replace(one, tasks=6),
    "bad records": lambda one: one.with_sink(quarantine=None, onBadRecord="stop"),
    "writer's name": lambda one: one.with_sink(writerName="another"),
    "compression": lambda one: one.with_sink(file_compression="snappy"),
    "file size": lambda one: one.with_sink(targetFileSize="64k"),
    "compaction": lambda one: one.with_sink(compactEvery="1") if "keys" not in one.sink else one,
    "subjects": lambda one: replace(
        one, tables=dict(zip(one.tables, reversed(one.tables.values()), strict=True))
    ),
    "order of the list": lambda one: replace(one, tables=dict(reversed(one.tables.items()))),
    "one more table": lambda one: (
        replace(one, tables={"{root}/c": "S.a.x", **one.tables}) if one.tables else one
    ),
    "one table less": lambda one: replace(one, tables=dict([*one.tables.items()][:1])),
    "a column of others": lambda one: one,
    "a commit of others": lambda one: one,
}


def _divides(one: Setup) -> bool:
    return bool(one.tables) or "{" in one.sink.get("path", "").removeprefix("{root}")


def _to(one: Setup, template: str) -> Setup:
    return one.with_sink(path=template) if _divides(one) and not one.tables else one


class _Ends(OSError):
    """The storage is away."""


@dataclass
class Scene:
    """The folders of one cell, with what Spark does to them."""

    format: Format
    folder: Path

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "chk"

    def plan(self, batch: int) -> None:
        for name, content in (
            ("metadata", f'{{"id":"{_QUERY}"}}'),
            (f"offsets/{batch}", f"v1\n{{}}\n{(batch + 1) * _PER_BATCH}"),
        ):
            path = self._checkpoint / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def done(self, batch: int) -> None:
        path = self._checkpoint / "commits" / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1\n{}")

    def write(self, setup: Setup, batch: int) -> None:
        """Tasks and driver, for one attempt of a batch."""
        self.plan(batch)
        root = str(self.folder / "lake")
        sink = {name: one.replace("{root}", root) for name, one in setup.sink.items()}
        sink["checkpointLocation"] = "s3a://b/chk" if setup.remote else str(self._checkpoint)
        if setup.tables:
            tables = [
                ListedTable(subjects=(subjects,), options={"path": folder.replace("{root}", root)})
                for folder, subjects in setup.tables.items()
            ]
            sink |= table_list_option(tables)
        options = parse_lakehouse_options(self.format, sink).for_streaming()
        schema, rows = _rows(setup, batch)
        with (
            patch.object(task_files, "batch_of_query", lambda: (_QUERY, batch)),
            patch.object(writers, "batch_of_query", lambda: (_QUERY, batch)),
        ):
            columns = [schema] * (1 + len(options.tables))
            prepared = prepare_for_query(options, columns)
            answers: list[Any] = [TaskCommit(_QUERY)]
            if prepared.completed_batch is None:
                answers = [
                    _task(prepared, rows.take(list(range(task, rows.num_rows, setup.tasks))))
                    for task in range(setup.tasks)
                ]
            LakehouseStreamWriter(options, prepared, replace=False).commit(answers, batch)
        self.done(batch)

    def seqs(self) -> Counter[int]:
        """In all tables below the folder, whosever they are."""
        found: Counter[int] = Counter()
        for _, table in self._tables():
            for piece in table.scan_tasks(["seq"], None, 1):
                for rows in piece.batches():
                    found.update(rows.column("seq").to_pylist())
        return found

    def add_column(self) -> None:
        """By another program, to every table of the query."""
        for name, table in self._tables():
            if name[0] != "_":
                table.add_columns([pa.field("added", pa.string())])

    def commit(self) -> None:
        for name, table in self._tables():
            if name[0] != "_":
                table.append((), {"another": 1})

    def _tables(self) -> Iterator[tuple[str, Any]]:
        mark = "_delta_log" if self.format is Format.DELTA else "metadata"
        for log in (self.folder / "lake").rglob(mark):
            yield log.parent.name, open_table(self.format, TableName(path=str(log.parent)))


def _task(prepared: Target, rows: pa.RecordBatch) -> TaskCommit:
    files = TaskFiles(prepared)
    if tables := prepared.options.tables:
        for number, part in split_by_table(rows, tables):
            files.write(part, number)
    else:
        files.write(rows)
    return TaskCommit(_QUERY, files.close())


def _rows(setup: Setup, batch: int) -> tuple[pa.Schema, pa.RecordBatch]:
    """The rows of a batch's messages, as these options see their payloads."""
    seqs = range(batch * _PER_BATCH + 1, (batch + 1) * _PER_BATCH + 1)
    subjects = [f"S.{'abc'[seq % 3]}.{'xy'[seq % 2]}" for seq in seqs]
    kept = {
        "stream": ["S"] * len(seqs),
        "subject": subjects,
        "seq": list(seqs),
        "timestamp": pa.array([10**15 + seq for seq in seqs], pa.timestamp("us", tz="UTC")),
        "data": [b"%d" % seq for seq in seqs],
        "headers": pa.nulls(len(seqs), MESSAGES.field("headers").type),
    }
    schema = pa.schema([MESSAGES.field(name) for name in kept])
    if setup.tables:
        return schema, pa.record_batch(kept)
    bad = [not setup.text and (seq % _BAD == 0) != (setup.framed and seq % 2 == 0) for seq in seqs]
    if "quarantine" not in setup.sink:
        bad = [False] * len(bad)
    fields: dict[str, Any] = {}
    for name in setup.columns:
        is_text = name in ("site", "more") or (name == "n" and setup.text)
        schema = schema.append(pa.field(name, pa.string() if is_text else pa.int64()))
        values: list[Any] = [f"s{seq % 4}" if is_text else seq for seq in seqs]
        fields[name] = [
            None if no and name != "id" else one for no, one in zip(bad, values, strict=True)
        ]
    corrupt = ["?" if no else None for no in bad]
    if "quarantine" in setup.sink or "onBadRecord" in setup.sink:
        schema = schema.append(pa.field(CORRUPT, pa.string()))
        fields[CORRUPT] = pa.array(corrupt, pa.string())
    return schema, pa.record_batch({**kept, **fields})


@contextmanager
def _failing_after(number: int) -> Iterator[Callable[[], int]]:
    """After so many commits each one fails; gives a function that counts them."""
    real, done = commit_batch, 0

    def commit(*given: Any, **named: Any) -> bool:
        nonlocal done
        if done >= number:
            raise _Ends("Input/output error")
        done += 1
        return real(*given, **named)

    with (
        patch.object(batch_commits, "commit_batch", commit),
        patch.object(batch_commits, "MAX_CONCURRENT_COMMITS", 1),
    ):
        yield lambda: done


Cell: TypeAlias = tuple[Format, str, str, int, bool, bool]
"""The format, the query, the change, the commit after which the batch fails, whether the checkpoint
is elsewhere, and whether the second attempt fails, too, after a further commit."""


def _cells() -> list[Cell]:
    bools = (False, True)
    return list(product(Format, _QUERIES, _CHANGES, range(5), bools, bools))


def run_cell(cell: Cell, folder: Path, figures: Figures) -> None:
    """One cell; what is wrong goes into the figures."""
    format_, query, change, fails_after, remote, again = cell
    scene = Scene(format_, folder)
    first = replace(_QUERIES[query], remote=remote)
    where = f"{format_}, {query}, {change}, after {fails_after}"
    where += ", remote" * remote + ", again" * again
    scene.write(first, 0)
    ends = False
    with _failing_after(fails_after) as count:
        try:
            scene.write(first, 1)
        except JetsparkError:
            ends = True
        begun = count() > 0
    if not ends:  # a kill before Spark's own note
        (folder / "chk/commits/1").unlink()
    if change == "a column of others":
        scene.add_column()
    if change == "a commit of others":
        scene.commit()
    figures.messages += 3 * _PER_BATCH
    try:
        with _failing_after(1) if again else nullcontext():
            scene.write(_CHANGES[change](first), 1)
        figures.completed += begun
    except JetsparkError:
        figures.refused += 1
    except Exception as error:
        figures.wrong.append(f"{where}: {type(error).__name__}: {error}\n")
        return
    try:
        for batch in (1, 2):
            if not (folder / "chk/commits" / str(batch)).exists():
                scene.write(first, batch)
    except JetsparkError as error:
        # A table that the other options have changed, with rows of this batch, is theirs.
        if begun or change.startswith("a c"):
            figures.wrong.append(f"{where}: it cannot go on: {error}\n")
        return
    found, wanted = scene.seqs(), Counter(range(1, 3 * _PER_BATCH + 1))
    if found != wanted:
        lost, more = sorted(wanted - found), sorted(found - wanted)
        figures.wrong.append(f"{where}: lost {lost}, repeated {more}\n")


def run(runs: int = 300, seed: int = 0) -> Figures:
    """Draw cells by the seed, and run each in a folder of its own."""
    figures = Figures()
    for cell in Random(seed).sample(_cells(), runs):
        folder = Path(tempfile.mkdtemp(prefix="half-"))
        try:
            run_cell(cell, folder, figures)
        finally:
            shutil.rmtree(folder)
        figures.count_run()
    return figures

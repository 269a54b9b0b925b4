"""Tries quarantined records again, with a mended schema.

Rows that fit are added to their tables, a commit for each; then one commit removes their records
from the quarantine, and gives the others their new reasons. A run that was killed in between has
begun (a number in the quarantine) and not ended (another one): then the tables show which records
they have. A table's number proves that nobody has added records since it was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError, SchemaGrown, TableError
from jetspark.lakehouse import quarantine
from jetspark.lakehouse.batches import append, commit_files
from jetspark.lakehouse.formats import find_table, open_table
from jetspark.lakehouse.new_files import NewFile, files_by_table
from jetspark.lakehouse.table import Changes, Table, TxnVersions
from jetspark.lakehouse.upserts import description_flags, read_description, remove_staged_files
from jetspark.spark.lakehouse import listed
from jetspark.spark.lakehouse.growth import grow
from jetspark.spark.lakehouse.options import LakehouseOptions
from jetspark.spark.lakehouse.target import Target, TaskFiles, prepare
from jetspark.spark.options import SourceOptions
from jetspark.spark.table_rows import RowMaker, RowsOf, rows_by_table

_KEY: Final = ("stream", "seq", "timestamp")
"""Identifies a message, even in a stream that was deleted and recreated."""
_ROWS = 10_000
"""Records decoded at a time."""

Key: TypeAlias = tuple[str, int, datetime]


@dataclass(frozen=True)
class Tried:
    """What became of the records."""

    added: int
    there: int
    """In the table already, from a run that was killed before it could say so."""
    left: int


def check_records(options: LakehouseOptions) -> None:
    """Check that the records are there, and a table that is not made by its first row. Raises
    ConfigError."""
    assert options.quarantine is not None  # noqa: S101
    if options.letters is not None:
        raise ConfigError(
            f"{options.quarantine} is a stream of dead letters: {options.letters.replay} publishes "
            "its messages again, to be read with the mended schema."
        )
    aside = options.of_table(options.quarantine)
    one = options.route is None and not options.tables
    for table in (aside, options) if one else (aside,):
        open_table(table.format, table.name)


def as_written(options: LakehouseOptions) -> LakehouseOptions:
    """The options with the keys, the order and the history by which the table's query writes it,
    since records that become rows are rows like the others. Raises ConfigError for a table that is
    written in another way than the options say."""
    if options.route is not None or options.tables:
        return options
    table = find_table(options.format, options.name)
    described = None if table is None else read_description(table)
    if described is None:
        return options
    if options.keys is None:
        return replace(options, **described)
    _check_written_as(options, described)
    return options


def _check_written_as(options: LakehouseOptions, described: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the options write a table as its description says."""
    if {name: getattr(options, name) for name in described} != described:
        raise ConfigError(
            f"The rows of {options.name} replace others by their keys: give the options of the "
            f"query that writes it ({description_flags(described)}, …), or --pipeline with its "
            "file."
        )


def try_again(options: LakehouseOptions, source: SourceOptions, how: RowsOf) -> Tried:
    """Add the records to their tables that have become rows; again after a kill.

    `source`, `how`: how messages become rows. Raises as `check_records`; ConfigError for a table
    whose rows replace others without an order; TableError if somebody else does the same.
    """
    check_records(options)
    options = as_written(options)
    if source.decoding is not None:
        source = replace(source, decoding=replace(source.decoding, keep_payload=True))
    while True:
        now = how.into(options, source)
        given = now.decoded_in(source)
        target = prepare(options, now.schemas(given), numbered=True)
        try:
            return _Attempt(target, now.makers(given)).run()
        except SchemaGrown:
            pass  # the tables have got columns for new fields


class _Attempt:
    def __init__(self, target: Target, makers: Sequence[RowMaker]) -> None:
        options = target.options
        assert options.quarantine is not None  # noqa: S101
        aside = options.of_table(options.quarantine)
        self._target = target
        self._makers = makers
        self._records = open_table(aside.format, aside.name)
        if set(self._records.schema.names) != set(quarantine.SCHEMA.names):
            raise ConfigError(
                f"{aside.name} has the columns {', '.join(self._records.schema.names)}: it is no "
                "table of records that --quarantine has put aside."
            )
        if options.keys and options.sequence_by is None:
            raise ConfigError(
                "Option 'keys' needs 'sequenceBy' here: without an order a record from before "
                "would replace a row of now."
            )
        self._records.check_txn_versions_retained()
        # A list may be mended, too, before a run that was killed is repeated.
        to = "a list" if options.tables else options.name
        self._begun = f"jetspark.retry.begun.{to}"
        self._ended = f"jetspark.retry.ended.{to}"
        self._number = f"jetspark.retry.{aside.name}"
        """In the tables that get the rows."""
        ended = self._records.txn_version(self._ended) or 0
        self._was_killed = (self._records.txn_version(self._begun) or 0) > ended
        self._this = (self._records.txn_version(self._begun) or 0) + 1
        self._seen: dict[str, int | None] = {}
        """The numbers of the tables that get rows."""
        self._has: dict[str, frozenset[Key]] = {}
        self._done: set[Key] = set()
        self._there = 0
        self._left: dict[Key, quarantine.Reason] = {}
        """With the reason of now, and below, the rows of those that had another one."""
        self._changed: list[pa.RecordBatch] = []

    def run(self) -> Tried:
        self._commit(self._records, self._begun, self._this - 1, ())
        self._records.refresh()  # what is read now is what was there when others were told
        files = TaskFiles(self._target)
        try:
            for batch in self._batches():
                self._try(batch, files)
            written = files.close()
        except BaseException:
            files.discard()
            raise
        if files.growth:
            if not self._was_killed:  # nothing was added, which the next attempt need not prove
                self._commit(self._records, self._ended, self._this - 1, ())
            grow({name: one.options for name, one in self._target.each.items()}, files.growth)
        self._add(written)
        self._clean_up()
        return Tried(len(self._done) - self._there, self._there, len(self._left))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for piece in self._records.scan_tasks(quarantine.SCHEMA.names, None, 1):
            for batch in piece.batches():
                for start in range(0, batch.num_rows, _ROWS):
                    yield batch.slice(start, _ROWS)

    def _try(self, batch: pa.RecordBatch, files: TaskFiles) -> None:
        """The rows of some records."""
        target, options = self._target, self._target.options
        reasons = dict(zip(_keys(batch), _reasons(batch), strict=True))
        if options.route is None and not options.tables:
            batch = self._new(batch, "")
        messages = batch.select(quarantine.MESSAGE)
        for number, rows in rows_by_table(self._makers, options.tables, messages):
            if options.tables:
                self._try_listed(number, rows, files, reasons)
                continue
            rows = self._fitting(target, rows, reasons)
            if options.route is None:
                rows = self._holdable(target, "", rows, files, reasons)
                self._add_rows(rows, files.write)
                continue
            for name, part in options.route.divide(rows):
                why = options.route.lacking if name is None else files.why_not_into(name)
                if why is not None and options.rest is None:
                    self._leave(part, why, reasons)
                else:
                    into = name if name is not None and why is None else ""
                    part = self._holdable(target, into, part, files, reasons)
                    self._add_rows(self._new(part, name or ""), files.write)

    def _try_listed(
        self,
        number: int | None,
        rows: pa.RecordBatch,
        files: TaskFiles,
        reasons: Mapping[Key, quarantine.Reason],
    ) -> None:
        """The same, for one table of a list, or for rows without one."""
        target, name = self._target, ""
        if number is None and target.options.rest is None:
            self._leave(rows, listed.no_table, reasons)
            return
        if number is not None:
            one = target.listed[number]
            name = str(one.options.name)
            rows = self._holdable(one, name, self._fitting(one, rows, reasons), files, reasons)
        self._add_rows(self._new(rows, name), partial(files.write, number=number))

    def _add_rows(self, rows: pa.RecordBatch, write: Callable[[pa.RecordBatch], None]) -> None:
        if rows.num_rows:
            write(rows)
            self._done.update(_keys(rows))

    def _fitting(
        self, target: Target, rows: pa.RecordBatch, reasons: Mapping[Key, quarantine.Reason]
    ) -> pa.RecordBatch:
        """Those that are rows now; the others are left."""
        refused = target.refused(rows)
        self._leave(rows.filter(refused), target.why_not, reasons)
        return rows.filter(pc.invert(refused))

    def _holdable(
        self,
        target: Target,
        name: str,
        rows: pa.RecordBatch,
        files: TaskFiles,
        reasons: Mapping[Key, quarantine.Reason],
    ) -> pa.RecordBatch:
        """The rows that the table can hold; the others are left."""
        if not rows.num_rows:
            return rows
        mask, why = files.misfits(target, name, rows)
        self._leave(rows.filter(mask), why, reasons)
        return rows.filter(pc.invert(mask))

    def _leave(
        self,
        rows: pa.RecordBatch,
        why: Callable[[pa.RecordBatch], quarantine.Reason],
        before: Mapping[Key, quarantine.Reason],
    ) -> None:
        """Records that stay where they are; `before`: their reasons so far."""
        if not rows.num_rows:
            return
        found = quarantine.quarantine_rows(rows, why)
        changed = []
        for key, reason in zip(_keys(found), _reasons(found), strict=True):
            changed.append(key not in self._left and before[key] != reason)
            self._left[key] = reason
        self._changed.append(found.filter(pa.array(changed, pa.bool_())))

    # -- what the tables have already -------------------------------------------------------

    def _new(self, rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
        """The records that the table lacks, each once; the others are done."""
        has = self._keys_in(name)
        taken = set(self._done)
        chosen = []
        for key in _keys(rows):
            chosen.append(key not in has and key not in taken)
            taken.add(key)
            if key in has and key not in self._done:
                self._there += 1
                self._done.add(key)
        return rows.filter(pa.array(chosen, pa.bool_()))

    def _keys_in(self, name: str) -> frozenset[Key]:
        """Those of the records that a table has, or the one for the rest in its place; or that any
        of a list has, since a list that was mended may give them to another one."""
        if self._target.options.tables:
            name = ""
        if name not in self._has:
            places = [str(one.options.name) for one in self._target.options.tables]
            places += [name] if name else []
            places += [one for one in (self._target.options.rest,) if one is not None]
            found = [self._looked_up(self._options(one)) for one in places or [""]]
            self._has[name] = frozenset().union(*found)
        return self._has[name]

    def _looked_up(self, options: LakehouseOptions) -> frozenset[Key]:
        table = find_table(options.format, options.name)
        self._seen[str(options.name)] = None if table is None else table.txn_version(self._number)
        if table is None or not self._was_killed:
            return frozenset()
        wanted = self._wanted
        if not wanted:
            return frozenset()
        first, last = (end(key[1] for key in wanted) for end in (min, max))
        return wanted.intersection(_keys_of(table, f"seq >= {first} AND seq <= {last}"))

    @cached_property
    def _wanted(self) -> frozenset[Key]:
        return frozenset(_keys_of(self._records))

    def _options(self, name: str) -> LakehouseOptions:
        options = self._target.options
        return options.of_table(name) if name else options

    # -- commits ----------------------------------------------------------------------------

    def _add(self, files: Sequence[NewFile]) -> None:
        groups = [(self._options(name), group) for name, group in files_by_table(files).items()]
        for options, _ in groups:
            described = read_description(open_table(options.format, options.name))
            if described is not None:
                _check_written_as(options, described)
        for options, group in groups:
            table = open_table(options.format, options.name)
            self._records.refresh()
            if self._records.txn_version(self._begun) != self._this:
                raise self._not_alone()
            seen = self._seen.get(str(options.name))
            self._commit(table, self._number, seen, group, options.upsert or append)
            if options.upsert is not None:
                remove_staged_files(table.storage, group)

    def _commit(
        self,
        table: Table,
        name: str,
        seen: int | None,
        files: Sequence[NewFile],
        change: Callable[[Table, Sequence[NewFile], TxnVersions], None] = append,
    ) -> None:
        """One commit that sets a number, which nobody else has set since it was seen."""

        def checked(table: Table, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
            if (table.txn_version(name) or 0) != (seen or 0):
                raise self._not_alone()
            change(table, files, {**txn_versions, name: self._this})

        commit_files(table, files, checked)

    def _clean_up(self) -> None:
        """Remove the records that have become rows."""
        # Which table another record went to, in the run that was killed, is not known.
        options = self._target.options
        one = options.route is None and not options.tables
        settled = not self._was_killed or one or not self._left
        txn_versions = {self._ended: self._this} if settled else {}

        def change(table: Table, files: Sequence[NewFile], _: TxnVersions) -> None:
            if table.txn_version(self._begun) != self._this:
                raise self._not_alone()
            table.merge(self._changes(frozenset(_keys_of(table))), txn_versions)

        commit_files(self._records, (), change)

    def _changes(self, there: frozenset[Key]) -> Changes:
        """For those that are there; a merge would add others."""
        schema = quarantine.SCHEMA
        done = [dict(zip(_KEY, key, strict=True)) for key in self._done & there]
        rows = [pa.Table.from_pylist(done, schema)]
        for batch in self._changed:
            chosen = pa.array([key in there for key in _keys(batch)], pa.bool_())
            rows.append(pa.Table.from_batches([batch.filter(chosen)]))
        found = pa.concat_tables(rows)
        deleted = pa.array([index < len(done) for index in range(found.num_rows)], pa.bool_())
        return Changes(found, pa.chunked_array([deleted]), _KEY, None)

    def _not_alone(self) -> TableError:
        return TableError(
            f"Another run tries the records of {self._records.name} at the same time: let it end, "
            "and run this again."
        )


def _keys_of(table: Table, prune: str | None = None) -> Iterator[Key]:
    for piece in table.scan_tasks(_KEY, prune, 1):
        for batch in piece.batches():
            yield from _keys(batch)


def _keys(rows: pa.RecordBatch) -> Iterator[Key]:
    columns = (rows.column(name).cast(quarantine.SCHEMA.field(name).type) for name in _KEY)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _reasons(rows: pa.RecordBatch) -> Iterator[quarantine.Reason]:
    return zip(*(rows.column(name).to_pylist() for name in ("column", "reason")), strict=True)

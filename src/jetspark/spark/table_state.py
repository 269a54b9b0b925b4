"""Reads the state of a table's folder and of a checkpoint, without changing anything.

The file sink lists the table's files in `<table>/_spark_metadata`, in one file per batch; every
tenth one is a summary of those before ("9.compact"). A checkpoint has `metadata` (the query's id),
`offsets` (planned batches) and `commits` (committed batches).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jetspark.spark.table_files import Files, place
from jetspark.spark.table_note import Note, Notes, Progress

SINK_LOG = "_spark_metadata"
_DELTA_LOG = "_delta_log"
_ICEBERG_HINT = "metadata/version-hint.text"
_BATCH = re.compile(r"(\d+)(?:\.compact)?")
_LOGS = ("offsets", "commits")
_OWN = frozenset({"metadata", *_LOGS, "state", "sources"})


@dataclass(frozen=True)
class TableState:
    """The state of a table's folder."""

    is_file: bool = False
    batch: int | None = None
    """The last batch whose files are listed."""
    note: Note | None = None
    others: tuple[str, ...] = ()
    """Files that readers would read as rows, if there is neither a batch nor a note."""
    within: str | None = None
    """The table or checkpoint whose folder contains that of a new table."""
    found: bool = False
    """A Delta or Iceberg table is there, whoever made it."""


@dataclass(frozen=True)
class CheckpointState:
    """The state of a checkpoint."""

    query: str | None = None
    planned: int | None = None
    committed: int | None = None
    end: str = ""
    """Exact copies of Spark's offsets of the last planned batch."""
    others: tuple[str, ...] = ()
    """Other files in the folder of a new checkpoint."""
    within: str | None = None
    """The table or checkpoint whose folder contains that of a new checkpoint."""
    lost: int | None = None
    """The batch before the last planned one, if the checkpoint does not have it: Spark needs it."""

    @property
    def is_new(self) -> bool:
        """Whether no query has planned a batch with it."""
        return self.planned is None and self.committed is None

    @property
    def streams(self) -> list[str] | None:
        """Its streams, one string for each source; None if it has none."""
        sources = [_streams(line) for line in self.end.split("\n")[2:]]
        if not sources or None in sources:
            return None
        return [one for one in sources if one is not None]


def read_table(files: Files, table: str, checkpoint: str) -> TableState:
    """The state of a table's folder; the checkpoint may lie in it."""
    if files.is_file(table):
        return TableState(is_file=True)
    batch = _last(files.names(f"{table}/{SINK_LOG}"))
    note = Notes(files, table).newest()
    others: tuple[str, ...] = ()
    within = held_in(files, table) if batch is None else None
    if batch is None and note is None:
        names = sorted(files.names(table) or ())
        if checkpoint.startswith(f"{table}/"):
            mine = checkpoint.removeprefix(f"{table}/").partition("/")[0]
            names = [name for name in names if name != mine]
        others = tuple(name for name in names if name[0] not in "_." or name == _DELTA_LOG)
    return TableState(batch=batch, note=note, others=others, within=within)


def read_checkpoint(files: Files, checkpoint: str) -> CheckpointState:
    """The state of a checkpoint."""
    names_of = {log: files.names(f"{checkpoint}/{log}") for log in _LOGS}
    planned, committed = (_last(names_of[log]) for log in _LOGS)
    if planned is None and committed is None:
        names = sorted(files.names(checkpoint) or ())
        return CheckpointState(
            query=_query(files.read(f"{checkpoint}/metadata")),
            others=tuple(name for name in names if name not in _OWN and name[0] not in "._"),
            within=held_in(files, checkpoint),
        )
    return CheckpointState(
        query=_query(files.read(f"{checkpoint}/metadata")),
        planned=planned,
        committed=committed,
        lost=planned - 1 if planned and planned - 1 not in _numbers(names_of["offsets"]) else None,
        end=_entry(files, checkpoint, "offsets", planned),
    )


def held_in(files: Files, folder: str) -> str | None:
    """The nearest parent folder that is a table or a checkpoint."""
    scheme, mark, path = place(folder).rpartition("://")
    while "/" in path.lstrip("/"):
        path = path.rpartition("/")[0]
        above = f"{scheme}{mark}{path}"
        if any(files.names(f"{above}/{log}") is not None for log in (SINK_LOG, _DELTA_LOG)) or (
            files.is_file(f"{above}/{_ICEBERG_HINT}")
            or (files.is_file(f"{above}/metadata") and files.names(f"{above}/offsets") is not None)
        ):
            return above
    return None


def read_progress(files: Files, checkpoint: str) -> Progress | None:
    """The part of a checkpoint from which it can be rebuilt; None if no batch is committed, or if
    the checkpoint is removed at this moment."""
    batch = _last(files.names(f"{checkpoint}/commits"))
    if batch is None:
        return None
    more = {name for name in files.names(checkpoint) or () if not name.startswith(".")}
    if more - {"metadata", *_LOGS}:
        return Progress(batch=batch)
    # Spark needs the start of the last batch as well as its end.
    offsets = {
        number: _entry(files, checkpoint, "offsets", number)
        for number in range(max(0, batch - 1), batch + 1)
    }
    commit = _entry(files, checkpoint, "commits", batch)
    if not commit or "" in offsets.values():
        return None  # somebody is removing it
    return Progress(batch=batch, offsets=offsets, commit=commit)


def partitions_of(files: Files, table: str, batch: int) -> list[str]:
    """The partition columns of a batch's files, from their paths."""
    for name in (str(batch), f"{batch}.compact"):
        for line in (files.read(f"{table}/{SINK_LOG}/{name}") or "").split("\n")[1:]:
            folders = json.loads(line)["path"].rpartition("/")[0].split("/") if line else []
            return [one.partition("=")[0] for one in folders if "=" in one]
    return []


def left_by_a_kill(files: Files, checkpoint: str) -> list[str]:
    """Temporary files of a first batch whose planning was interrupted.

    Spark starts a new query only if the logs are empty, and these files count.
    """
    return [
        f"{checkpoint}/{log}/{name}"
        for log in _LOGS
        for name in files.names(f"{checkpoint}/{log}") or ()
        if name.startswith(".")
    ]


def offsets_of(files: Files, checkpoint: str, batch: int) -> list[str]:
    """The offsets of a batch, one for each source; none if it was not planned."""
    return _entry(files, checkpoint, "offsets", batch).split("\n")[2:]


def entries(files: Files, checkpoint: str) -> dict[str, str]:
    """All entries of the logs, by their paths in the checkpoint."""
    return {
        f"{log}/{number}": _entry(files, checkpoint, log, number)
        for log in _LOGS
        for number in _numbers(files.names(f"{checkpoint}/{log}"))
    }


def _entry(files: Files, checkpoint: str, log: str, number: int | None) -> str:
    return "" if number is None else files.read(f"{checkpoint}/{log}/{number}") or ""


def _numbers(names: Iterable[str] | None) -> list[int]:
    return [int(match[1]) for match in map(_BATCH.fullmatch, names or ()) if match]


def _last(names: Iterable[str] | None) -> int | None:
    return max(_numbers(names), default=None)


def _query(metadata: str | None) -> str | None:
    """The id; also None for an incompletely written file."""
    try:
        document: Any = json.loads(metadata or "")
    except ValueError:
        return None
    found = document.get("id") if isinstance(document, dict) else None
    return found if isinstance(found, str) else None


def _streams(offset: str) -> str | None:
    try:
        document: Any = json.loads(offset)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("streams"), dict):
        return None
    return named(document["streams"])


def named(streams: Iterable[str]) -> str:
    """One string for the streams of a source."""
    return ", ".join(sorted(streams))

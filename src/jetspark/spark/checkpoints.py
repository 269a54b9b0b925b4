"""The content of a query's checkpoint on this machine, read without Spark.

A checkpoint has `metadata` (the query's id), `offsets` (planned batches) and `commits` (committed
batches). Spark plans a batch, writes it, and then commits it in the checkpoint.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jetspark.errors import ConfigError
from jetspark.spark.local_folders import canonical_path, enclosing_table_or_checkpoint

_BATCH_FILE = re.compile(r"\d+")
_LOGS = ("offsets", "commits")
_CHECKPOINT_FILES = frozenset({"metadata", *_LOGS, "state", "sources"})


@dataclass(frozen=True)
class CheckpointState:
    """How far a streaming query has come, and what is wrong with its checkpoint, by its files.

    Spark numbers batches from 0.
    """

    query: str | None = None
    """The query's id."""
    planned: int | None = None
    """The number of the last planned batch; None before the first."""
    committed: int | None = None
    """The number of the last committed batch; None before the first."""
    other_files: tuple[str, ...] = ()
    """Files in the folder of a new checkpoint that belong to no checkpoint."""
    enclosed_by: str | None = None
    """The table or checkpoint whose folder contains that of a new checkpoint."""
    lost: int | None = None
    """The batch before the last planned one, if the checkpoint lacks it; Spark needs it."""

    @property
    def is_new(self) -> bool:
        """Whether no query has planned a batch with this checkpoint."""
        return self.planned is None and self.committed is None

    def check_complete(self, name: str, advice: str) -> None:
        """Raise ConfigError if the checkpoint was removed while a query used it.

        It then has only the batches since.

        `name`: what the message calls the checkpoint; `advice`: the end of the message, which says
        what to remove as well, or what to do instead.
        """
        if self.lost is not None:
            raise ConfigError(
                f"{name} has lost its batch {self.lost} and those before: it was removed, perhaps "
                f"with the table, while a query used it. To begin anew, remove it {advice}."
            )


def read_checkpoint(checkpoint: str | None) -> CheckpointState:
    """Read how far a query has come from its checkpoint, a folder of this machine.

    `checkpoint`: None if it is elsewhere; then nothing is known, and the state is that of a new
    one. The files around it are only looked at for a new checkpoint.
    """
    if checkpoint is None:
        return CheckpointState()
    folder = Path(checkpoint)
    # Each log has a file for each batch, whose name is the batch's number.
    batches = {
        log: [int(name) for name in _list_folder(folder / log) if _BATCH_FILE.fullmatch(name)]
        for log in _LOGS
    }
    planned, committed = (max(batches[log], default=None) for log in _LOGS)
    try:
        query = parse_query_id((folder / "metadata").read_bytes())
    except OSError:
        query = None
    if planned is None and committed is None:
        names = sorted(set(_list_folder(folder)) - _CHECKPOINT_FILES)
        other_files = tuple(name for name in names if name[0] not in "._")  # hidden files of Hadoop
        enclosed_by = enclosing_table_or_checkpoint(checkpoint)
        return CheckpointState(query, other_files=other_files, enclosed_by=enclosed_by)
    # Spark needs, and so never removes, the batch before the last planned one.
    lost = planned - 1 if planned and planned - 1 not in batches["offsets"] else None
    return CheckpointState(query, planned, committed, lost=lost)


@dataclass(frozen=True)
class FinishedOffsets:
    """How far a query has come: the offsets of its last committed batch, or, before any commit, of
    the batch that it has planned."""

    texts: list[str]
    """The offset of each source, as JSON."""
    is_committed: bool
    """Whether the batch is committed, and read to its end; otherwise only what lies before its
    start is finished."""


def finished_offsets(checkpoint: str) -> FinishedOffsets | None:
    """Read the offsets up to which a query has finished, from its checkpoint on this machine.

    None if it has planned no batch yet, or the batch's file cannot be read now.
    """
    state = read_checkpoint(checkpoint)
    batch = state.planned if state.committed is None else state.committed
    texts = None if batch is None else planned_offsets(checkpoint, batch)
    return None if texts is None else FinishedOffsets(texts, state.committed is not None)


def planned_offsets(checkpoint: str, batch: int) -> list[str] | None:
    """Read the offset of each source of a planned batch, as JSON; None if its file is not here."""
    try:
        # The first two lines are the format's version and the batch's metadata.
        return Path(checkpoint, "offsets", str(batch)).read_text("utf-8").splitlines()[2:]
    except OSError:
        return None


def _list_folder(folder: Path) -> list[str]:
    """The names of a folder's files; an empty list if it is missing or cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


class _Metadata(msgspec.Struct):
    """Content of a checkpoint's file `metadata`."""

    id: str


def parse_query_id(metadata: bytes) -> str | None:
    """The query's id in a checkpoint's metadata; None for an incompletely written file."""
    try:
        return msgspec.json.decode(metadata, type=_Metadata).id
    except ValueError:
        return None


def query_name(writer_name: str | None, checkpoint: str | None) -> str | None:
    """The name by which a target of rows knows a streaming query, even if its checkpoint is lost.

    It is the user's (option `writerName`), or else has the checkpoint's path. None if neither is
    known, since the checkpoint comes from a Spark setting, which sinks do not see.
    """
    if writer_name is not None or checkpoint is None:
        return writer_name
    return f"the query with the checkpoint {canonical_path(checkpoint)}"


def remove_incomplete_start(checkpoint: str) -> None:
    """Remove what a query that was killed before its first batch has left in its checkpoint.

    Spark would not start a query there: it takes temporary files for batches, and cannot read
    metadata that was cut off. A checkpoint with a batch stays as it is.
    """
    state, folder = read_checkpoint(checkpoint), Path(checkpoint)
    if not state.is_new:
        return
    leftovers = [file for log in _LOGS for file in (folder / log).glob(".*")]
    if state.query is None:
        leftovers += [folder / "metadata", folder / ".metadata.crc"]
    for file in leftovers:
        file.unlink(missing_ok=True)

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
    """What a checkpoint's files say."""

    query: str | None = None
    """The query's id."""
    planned: int | None = None
    """The number of the last planned batch."""
    committed: int | None = None
    """The number of the last committed batch."""
    other_files: tuple[str, ...] = ()
    """Other files in the folder of a new checkpoint."""
    enclosed_by: str | None = None
    """The table or checkpoint whose folder contains that of a new checkpoint."""
    lost: int | None = None
    """The batch before the last planned one, if the checkpoint lacks it; Spark needs it."""

    @property
    def is_new(self) -> bool:
        """Whether no query has planned a batch with it."""
        return self.planned is None and self.committed is None

    def check_complete(self, name: str, advice: str) -> None:
        """Raise ConfigError for a checkpoint that was removed while a query used it, and has only
        what was planned since. `advice`: what to remove beside it, or to do in place of that."""
        if self.lost is not None:
            raise ConfigError(
                f"{name} has lost its batch {self.lost} and those before: it was removed, perhaps "
                f"with the table, while a query used it. To begin anew, remove it {advice}."
            )


def read_checkpoint(checkpoint: str | None) -> CheckpointState:
    """The state of a checkpoint in a folder of this machine. None: it is elsewhere, and nothing is
    known of it."""
    if checkpoint is None:
        return CheckpointState()
    folder = Path(checkpoint)
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
        other_files = tuple(name for name in names if name[0] not in "._")
        enclosed_by = enclosing_table_or_checkpoint(checkpoint)
        return CheckpointState(query, other_files=other_files, enclosed_by=enclosed_by)
    lost = planned - 1 if planned and planned - 1 not in batches["offsets"] else None
    return CheckpointState(query, planned, committed, lost=lost)


@dataclass(frozen=True)
class FinishedOffsets:
    """The offsets of the last committed batch, or of the first planned one."""

    texts: list[str]
    """The offset of each source, as JSON."""
    is_committed: bool
    """Whether the batch is committed; otherwise only its starts are finished."""


def finished_offsets(checkpoint: str) -> FinishedOffsets | None:
    """How far a query has come; None if there is no batch, or its file is being written."""
    state = read_checkpoint(checkpoint)
    batch = state.planned if state.committed is None else state.committed
    texts = None if batch is None else planned_offsets(checkpoint, batch)
    return None if texts is None else FinishedOffsets(texts, state.committed is not None)


def planned_offsets(checkpoint: str, batch: int) -> list[str] | None:
    """The texts of the offsets of a batch's sources; None if its file is not here."""
    try:
        return Path(checkpoint, "offsets", str(batch)).read_text("utf-8").splitlines()[2:]
    except OSError:
        return None


def _list_folder(folder: Path) -> list[str]:
    """The names in a folder; none if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


class _Metadata(msgspec.Struct):
    id: str


def parse_query_id(metadata: bytes) -> str | None:
    """The query's id in a checkpoint's metadata; None for an incompletely written file."""
    try:
        return msgspec.json.decode(metadata, type=_Metadata).id
    except ValueError:
        return None


def query_name(writer_name: str | None, checkpoint: str | None) -> str | None:
    """The name of a streaming query in a ledger or a table, where it survives its checkpoint.

    None if the checkpoint comes from a Spark setting, which sinks do not see.
    """
    if writer_name is not None or checkpoint is None:
        return writer_name
    return f"the query with the checkpoint {canonical_path(checkpoint)}"


def remove_incomplete_start(checkpoint: str) -> None:
    """Remove what a kill has left of a first batch: Spark starts a new query only if its logs are
    empty, counts their temporary files, and does not read metadata that was cut off."""
    state, folder = read_checkpoint(checkpoint), Path(checkpoint)
    if not state.is_new:
        return
    leftovers = [file for log in _LOGS for file in (folder / log).glob(".*")]
    if state.query is None:
        leftovers += [folder / "metadata", folder / ".metadata.crc"]
    for file in leftovers:
        file.unlink(missing_ok=True)

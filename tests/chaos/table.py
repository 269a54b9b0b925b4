"""The oracle of reading: what a query's Parquet table holds, against what was acknowledged.

Which files count is read from the table's own log (`_spark_metadata`), as Spark would; the rows
come through PyArrow. A payload names its message (stream, generation, number) and ends in a
checksum of the rest, so a row of another message, or of half a one, is unexpected.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
from tests.chaos import outcome
from tests.chaos.outcome import Findings


class Message(NamedTuple):
    """One message: where it is stored, and the id in its payload."""

    stream: str
    seq: int
    id: str


def payload_of(identity: str, size: int) -> bytes:
    """A payload of about `size` bytes that says which message it is."""
    text = identity.encode() + b" "
    filler = identity.encode() * (max(size - len(text) - 8, 0) // len(identity) + 1)
    body = text + filler[: max(size - len(text) - 8, 0)]
    return body + b"%08x" % zlib.crc32(body)


def identity_of(payload: bytes) -> str | None:
    """The message's id; None when the payload is not as it was made."""
    body, checksum = payload[:-8], payload[-8:]
    if b"%08x" % zlib.crc32(body) != checksum:
        return None
    return body.split(b" ", 1)[0].decode()


# -- the table -----------------------------------------------------------------------------------


def batches(table: Path) -> dict[int, list[Path]]:
    """The files that each committed batch has added, in the order of their partitions."""
    log = table / "_spark_metadata"
    found: dict[int, list[Path]] = {}
    known: set[Path] = set()
    entries = [file for file in log.glob("[0-9]*") if file.name.split(".")[0].isdigit()]
    for file in sorted(entries, key=lambda file: int(file.name.split(".")[0])):
        # A compacted file repeats all batches before it.
        added = {_path(line) for line in file.read_text("utf-8").splitlines()[1:]} - known
        known |= added
        found[int(file.name.split(".")[0])] = sorted(added, key=lambda path: path.name)
    return found


def _path(line: str) -> Path:
    return Path(unquote(urlsplit(json.loads(line)["path"]).path))


def rows(table: Path, numbers: Iterable[int] | None = None) -> Iterator[Message]:
    """The rows of these batches, or of all, in the order of batches, partitions and rows."""
    wanted = None if numbers is None else set(numbers)
    for number, files in batches(table).items():
        if wanted is not None and number not in wanted:
            continue
        for file in files:
            columns = pq.read_table(file, columns=["stream", "seq", "data"]).to_pydict()
            for stream, seq, data in zip(*columns.values(), strict=True):
                yield Message(
                    stream, seq, identity_of(data) or f"no message of ours: {data[:60]!r}"
                )


# -- the comparison ------------------------------------------------------------------------------


def compare(
    found: Iterable[Message], must: Iterable[Message], may: Iterable[Message] = ()
) -> Findings:
    """Sequences grow within each generation of a stream."""
    return outcome.compare(found, must, may, order=lambda one: (one.id.rpartition("/")[0], one.seq))


# -- the checkpoint ------------------------------------------------------------------------------


def newest(folder: Path) -> int:
    """The highest number of a file in one of Spark's logs; -1 when there is none."""
    return max(
        (
            int(name)
            for file in folder.glob("[0-9]*")
            if (name := file.name.split(".")[0]).isdigit()
        ),
        default=-1,
    )


def next_sequences(checkpoint: Path, batch: int) -> Mapping[str, int]:
    """Where a batch ends, by stream, as the checkpoint has it; {} for batch -1."""
    if batch < 0:
        return {}
    document = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
    return {name: one["next"] for name, one in document["streams"].items()}

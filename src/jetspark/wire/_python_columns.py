"""The plain-Python kernel: deliveries into columns."""

from __future__ import annotations

import re
from array import array
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

import msgspec

from jetspark.wire._python_frames import MAX_MESSAGE

Memory: TypeAlias = "bytes | array[int] | memoryview"
"""Read through the buffer protocol; the C kernel has its own type for it."""


class Columns(NamedTuple):
    """Deliveries in Arrow's memory layout.

    A column of byte strings is `rows` + 1 offsets (int32) and the joined bytes; numbers are int64.
    """

    rows: int
    subject_offsets: Memory
    subjects: Memory
    sequences: Memory
    times: Memory
    """Nanoseconds since the epoch."""
    header_offsets: Memory
    headers: Memory
    """Header blocks; empty for a message without headers."""
    data_offsets: Memory
    data: Memory


class Deliveries:
    """Decoded deliveries as columns of equal length."""

    __slots__ = ("_data", "_headers", "_sequences", "_subjects", "_times", "size")

    def __init__(self) -> None:
        # Numbers stay decimal text until one call converts the whole column.
        self._subjects: list[bytes] = []
        self._sequences: list[bytes] = []
        self._times: list[bytes] = []
        self._headers: list[bytes] = []
        self._data: list[bytes] = []
        self.size = 0
        """Bytes of all frames in these columns, an upper bound of the payload bytes."""

    def __len__(self) -> int:
        return len(self._data)

    @property
    def last_sequence(self) -> int:
        """The stream sequence of the last row, 0 without rows."""
        return int(self._sequences[-1]) if self._sequences else 0

    def sequences(self, start: int = 0) -> list[int]:
        """Stream sequences of the rows from `start` on."""
        return _integers(self._sequences[start:])

    def times(self, start: int = 0) -> list[int]:
        """Nanoseconds since the epoch of the rows from `start` on."""
        return _integers(self._times[start:])

    def subjects(self) -> list[bytes]:
        """The subject of each row."""
        return self._subjects

    def append(
        self, subject: bytes, sequence: int, ns: int, block: bytes | None, payload: bytes
    ) -> None:
        """Append a row that is not from a delivery; `ns`: nanoseconds since the epoch."""
        self._subjects.append(subject)
        self._sequences.append(b"%d" % sequence)
        self._times.append(b"%d" % ns)
        self._headers.append(block or b"")
        self._data.append(payload)
        self.size += len(payload)

    def truncate(self, rows: int) -> None:
        """Keep the first `rows` rows."""
        for column in self._columns():
            del column[rows:]

    def keep(self, rows: list[int]) -> None:
        """Keep only these rows, given in ascending order."""
        for column in self._columns():
            column[:] = [column[row] for row in rows]

    def take(self) -> Columns:
        """Return the columns and remove all rows."""
        subjects, sequences, times, headers, data = self._columns()
        columns = Columns(
            len(data),
            _offsets(subjects),
            b"".join(subjects),
            array("q", _integers(sequences)),
            array("q", _integers(times)),
            _offsets(headers),
            b"".join(headers),
            _offsets(data),
            b"".join(data),
        )
        self.truncate(0)
        self.size = 0
        return columns

    def _columns(self) -> tuple[list[bytes], ...]:
        return self._subjects, self._sequences, self._times, self._headers, self._data


def _integers(column: list[bytes]) -> list[int]:
    # One call of msgspec's decoder for the whole column is three times faster than int() for each.
    try:
        return msgspec.json.decode(b"[" + b",".join(column) + b"]", type=list[int])
    except msgspec.DecodeError:  # zeros before a number, which no server writes
        return list(map(int, column))


def _offsets(column: list[bytes]) -> array[int]:
    return array("i", accumulate(map(len, column), initial=0))


class HeaderPairs(NamedTuple):
    """The headers of many messages as an Arrow list of (key, value) pairs; see `Columns`."""

    pairs: int
    list_offsets: Memory
    """The index of each message's first pair, and the end of the last message's pairs."""
    key_offsets: Memory
    keys: Memory
    value_offsets: Memory
    values: Memory


def header_pairs(offsets: Memory, headers: Memory) -> HeaderPairs:
    """The names and values in a column of header blocks, in order; malformed lines are skipped."""
    edges = memoryview(offsets).cast("B").cast("i")
    whole = bytes(headers)
    keys: list[bytes] = []
    values: list[bytes] = []
    lists = array("i", [0])
    for begin, end in pairwise(edges):
        block = whole[begin:end]
        for line in block.split(b"\r\n")[1:-2] if block.startswith(b"NATS/1.0") else ():
            key, colon, value = line.partition(b":")
            if colon and key:
                keys.append(key)
                values.append(value.strip(b" \t"))
        lists.append(len(keys))
    return HeaderPairs(
        len(keys), lists, _offsets(keys), b"".join(keys), _offsets(values), b"".join(values)
    )


OTHER_FRAME = -1

_MOST = b"%d" % (2**63 - 1)
_NUMBER = (
    b"(?:%b)"
    % b"|".join(
        [
            rb"[0-8]\d{18}",  # times; the rest is of the numbers of 19 digits up to _MOST
            rb"\d{1,18}",
            *(
                rb"%b[0-%d]\d{%d}" % (_MOST[:i], _MOST[i] - 49, 18 - i)
                for i in range(1, 19)
                if _MOST[i] > 48
            ),
            _MOST,
        ]
    )
)
"""A number that a column holds."""


class DeliveryDecoder:
    """Decodes the deliveries of one consumer directly into columns.

    Reply subjects are $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.
    <pending>, or with <domain>.<account hash> before the stream and any tokens at the end (ADR-15).
    """

    __slots__ = ("_counts", "_headed", "_plain", "consumer_sequence", "pending")

    def __init__(self, stream: str, consumer: str) -> None:
        name = re.escape(f"{stream}.{consumer}".encode())
        reply = rb"\$JS\.ACK\.(?:[^.\s]+\.[^.\s]+\.)?" + name + rb"\." + _NUMBER + rb"\."
        line = (
            rb"MSG (\S+) \d{1,18} " + reply + rb"(N)\.N\.(N)\.N(?:\.\S*)? ".replace(b"N", _NUMBER)
        )
        # Each group of a pattern costs time, so these have only the ones that every message needs;
        # consumer sequence and pending are read from the last message alone.
        self._plain = re.compile(line + rb"(\d{1,9})\r\n").match
        self._headed = re.compile(rb"H" + line + rb"(\d{1,9}) (\d{1,9})\r\n").match
        self._counts = re.compile(rb"H?MSG [^ ]+ \d+ " + reply + rb"\d+\.(\d+)\.\d+\.(\d+)").match
        self.consumer_sequence = 0
        """Consumer sequence of the last delivery decoded."""
        self.pending = 0
        """Messages that the consumer had not delivered yet, as of the last delivery decoded."""

    def decode(self, data: bytes, pos: int, into: Deliveries) -> tuple[int, int]:
        """Append the consecutive deliveries from `pos` on.

        Returns (end, need) as `split_frames` does; need is OTHER_FRAME when the frame at `end` is
        not a valid delivery of this consumer: pass it to `split_frames`.
        """
        plain, headed = self._plain, self._headed
        subjects = into._subjects.append
        sequences = into._sequences.append
        times = into._times.append
        headers = into._headers.append
        bodies = into._data.append
        size = len(data)
        start = pos
        last = -1
        need = OTHER_FRAME
        while True:
            found = plain(data, pos)
            if found is not None:
                subject, sequence, time, total = found.groups()
                begin = body = found.end()
            else:
                found = headed(data, pos)
                if found is None:
                    break
                subject, sequence, time, head, total = found.groups()
                begin = found.end()
                body = begin + int(head)
            end = begin + int(total)
            if end < body or end - begin > MAX_MESSAGE:
                break
            if end + 2 > size:
                need = end + 2 - pos
                break
            if data[end : end + 2] != b"\r\n":
                break
            headers(data[begin:body])
            subjects(subject)
            sequences(sequence)
            times(time)
            bodies(data[body:end])
            last = pos
            pos = end + 2
        if last >= 0:
            counts = self._counts(data, last)
            assert counts is not None  # noqa: S101 - the same line matched above
            self.consumer_sequence, self.pending = map(int, counts.groups())
            into.size += pos - start
        return pos, need

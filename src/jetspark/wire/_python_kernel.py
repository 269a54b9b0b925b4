"""The decode kernel in plain Python: the loops that see every message.

A compiled twin may replace this module (see `kernel`); both must give equal results.
"""

from __future__ import annotations

import re

from jetspark.errors import ProtocolError
from jetspark.wire.events import OK, PING, PONG, Err, Event, Info

MAX_CONTROL_LINE = 1 << 20
"""Longest control line accepted, bytes. INFO carries lists of URLs and may be long."""

MAX_MESSAGE = 128 << 20
"""Largest message accepted, bytes of headers and payload. Servers stop at 64 MiB."""


def split_frames(
    data: bytes, out: list[Event], pos: int = 0, *, one: bool = False
) -> tuple[int, int]:
    """Append every whole frame of `data` from `pos` on to `out`, or only the first one.

    Returns (end, need): the position of the first byte not consumed, and how many bytes from
    there the unfinished frame has in all (0 when its control line is not complete either).
    Raises ProtocolError; the frames before the bad one are in `out`.
    """
    find = data.find
    append = out.append
    size = len(data)
    while True:
        eol = find(b"\r\n", pos)
        if eol < 0:
            if size - pos > MAX_CONTROL_LINE:
                raise ProtocolError(f"a control line of over {MAX_CONTROL_LINE} bytes")
            return pos, 0
        parts = data[pos:eol].split()
        count = len(parts)
        op = parts[0] if parts else b""
        try:
            if op == b"MSG" and 4 <= count <= 5:
                body = eol + 2
                end = body + _size(parts[-1])
                reply = parts[3] if count == 5 else None
                headers = None
            elif op == b"HMSG" and 5 <= count <= 6:
                head = eol + 2
                body = head + _size(parts[-2])
                end = head + _size(parts[-1])
                if end < body:
                    raise ProtocolError(f"header longer than message in {_show(data[pos:eol])}")
                reply = parts[3] if count == 6 else None
                headers = data[head:body]
            else:
                append(_control(data[pos:eol]))
                pos = eol + 2
                if one:
                    return pos, 0
                continue
            if end + 2 > size:
                return pos, end + 2 - pos
            if data[end : end + 2] != b"\r\n":
                raise ProtocolError(f"no CRLF after the payload of {_show(data[pos:eol])}")
            append((int(parts[2]), parts[1], reply, headers, data[body:end]))
        except ValueError:
            raise ProtocolError(f"bad control line {_show(data[pos:eol])}") from None
        pos = end + 2
        if one:
            return pos, 0


def _size(text: bytes) -> int:
    # int() takes signs, spaces and underscores that the protocol does not.
    if not text.isdigit():
        raise ValueError
    value = int(text)
    if value > MAX_MESSAGE:
        raise ProtocolError(f"a message of {value} bytes; at most {MAX_MESSAGE} are accepted")
    return value


def _control(line: bytes) -> Event:
    op, _, rest = line.partition(b" ")
    op = op.strip().upper()
    if op == b"PING":
        return PING
    if op == b"PONG":
        return PONG
    if op == b"+OK":
        return OK
    if op == b"INFO":
        return Info(rest.strip())
    if op == b"-ERR":
        return Err(rest.strip().strip(b"'").decode("utf-8", "replace"))
    raise ProtocolError(f"unknown operation {_show(line)}")


def _show(line: bytes) -> str:
    text = line[:80].decode("utf-8", "backslashreplace")
    return repr(text + "…" if len(line) > 80 else text)


class Deliveries:
    """Columns of decoded deliveries, all of one length.

    `sequences` and `times` (nanoseconds) are decimal text as it came; `headers` holds None where
    a message has none.
    """

    __slots__ = ("data", "headers", "sequences", "size", "subjects", "times")

    def __init__(self) -> None:
        self.subjects: list[bytes] = []
        self.sequences: list[bytes] = []
        self.times: list[bytes] = []
        self.headers: list[bytes | None] = []
        self.data: list[bytes] = []
        self.size = 0
        """Bytes of all frames in these columns: a cheap upper bound of the payload."""

    def __len__(self) -> int:
        return len(self.data)

    def append(
        self, subject: bytes, sequence: int, ns: int, block: bytes | None, payload: bytes
    ) -> None:
        """One row that did not come as a delivery; `ns`: time since the epoch."""
        self.subjects.append(subject)
        self.sequences.append(b"%d" % sequence)
        self.times.append(b"%d" % ns)
        self.headers.append(block)
        self.data.append(payload)
        self.size += len(payload)

    def truncate(self, rows: int) -> None:
        """Keep the first `rows` rows."""
        for column in (self.subjects, self.sequences, self.times, self.headers, self.data):
            del column[rows:]

    def keep(self, rows: list[int]) -> None:
        """Keep only these rows."""
        self.subjects = [self.subjects[row] for row in rows]
        self.sequences = [self.sequences[row] for row in rows]
        self.times = [self.times[row] for row in rows]
        self.headers = [self.headers[row] for row in rows]
        self.data = [self.data[row] for row in rows]


OTHER_FRAME = -1


class DeliveryDecoder:
    """Decodes the deliveries of one consumer, and only of that one, straight into columns.

    Reply subjects are $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.
    <pending>, or with <domain>.<account hash> before the stream and any tokens behind (ADR-15).
    """

    __slots__ = ("_counts", "_headed", "_plain", "consumer_sequence", "pending")

    def __init__(self, stream: str, consumer: str) -> None:
        name = re.escape(f"{stream}.{consumer}".encode())
        reply = rb"\$JS\.ACK\.(?:[^. ]+\.[^. ]+\.)?" + name + rb"\.\d+\."
        line = rb"MSG ([^ \r\n]+) \d+ " + reply + rb"(\d+)\.\d+\.(\d+)\.\d+(?:\.[^ ]*)? "
        # A pattern costs by its groups, so each has only those that every message needs: the two
        # counts are looked up for the last message alone.
        self._plain = re.compile(line + rb"(\d+)\r\n").match
        self._headed = re.compile(rb"H" + line + rb"(\d+) (\d+)\r\n").match
        self._counts = re.compile(rb"H?MSG [^ ]+ \d+ " + reply + rb"\d+\.(\d+)\.\d+\.(\d+)").match
        self.consumer_sequence = 0
        """Consumer sequence of the last delivery decoded."""
        self.pending = 0
        """Messages still to come for the consumer, as of the last delivery decoded."""

    def decode(self, data: bytes, pos: int, into: Deliveries) -> tuple[int, int]:
        """Append the deliveries that stand in a row from `pos` on.

        Returns (end, need) as `split_frames` does; need is OTHER_FRAME when the frame at `end` is
        not a delivery of this consumer (it may be incomplete: let `split_frames` look at it).
        Raises ProtocolError for sizes that do not fit.
        """
        plain, headed = self._plain, self._headed
        subjects = into.subjects.append
        sequences = into.sequences.append
        times = into.times.append
        headers = into.headers.append
        bodies = into.data.append
        size = len(data)
        start = pos
        last = -1
        need = OTHER_FRAME
        while True:
            found = plain(data, pos)
            if found is not None:
                subject, sequence, time, total = found.groups()
                body = found.end()
                end = body + int(total)
                block = None
            else:
                found = headed(data, pos)
                if found is None:
                    break
                subject, sequence, time, head, total = found.groups()
                begin = found.end()
                body, end = begin + int(head), begin + int(total)
                if end < body:
                    raise ProtocolError(f"header longer than message in {_show(data[pos:begin])}")
                block = data[begin:body]
            if end + 2 > size:
                need = end + 2 - pos
                break
            if data[end : end + 2] != b"\r\n":
                raise ProtocolError(f"no CRLF after the payload of {_show(data[pos : pos + 80])}")
            headers(block)
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

"""The plain-Python kernel: bytes into frames, message objects, and deliveries into columns."""

from __future__ import annotations

import re
from array import array
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from jetspark.errors import NotJetStreamMessageError, ProtocolError
from jetspark.wire.control import OK, PING, PONG, ControlEvent, Err, Info

# -- the metadata in the reply subject of a delivery (ADR-15) -----------------------------------

ReplyFields: TypeAlias = tuple[str, str, int, int, int, int, int, str, str]

_NUMBERS_END, _TIMES_END = 1 << 64, 1 << 63
"""Upper bounds (exclusive) of numbers and times in the server's integer types."""


def reply_fields(reply: bytes | None) -> ReplyFields:
    """Stream, consumer, deliveries, stream sequence, consumer sequence, time, pending, domain,
    account hash.

    Reads both forms: 9 tokens, or 11 and more with domain and account hash before the stream.
    Raises NotJetStreamMessageError for anything else.
    """
    tokens, at = _tokens(reply)
    domain, account = tokens[2:4] if at > 2 else (b"", b"")
    try:
        return (
            tokens[at].decode(),
            tokens[at + 1].decode(),
            _number(tokens[at + 2]),
            _number(tokens[at + 3]),
            _number(tokens[at + 4]),
            _number(tokens[at + 5], _TIMES_END),
            _number(tokens[at + 6]),
            # "_" stands for no domain.
            "" if domain == b"_" else domain.decode(),
            account.decode(),
        )
    except UnicodeDecodeError:
        raise _not_jetstream() from None


def stream_sequence(reply: bytes | None) -> int:
    """Only the stream sequence, for loops over many messages.

    Raises NotJetStreamMessageError.
    """
    tokens, at = _tokens(reply)
    return _number(tokens[at + 3])


def stream_position(reply: bytes | None) -> tuple[int, int, int]:
    """The stream sequence, timestamp (nanoseconds) and pending messages, without decoding names.

    Raises NotJetStreamMessageError.
    """
    tokens, at = _tokens(reply)
    sequence, time, pending = tokens[at + 3], tokens[at + 5], tokens[at + 6]
    return _number(sequence), _number(time, _TIMES_END), _number(pending)


def _tokens(reply: bytes | None) -> tuple[list[bytes], int]:
    """The tokens, and the index of the stream's name."""
    if reply is not None and reply.startswith(b"$JS.ACK."):
        tokens = reply.split(b".")
        if len(tokens) == 9:
            return tokens, 2
        if len(tokens) >= 11:
            return tokens, 4
    raise _not_jetstream()


def _number(token: bytes, end: int = _NUMBERS_END) -> int:
    # int() also accepts signs, spaces and underscores.
    if token.isdigit() and len(token) <= 20 and (number := int(token)) < end:
        return number
    raise _not_jetstream()


def _not_jetstream() -> NotJetStreamMessageError:
    return NotJetStreamMessageError("The message was not delivered by a JetStream consumer.")


# -- message objects ---------------------------------------------------------------------------

M = TypeVar("M", bound="Delivered")


class MessageFrame(msgspec.Struct, frozen=True, gc=False):
    """One received message, undecoded: fields are parsed on access."""

    sid: int
    subject: bytes
    reply: bytes | None
    """The reply subject; None when there is none."""
    headers: bytes | None
    """The header block, from "NATS/1.0" to the blank line; None when there is none."""
    payload: bytes


class Delivered:
    """A frame and the client that received it: the base of all message classes.

    Subclasses add decoded fields and replies, but no constructor. Payload and stream sequence are
    here, because loops over many messages read them.
    """

    __slots__ = ("_client", "_frame")

    _client: Any
    _frame: MessageFrame

    def __init__(self, client: Any, frame: MessageFrame) -> None:
        self._client = client
        self._frame = frame

    @property
    def data(self) -> bytes:
        """The payload."""
        return self._frame.payload

    @property
    def seq(self) -> int:
        """Sequence in the stream. Raises NotJetStreamMessageError."""
        return stream_sequence(self._frame.reply)


def deliver(kind: type[M], client: Any, frames: list[MessageFrame]) -> list[M]:
    """One message of class `kind` for each frame."""
    return [kind(client, frame) for frame in frames]


# -- many publishes and their acks -------------------------------------------------------------


def numbered_publish(head: bytes, number: int, tail: bytes, payload: bytes) -> bytes:
    """PUB with a target that consists of `head`, the number, and `tail`."""
    return b"PUB %b%d%b %d\r\n%b\r\n" % (head, number, tail, len(payload), payload)


def numbered_acks(frames: list[MessageFrame], first: int, head: bytes, tail_at: int) -> list[int]:
    """The numbers of acks: the ends of their subjects, from `tail_at` on; 0 for no such number.

    From the frame `first` up to one whose payload is not `head`, a sequence, and a brace.
    """
    numbers = []
    for frame in islice(frames, first, None):
        ack, tail = frame.payload, frame.subject[tail_at:]
        digits = ack[len(head) : -1] if ack.startswith(head) and ack.endswith(b"}") else b""
        if not digits.isdigit() or len(digits) > _LONGEST_NUMBER or digits.startswith(b"0"):
            break
        is_number = tail.isascii() and tail.isdigit() and len(tail) <= _LONGEST_NUMBER
        numbers.append(int(tail) if is_number else 0)
    return numbers


# -- bytes into frames -------------------------------------------------------------------------

MAX_CONTROL_LINE = 1 << 20
"""Longest control line accepted, in bytes. INFO has lists of URLs and may be long."""

MAX_MESSAGE = 128 << 20
"""Largest message accepted, in bytes of headers and payload. Servers stop at 64 MiB."""

FrameRun: TypeAlias = tuple[int, list[MessageFrame], int]
"""(sid, messages, payload bytes): consecutive messages of one subscription.

Either all have a reply subject or none. The subscription is looked up once for a run.
"""
Event: TypeAlias = FrameRun | ControlEvent

_LONGEST_NUMBER = 18  # digits


def split_frames(
    data: bytes, out: list[Event], pos: int = 0, *, one: bool = False
) -> tuple[int, int]:
    """Append the complete frames of `data` from `pos` on to `out`; with `one` only the first.

    Consecutive messages of one subscription are appended as one run, if either all or none have a
    reply subject. Returns (end, need): the position of the first byte not consumed, and the total
    size of the incomplete frame that begins there (0 while its control line is incomplete). Raises
    ProtocolError; the frames before the invalid one are in `out`.
    """
    find = data.find
    size = len(data)
    run_sid, run_replied, payload = -1, False, 0
    frames: list[MessageFrame] = []
    try:
        while True:
            eol = find(b"\r\n", pos)
            if eol < 0:
                if size - pos > MAX_CONTROL_LINE:
                    raise ProtocolError(f"a control line of over {MAX_CONTROL_LINE} bytes")
                return pos, 0
            parts = data[pos:eol].split()
            count = len(parts)
            op = parts[0] if parts else b""
            block = None
            if op == b"MSG" and 4 <= count <= 5:
                body = eol + 2
                end = body + _size(parts[-1], data, pos, eol)
                replied = count == 5
            elif op == b"HMSG" and 5 <= count <= 6:
                head = eol + 2
                body = head + _size(parts[-2], data, pos, eol)
                end = head + _size(parts[-1], data, pos, eol)
                if end < body:
                    raise ProtocolError(f"header longer than message in {_show(data[pos:eol])}")
                replied = count == 6
                block = data[head:body]
            else:
                if frames:
                    out.append((run_sid, frames, payload))
                    frames = []
                out.append(control_event(data[pos:eol]))
                pos = eol + 2
                if one:
                    return pos, 0
                continue
            if not parts[2].isdigit() or len(parts[2]) > _LONGEST_NUMBER:
                raise _bad_line(data, pos, eol)
            sid = int(parts[2])
            if end + 2 > size:
                return pos, end + 2 - pos
            if data[end : end + 2] != b"\r\n":
                raise ProtocolError(f"no CRLF after the payload of {_show(data[pos:eol])}")
            if sid != run_sid or replied is not run_replied or not frames:
                if frames:
                    out.append((run_sid, frames, payload))
                frames, payload = [], 0
                run_sid, run_replied = sid, replied
            reply = parts[3] if replied else None
            frames.append(MessageFrame(sid, parts[1], reply, block, data[body:end]))
            payload += end - body
            pos = end + 2
            if one:
                return pos, 0
    finally:
        if frames:
            out.append((run_sid, frames, payload))


def _size(text: bytes, data: bytes, pos: int, eol: int) -> int:
    # int() also accepts signs, spaces and underscores.
    if not text.isdigit() or len(text) > 4000:
        raise _bad_line(data, pos, eol)
    value = int(text)
    if value > MAX_MESSAGE:
        raise ProtocolError(f"a message of {value} bytes; at most {MAX_MESSAGE} are accepted")
    return value


def _bad_line(data: bytes, pos: int, eol: int) -> ProtocolError:
    return ProtocolError(f"bad control line {_show(data[pos:eol])}")


def control_event(line: bytes) -> ControlEvent:
    """Parse a control line other than MSG and HMSG. Raises ProtocolError."""
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


def refuse(data: bytes) -> None:
    """Raise the ProtocolError for the invalid frame at the start of `data`."""
    split_frames(data, [], one=True)


def _show(line: bytes) -> str:
    text = line[:80].decode("utf-8", "backslashreplace")
    return repr(text + "…" if len(line) > 80 else text)


# -- deliveries into columns -------------------------------------------------------------------

Memory: TypeAlias = "bytes | array[int] | memoryview"
"""Memory that the kernel reads through the buffer protocol; the C kernel has a type of its own."""


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
        """Bytes of all frames in these columns: an upper bound of the payload bytes."""

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
        """Append a row that is not a delivery; `ns`: nanoseconds since the epoch."""
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
    # One call of msgspec's decoder for a column is three times faster than int() for each number.
    try:
        return msgspec.json.decode(b"[" + b",".join(column) + b"]", type=list[int])
    except msgspec.DecodeError:  # leading zeros, which no server writes
        return list(map(int, column))


def _offsets(column: list[bytes]) -> array[int]:
    return array("i", accumulate(map(len, column), initial=0))


class HeaderPairs(NamedTuple):
    """The headers of many messages as an Arrow list of (key, value) pairs; see `Columns`."""

    pairs: int
    list_offsets: Memory
    """The index of each message's first pair, then the end of the last message's pairs."""
    key_offsets: Memory
    keys: Memory
    value_offsets: Memory
    values: Memory


def header_pairs(offsets: Memory, headers: Memory) -> HeaderPairs:
    """The names and values in a column of header blocks, in order; malformed lines are skipped."""
    edges = memoryview(offsets).cast("B").cast("i")
    blocks = bytes(headers)
    keys: list[bytes] = []
    values: list[bytes] = []
    lists = array("i", [0])
    for begin, end in pairwise(edges):
        block = blocks[begin:end]
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
            rb"[0-8]\d{18}",  # times; the other part matches numbers of 19 digits up to _MOST
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
        # Each group of a pattern costs time, so these have only the groups that every message
        # needs; consumer sequence and pending are read from the last message alone.
        self._plain = re.compile(line + rb"(\d{1,9})\r\n").match
        self._headed = re.compile(rb"H" + line + rb"(\d{1,9}) (\d{1,9})\r\n").match
        self._counts = re.compile(rb"H?MSG [^ ]+ \d+ " + reply + rb"\d+\.(\d+)\.\d+\.(\d+)").match
        self.consumer_sequence = 0
        """Consumer sequence of the last delivery decoded."""
        self.pending = 0
        """Messages not yet delivered by the consumer, as of the last delivery decoded."""

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
            match = plain(data, pos)
            if match is not None:
                subject, sequence, time, total = match.groups()
                begin = body = match.end()
            else:
                match = headed(data, pos)
                if match is None:
                    break
                subject, sequence, time, head, total = match.groups()
                begin = match.end()
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

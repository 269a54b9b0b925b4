"""Compression, and the frames or headers that name the schema of a payload.

| framing | in front of the payload | in headers |
|---|---|---|
| confluent | a zero byte, the id in 4 bytes; Protobuf: then the path of its message | |
| apicurio | a zero byte, the id in 8 bytes; Protobuf: then a `Ref` with the name of its message | |
| azure | | Content-Type: `avro/binary+<id>` |
| nats | | Nats-Schema, Nats-Schema-Version |

Compression is that of the option, or of the header Content-Encoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError, named, safe_repr
from jetspark.payloads.decoder import PAYLOAD, SchemaKey, Unframed, shorten_reason
from jetspark.payloads.encoder import Pairs
from jetspark.payloads.schema import PayloadSchema

FRAMINGS: Final = ("none", "confluent", "apicurio", "azure", "nats")
COMPRESSIONS: Final = ("none", "gzip", "zstd", "snappy")
MAX_UNPACKED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a decompressed payload; a message without compression has no more."""
MAX_PART_BYTES: Final = 16 * 1024 * 1024
"""Bytes of payloads that are decompressed together."""
_HEAD_BYTES: Final = {"confluent": 5, "apicurio": 9}
"""Bytes of the zero and the id."""
_SCHEMA_HEADERS: Final = {"azure": "content-type", "nats": "nats-schema"}
"""The header that names a schema, in lower case."""
_ENCODING: Final = "content-encoding"
_AZURE_CONTENT_TYPE = re.compile(r"[\w.+-]+/[\w.-]+\+([0-9a-fA-F-]{32,36})")

_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_MAX_NAME_CHARS: Final = 255
"""Characters of a schema's name in a header: registries have no longer ones, and servers end the
connection of a request with a longer subject."""
_MAX_PATH_LENGTH: Final = 100
"""Protobuf's messages within each other, on the path to one: more than protoc takes."""


class BadFrame(Exception):
    """Says why a payload does not have the frame, or the compression, that it should have."""


@dataclass(frozen=True)
class Decompressed:
    """Some rows of a batch, and their payloads without compression."""

    rows: pa.RecordBatch
    """The rows as they came."""
    payloads: pa.BinaryArray | None = None
    """None: none of them was compressed."""
    reasons: pa.StringArray | None = None
    """Why a payload cannot be decompressed; null for one that was. None as for `payloads`."""

    def slice(self, start: int, count: int) -> Decompressed:
        """Return `count` of the rows from `start` on, with their payloads."""
        rows = self.rows.slice(start, count)
        if self.payloads is None or self.reasons is None:
            return Decompressed(rows)
        payloads, reasons = self.payloads.slice(start, count), self.reasons.slice(start, count)
        return Decompressed(rows, payloads, reasons)


@dataclass(frozen=True)
class Framing:
    """What is around payloads: their compression, and the frame or headers that name a schema."""

    name: str = "none"
    compression: str = "header"
    """One of COMPRESSIONS; header: as the header Content-Encoding says."""
    with_message: bool = False
    """Whether frames say which message of their schema they have (Protobuf)."""
    may_be_framed: bool = True
    """Whether, without a named framing, payloads may have a frame that somebody forgot to name."""

    def checked(self) -> Framing:
        """Return the framing itself. Raises ConfigError for an unknown framing or compression."""
        for name, value, choices in (
            ("framing", self.name, FRAMINGS),
            ("compression", self.compression, ("header", *COMPRESSIONS)),
        ):
            if value not in choices:
                raise ConfigError(f"{name} must be {', '.join(choices)}, not {value!r}.")
        return self

    @property
    def has_id(self) -> bool:
        """Whether schemas are named by numbers in front of payloads."""
        return self.name in _HEAD_BYTES

    @property
    def needs_headers(self) -> bool:
        """Whether schemas are named by headers."""
        return self.name in _SCHEMA_HEADERS

    def envelope(
        self, schema: PayloadSchema, name: str | None, path: Sequence[int] = ()
    ) -> tuple[bytes, Pairs]:
        """Return the bytes to write in front of each payload, and the headers of its message.

        `name`: the schema's in its registry; `path`: that of Protobuf's message in the schema.
        Raises ConfigError for a framing that needs a name or an id which the schema does not have.
        """
        headers = [("Content-Encoding", self.compression)] * (self.compression != "none")
        if self.name == "none":
            return b"", headers
        if name is None or (self.name in _HEAD_BYTES and schema.number is None):
            problem = f"The framing {self.name} names the schema"
            raise ConfigError(f"{problem}: give the registry that has it, and its name there.")
        if self.name == "nats":
            version = ("Nats-Schema-Version", str(schema.version))
            return b"", [*headers, ("Nats-Schema", name), version]
        if self.name == "azure":
            if schema.format != "avro" or not _AZURE_CONTENT_TYPE.fullmatch(
                content := f"avro/binary+{name}"
            ):
                raise ConfigError("The framing azure is for Avro, and a schema's name is an id.")
            return b"", [*headers, ("Content-Type", content)]
        head = (schema.number or 0).to_bytes(_HEAD_BYTES[self.name], "big")
        if schema.format == "protobuf" and self.name == "confluent":
            # The path of the first message is empty; numbers are in zigzag.
            path = () if path == (0,) else path
            head += b"".join(varint(number << 1) for number in (len(path), *path))
        elif schema.format == "protobuf":
            # Apicurio's `Ref`: the name as field 1.
            ref = b"\n" + varint(len(schema.name)) + schema.name.encode()
            head += varint(len(ref)) + ref
        return head, headers

    def _is_uncompressed(self, batch: pa.RecordBatch) -> bool:
        """Return whether no payload of a batch can be compressed, as is known without a look at
        each row."""
        if self.compression == "header":
            return not _has_headers(batch)
        return self.compression == "none"

    def _encodings(self, batch: pa.RecordBatch) -> Sequence[str | None]:
        """Return the name of each payload's compression: of the option, or of the header
        Content-Encoding; None if the message lacks that."""
        if self.compression == "header":
            return _header_values(batch, _ENCODING)
        return [self.compression] * batch.num_rows

    def decompress(self, batch: pa.RecordBatch) -> Iterator[Decompressed]:
        """Yield the rows of a batch, with their payloads decompressed, in parts that have at most
        `MAX_PART_BYTES` of them, or are one row."""
        encodings = () if self._is_uncompressed(batch) else self._encodings(batch)
        if set(encodings) <= {None, "none", "identity"}:
            yield Decompressed(batch)
            return
        column = batch.column(PAYLOAD)
        payloads: list[bytes] = []
        reasons: list[str | None] = []
        start = size = 0
        for at, encoding in enumerate(encodings):
            payload, reason = column[at].as_py(), None
            try:
                payload = decompress_payload(payload, encoding or "none")
            except BadFrame as error:
                reason = shorten_reason(str(error))
            size += len(payload)
            if size > MAX_PART_BYTES and at > start:  # this payload begins the next part
                yield _to_decompressed(batch.slice(start, at - start), payloads, reasons)
                payloads, reasons, start, size = [], [], at, len(payload)
            payloads.append(payload)
            reasons.append(reason)
        yield _to_decompressed(batch.slice(start), payloads, reasons)

    @property
    def without_compression(self) -> Framing:
        """The framing of payloads that are already decompressed."""
        return replace(self, compression="none")

    def unframe(self, batch: pa.RecordBatch) -> Unframed:
        """Return the payloads of a batch, decompressed and without frames, each with the key that
        names its schema, or the reason why the row has no payload."""
        parts = list(self.decompress(batch))
        payloads = batch.column(PAYLOAD)
        reasons: dict[int, str] = {}  # by row
        if parts[0].payloads is not None:
            payloads = pa.concat_arrays([part.payloads for part in parts])
            texts = chain.from_iterable(part.reasons.to_pylist() for part in parts if part.reasons)
            reasons = {at: text for at, text in enumerate(texts) if text is not None}
        if self.has_id:
            unframed = self._strip_frames(payloads, reasons)
        elif self.needs_headers:
            unframed = self._read_schema_headers(payloads, batch, reasons)
        else:
            # All rows have the only key, which names no schema.
            key_of_row = pa.repeat(pa.scalar(0, pa.int8()), len(payloads))
            unframed = Unframed(payloads, [SchemaKey()], key_of_row)
        if not reasons:
            return unframed
        texts_of = {at: shorten_reason(reason) for at, reason in reasons.items()}
        reason_texts = pa.array(map(texts_of.get, range(len(payloads))), pa.string())
        return replace(unframed, reasons=reason_texts)

    def hint(self, payload: bytes) -> str:
        """Return a sentence about a frame that an undecodable payload seems to have; "" if it seems
        to have none, or the framing is known."""
        return unnamed_frame_hint(payload) if self.may_be_framed and self.name == "none" else ""

    def strip(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the batch with its payloads decompressed and without frames, in parts of bounded
        size.

        The header of an undone compression is removed. A payload that cannot be unpacked stays as
        it is, with its headers.
        """
        at, field = batch.schema.get_field_index(PAYLOAD), batch.schema.field(PAYLOAD)
        for part in self.decompress(batch):
            came = part.rows.column(at)
            payloads = came if part.payloads is None else part.payloads
            rows = part.rows.set_column(at, field, payloads)
            unframed = self.without_compression.unframe(rows)
            bad = pa.repeat(False, len(came))
            for reasons in (part.reasons, unframed.reasons):
                bad = bad if reasons is None else pc.or_(bad, pc.is_valid(reasons))
            rows = rows.set_column(at, field, pc.if_else(bad, came, unframed.payloads))
            yield rows if part.payloads is None else self._remove_undone_encodings(rows, bad)

    def _remove_undone_encodings(
        self, rows: pa.RecordBatch, bad: pa.BooleanArray
    ) -> pa.RecordBatch:
        """Return rows without the headers that name compressions which are undone. In the rows
        where `bad` is true the payload is still compressed, and headers stay."""
        at = rows.schema.get_field_index("headers")
        if at < 0:
            return rows
        undone = [
            None if is_bad or encoding is None else encoding.strip().casefold()
            for is_bad, encoding in zip(bad.to_pylist(), self._encodings(rows), strict=True)
        ]
        headers = rows.column(at).to_pylist()
        for row, (pairs, encoding) in enumerate(zip(headers, undone, strict=True)):
            if pairs and encoding not in (None, "none", "identity"):
                headers[row] = _remove_last_encoding(pairs, encoding)
        field = rows.schema.field(at)
        return rows.set_column(at, field, pa.array(headers, field.type))

    def payload_of(self, batch: pa.RecordBatch) -> bytes:
        """Return the payload of a batch with one row, decompressed and without its frame. Raises
        BadFrame."""
        unframed = self.unframe(batch)
        if unframed.reasons is not None:
            raise BadFrame(unframed.reasons[0].as_py())
        payload: bytes = unframed.payloads[0].as_py()
        return payload

    def _strip_frames(self, payloads: pa.BinaryArray, reasons: dict[int, str]) -> Unframed:
        """Return payloads without the frames in front of them, with the schemas that these name.
        `reasons`: why a row has no payload, by row; rows without a valid frame are added."""
        size = _HEAD_BYTES[self.name] + self.with_message  # a byte stands for the first message
        begins = pc.binary_slice(payloads, 0, size).dictionary_encode()
        try:  # most batches have few frames, of the same size
            frames = [self.parse_frame(begin) for begin in begins.dictionary.to_pylist()]
            if all(length == size for _, length in frames):
                keys = [key for key, _ in frames]
                return Unframed(
                    pc.binary_replace_slice(payloads, 0, size, b""), keys, begins.indices
                )
        except BadFrame:
            pass
        key_numbers: dict[SchemaKey, int] = {}
        bodies, key_of_rows = payloads.to_pylist(), []
        for at, payload in enumerate(bodies):
            key = SchemaKey()
            if at not in reasons:
                try:
                    key, length = self.parse_frame(payload)
                    bodies[at] = payload[length:]
                except BadFrame as error:
                    reasons[at] = str(error)
            key_of_rows.append(key_numbers.setdefault(key, len(key_numbers)))
        keys, key_of_row = list(key_numbers), pa.array(key_of_rows, pa.int32())
        return Unframed(pa.array(bodies, pa.binary()), keys, key_of_row)

    def parse_frame(self, payload: bytes) -> tuple[SchemaKey, int]:
        """Return the schema that the frame in front of a payload names, and the length of the
        frame. Raises BadFrame."""
        size = _HEAD_BYTES[self.name]
        if len(payload) < size or payload[0]:
            raise BadFrame(
                f"The payload does not begin with a zero byte and {size - 1} bytes of a schema's "
                f"id, as with the framing {self.name}."
            )
        number = int.from_bytes(payload[1:size], "big")
        if not self.with_message:
            return SchemaKey(number), size
        message: tuple[int, ...] | str
        try:
            if self.name == "confluent":
                message, size = _parse_message_path(payload, size)
            else:
                message, size = _parse_message_ref(payload, size)
        except (IndexError, UnicodeDecodeError):
            raise BadFrame("The payload ends before its frame says which message it is.") from None
        return SchemaKey(number, message=message), size

    def _read_schema_headers(
        self, payloads: pa.BinaryArray, batch: pa.RecordBatch, reasons: dict[int, str]
    ) -> Unframed:
        """Return payloads with the schemas that their messages' headers name. `reasons`: why a row
        has no payload, by row; rows without valid headers are added."""
        key_numbers: dict[SchemaKey, int] = {}
        keys: dict[tuple[str | None, str | None], SchemaKey | str] = {}  # a str: why there is none
        names = _header_values(batch, _SCHEMA_HEADERS[self.name])
        versions = _header_values(batch, "nats-schema-version")
        key_of_rows = []
        for at, pair in enumerate(zip(names, versions, strict=True)):
            if (key := keys.get(pair)) is None:
                try:
                    key = self._parse_schema_headers(*pair)
                except BadFrame as error:
                    key = str(error)
                keys[pair] = key
            if isinstance(key, str):
                reasons.setdefault(at, key)
                key = SchemaKey()
            key_of_rows.append(key_numbers.setdefault(key, len(key_numbers)))
        return Unframed(payloads, list(key_numbers), pa.array(key_of_rows, pa.int32()))

    def _parse_schema_headers(self, name: str | None, version: str | None) -> SchemaKey:
        """Return the schema that the headers of a message name. `name`, `version`: their values,
        None if the message lacks them. Raises BadFrame."""
        if name is not None and self.name == "azure":
            match = _AZURE_CONTENT_TYPE.fullmatch(name)
            name = None if match is None else match[1]
        if name is None:  # the schema of the query
            return SchemaKey()
        if len(name) > _MAX_NAME_CHARS:
            raise BadFrame(f"The payload names a schema with {len(name):,} characters.")
        if self.name == "azure" or version is None:
            return SchemaKey(name=name)
        if not _VERSION.fullmatch(version):
            raise BadFrame(
                f"The payload's Nats-Schema-Version is {safe_repr(version)}, no version."
            )
        return SchemaKey(name=name, version=int(version))


def _to_decompressed(
    rows: pa.RecordBatch, payloads: list[bytes], reasons: list[str | None]
) -> Decompressed:
    """Return rows with their decompressed payloads."""
    return Decompressed(rows, pa.array(payloads, pa.binary()), pa.array(reasons, pa.string()))


def unnamed_frame_hint(payload: bytes) -> str:
    """Return a sentence for an undecodable payload that looks as if it had a frame, or ""."""
    if payload[:1] != b"\0" or len(payload) < _HEAD_BYTES["confluent"]:
        return ""
    return (
        " It begins with a zero byte, as frames with a schema's id do: if it has one, name it in "
        f"{named('framing')}."
    )


def varint(number: int) -> bytes:
    """Encode a number of at least 0 as Protobuf does, 7 bits in a byte."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def read_varint(payload: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Return the varint (a number in 7 bits of each byte) that begins at an index of a payload, and
    the index behind it. Raises IndexError for one without an end, and BadFrame for one of more than
    `bits` bits."""
    number = shift = 0
    while True:
        number |= (payload[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not payload[at - 1] & 0x80:
            return number, at
        if shift > bits // 7 * 7:
            raise BadFrame(f"The frame of the payload has a number of more than {bits} bits.")


def _parse_message_path(payload: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return the path to a message in a Protobuf schema, which Confluent's frame has at an index,
    and the index behind it. The frame has the path's length, then its numbers, all in zigzag."""
    length, at = read_varint(payload, at)
    if length >> 1 > _MAX_PATH_LENGTH:
        raise BadFrame("The frame of the payload has the path of no message.")
    path = []
    for _ in range(length >> 1):
        number, at = read_varint(payload, at)
        path.append(number >> 1)
    return tuple(path) or (0,), at


def _parse_message_ref(payload: bytes, at: int) -> tuple[str, int]:
    """Return the name of a Protobuf message, which Apicurio's frame has at an index, and the index
    behind it. The frame has a length, then a `Ref`: a Protobuf message with the name in field 1."""
    length, at = read_varint(payload, at)
    end = at + length
    name = ""
    while at < end:
        tag, at = read_varint(payload, at)
        size, at = read_varint(payload, at)
        if tag == 0x0A:  # field 1, a text
            name = payload[at : at + size].decode()
        at += size
    if end > len(payload):
        raise IndexError
    return name, end


def _remove_last_encoding(
    pairs: list[dict[str, str]], encoding: str | None
) -> list[dict[str, str]] | None:
    """Return headers without the last Content-Encoding, if it names this compression: the last one
    is the outermost, which was undone. None: no header is left."""
    for at in reversed(range(len(pairs))):
        if pairs[at]["key"].casefold() == _ENCODING:
            is_same = pairs[at]["value"].strip().casefold() == encoding
            return ([*pairs[:at], *pairs[at + 1 :]] or None) if is_same else pairs
    return pairs


def _has_headers(batch: pa.RecordBatch) -> bool:
    """Return whether a message of a batch has headers."""
    at = batch.schema.get_field_index("headers")
    return bool(at >= 0 and batch.column(at).null_count < batch.num_rows)


def _header_values(batch: pa.RecordBatch, name: str) -> list[str | None]:
    """Return the value of a header in each row, the last one of several. `name`: in lower case."""
    header_values: list[str | None] = [None] * batch.num_rows
    if not _has_headers(batch):
        return header_values
    lists = batch.column("headers")
    pairs = lists.flatten()
    has_name = pc.equal(pc.utf8_lower(pairs.field("key")), name)
    rows = pc.list_parent_indices(lists).filter(has_name).to_pylist()
    for row, value in zip(rows, pairs.field("value").filter(has_name).to_pylist(), strict=True):
        header_values[row] = value
    return header_values


def decompress_payload(payload: bytes, compression: str) -> bytes:
    """Return a payload without its compression. Raises BadFrame for one that is not compressed so,
    or would have more than `MAX_UNPACKED_BYTES`."""
    match compression.strip().casefold():
        case "none" | "identity":
            return payload
        case "gzip" | "zstd" as name:
            unpacked = _decompress_stream(payload, name)
        case "snappy":
            unpacked = _decompress_snappy(payload)
        case _:
            raise BadFrame(
                f"The payload is compressed with {compression}; jetspark knows gzip, zstd and "
                "snappy."
            )
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise BadFrame(_TOO_LARGE)
    return unpacked


_TOO_LARGE = f"The payload has more than {MAX_UNPACKED_BYTES >> 20} MiB without its compression."


def _decompress_stream(payload: bytes, name: str) -> bytes:
    """Decompress gzip or zstd, at most one byte more than `MAX_UNPACKED_BYTES`, by which the caller
    sees that it is too much. Raises BadFrame."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(payload), name) as stream:
            content: bytes = stream.read(MAX_UNPACKED_BYTES + 1)
    except (OSError, pa.ArrowInvalid) as error:
        raise BadFrame(f"The payload is not compressed with {name}: {error}.") from None
    return content


def _decompress_snappy(payload: bytes) -> bytes:
    """Decompress a block of Snappy, which begins with the length of its content. Raises
    BadFrame."""
    try:
        length, _ = read_varint(payload, 0)
        if length > MAX_UNPACKED_BYTES:
            raise BadFrame(_TOO_LARGE)
        unpacked: bytes = pa.decompress(payload, length, codec="snappy", asbytes=True)
    except (OSError, IndexError, pa.ArrowInvalid) as error:
        raise BadFrame(f"The payload is not compressed with snappy: {error}.") from None
    return unpacked

"""CloudEvents 1.0: attributes and data as columns, in the structured and in the binary mode.

| column | |
|---|---|
| `ce_id`, `ce_source`, `ce_type`, and each other attribute but the time | as text |
| `ce_time` | as TIMESTAMP |
| `ce_extensions` | further attributes, as MAP<STRING, STRING> |
| `ce_data` | the data, as BINARY; with a schema of the data its fields are in its place |

A message with a header `ce-specversion` is an event in the binary mode: its other attributes are in
headers `ce-…`, and its payload is the data. Any other one is an event in JSON.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from jetspark.codecs.connect import decode_json, in_field, reader
from jetspark.codecs.decoder import PAYLOAD, REASON, Bare, PayloadFields, with_fields
from jetspark.codecs.encoder import Encoder, in_places, misfit
from jetspark.errors import ConfigError

_NEEDED: Final = ("id", "source", "specversion", "type")
_TEXTS: Final = (*_NEEDED, "subject", "datacontenttype", "dataschema")
_TIME: Final = pa.timestamp("us", tz="UTC")
ATTRIBUTES: Final = pa.schema(
    [
        *(pa.field(f"ce_{name}", pa.string()) for name in _TEXTS),
        pa.field("ce_time", _TIME),
        pa.field("ce_extensions", pa.map_(pa.string(), pa.string())),
    ]
)
DATA: Final = pa.field("ce_data", pa.binary())
_EVENT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_read_time = reader(_TIME, None)


class JsonObjects:
    """Decodes objects of JSON row by row: the data of events. It has the values that a column's
    type says, and is strict about them, as for Debezium (`connect`)."""

    def __init__(self, fields: pa.Schema) -> None:
        self.fields = fields
        self._readers = [(one.name, reader(one.type, None)) for one in fields]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """As `PayloadFields.of`, of payloads alone."""
        payloads = batch.column(PAYLOAD).to_pylist()
        columns: list[list[Any]] = [[] for _ in self._readers]
        reasons = []
        for payload in payloads:
            try:
                row, reason = self._row(payload), None
            except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                row, reason = [None] * len(columns), f"{error}."
            reasons.append(reason)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
        arrays = [
            pa.array(one, field.type) for one, field in zip(columns, self.fields, strict=True)
        ]
        names = [PAYLOAD, *self.fields.names, REASON]
        return pa.record_batch(
            [batch.column(PAYLOAD), *arrays, pa.array(reasons, pa.string())], names
        )

    def _row(self, payload: bytes) -> list[Any]:
        found = decode_json(payload)
        if not isinstance(found, dict):
            raise ValueError("The data is not an object")
        return [in_field(name, read, found.get(name)) for name, read in self._readers]


class JsonEncoder:
    """Encodes rows as objects of JSON, without the fields that are null, as Spark does."""

    def __init__(self, fields: pa.Schema | None) -> None:
        self.fields = fields

    def of(self, rows: pa.RecordBatch) -> list[bytes]:
        """See Encoder."""
        kind = pa.struct(list(rows.schema))
        return [_encode(_json(one, kind, "")) for one in rows.to_pylist()]


_encode = msgspec.json.Encoder(decimal_format="number").encode


def _json(value: Any, kind: pa.DataType, name: str) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        given = ((one, value[one.name], f"{name}.{one.name}".strip(".")) for one in kind)
        return {f.name: _json(one, f.type, where) for f, one, where in given if one is not None}
    if pa.types.is_map(kind):
        return {key: _json(one, kind.item_type, f"{name}[{key!r}]") for key, one in value}
    if pa.types.is_list(kind):
        return [_json(one, kind.value_type, f"{name}[{at}]") for at, one in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise misfit(name, value, "a number in JSON")
    return value


class CloudEventEncoder:
    """Encodes rows as events in JSON: attributes, and fields of the data, or `ce_data`."""

    def __init__(self, data: Encoder | None, format_: str) -> None:
        """`data`: encodes the fields of the data, in this format."""
        self._data, self._format = data, format_
        more = None if data is None else data.fields
        self.fields: pa.Schema | None = pa.schema([*ATTRIBUTES, *(more or [DATA])])

    def of(self, rows: pa.RecordBatch) -> list[bytes]:
        """See Encoder."""
        names = [one for one in rows.schema.names if one not in ATTRIBUTES.names]
        data: Sequence[bytes | None] = [None] * len(rows)
        if names and self._data is not None:
            data = self._data.of(rows.select(names))
        elif names:
            data = rows.column(DATA.name).to_pylist()
        attributes = rows.select([one for one in rows.schema.names if one not in names])
        events = attributes.to_pylist(maps_as_pydicts="strict")
        return [self._event(row, one) for row, one in zip(events, data, strict=True)]

    def _event(self, row: Mapping[str, Any], data: bytes | None) -> bytes:
        event = {name[3:]: one for name, one in row.items() if one not in (None, "")}
        event = {"specversion": "1.0", **event.pop("extensions", {}), **event}
        for name in _NEEDED:
            if not event.get(name):
                raise ConfigError(f"Field ce_{name} is null, and each CloudEvent has one.")
        if bad := next((one for one in event if not _ATTRIBUTE.fullmatch(one)), None):
            raise ConfigError(f"{bad!r} is no attribute: its name has letters and digits only.")
        if self._data is not None and data is not None:
            event.setdefault("datacontenttype", f"application/{self._format}")
            if self._format == "json":
                return _encode(event | {"data": msgspec.Raw(data)})
        return _encode(event if data is None else event | {"data_base64": data})


_ATTRIBUTE: Final = re.compile("(?!data$)[a-z0-9]+")


class CloudEventFields:
    """Decodes events into columns, as `PayloadFields`."""

    def __init__(
        self,
        unpack: Callable[[pa.RecordBatch], Bare],
        data: PayloadFields | JsonObjects | None = None,
        takes: str = "",
    ) -> None:
        """`data`: decodes the data of events whose content type has the word `takes` in it, or,
        of JSON, that have none; None: it stays as it is."""
        self._unpack, self._data, self._takes = unpack, data, takes
        self.fields = pa.schema([*ATTRIBUTES, *([DATA] if data is None else data.fields)])

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""
        return with_fields(columns, self.fields)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns; see `PayloadFields.of`."""
        bare = self._unpack(batch)
        rows = batch.num_rows
        reasons: list[str | None] = [None] * rows
        if bare.reasons is not None:
            reasons = bare.reasons.to_pylist()
        events: list[dict[str, Any]] = [{}] * rows
        at = batch.schema.get_field_index("headers")
        headers = [None] * rows if at < 0 else batch.column(at).to_pylist()
        for row, payload in enumerate(bare.payloads.to_pylist()):
            if reasons[row] is None:
                try:
                    events[row] = self._event(payload, headers[row])
                except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                    reasons[row] = f"The payload is no CloudEvent: {error}."
        data = pa.array([one.get("data") for one in events], pa.binary())
        columns, why = self._decoded(data)
        for row, reason in enumerate(why.to_pylist()):
            if reason is not None:
                reasons[row], events[row] = reason, {}
        said = pa.array(reasons, pa.string())
        found = [pa.array([one.get(f.name) for one in events], f.type) for f in ATTRIBUTES]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *found, *columns, said], schema=self.schema(batch.schema)
        )

    def _event(self, payload: bytes, headers: Sequence[Mapping[str, str]] | None) -> dict[str, Any]:
        """The columns of an event, and its data. Raises ValueError."""
        found = {one["key"].casefold(): one["value"] for one in headers or ()}
        content = found.get("content-type")
        is_event = (content or "").casefold().startswith("application/cloudevents")
        attributes: dict[str, Any]
        data: bytes | None
        if "ce-specversion" in found and not is_event:
            attributes = {
                name.removeprefix("ce-"): unquote(value)
                for name, value in found.items()
                if name.startswith("ce-")
            }
            attributes["datacontenttype"], data = content, payload or None
        else:
            attributes, data = _structured(payload)
        for name in _NEEDED:
            if not attributes.get(name):
                raise ValueError(f"it lacks {name}")
        content = attributes.get("datacontenttype")
        fits = self._takes in content if content else self._takes == "json"
        if data is not None and self._data is not None and not fits:
            raise ValueError(f"its data is {content}, not {self._takes}")
        event = {f"ce_{name}": attributes.pop(name, None) for name in _TEXTS}
        event["ce_time"] = _read_time(attributes.pop("time", None))
        event["ce_extensions"] = list(attributes.items())
        return event | {"data": data}

    def _decoded(self, data: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """The columns of the data, and why some of it does not decode."""
        if self._data is None:
            return [data], pa.nulls(len(data), pa.string())
        there = data.is_valid()
        found = self._data.of(pa.record_batch([data.filter(there)], [PAYLOAD]))
        columns = [in_places(there, found.column(name)) for name in self._data.fields.names]
        return columns, in_places(there, found.column(REASON))


def _structured(payload: bytes) -> tuple[dict[str, Any], bytes | None]:
    """The attributes of an event in JSON, and its data."""
    found = _EVENT.decode(payload)
    raw, encoded = found.pop("data", None), found.pop("data_base64", None)
    attributes = {name: text_of_value(msgspec.json.decode(one)) for name, one in found.items()}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    if encoded is not None:
        return attributes, base64.b64decode(msgspec.json.decode(encoded, type=str), validate=True)
    if raw is None or bytes(raw) == b"null":
        return attributes, None
    content = attributes.get("datacontenttype")
    if content is None or "json" in content:
        return attributes, bytes(raw)
    value = msgspec.json.decode(raw)
    return attributes, value.encode() if isinstance(value, str) else bytes(raw)


def text_of_value(value: Any) -> str | None:
    """A value of JSON as it is in a column of texts: a text itself, anything else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)

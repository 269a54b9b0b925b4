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
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError, safe_repr
from jetspark.payloads.decoder import (
    PAYLOAD,
    REASON,
    PayloadDecoder,
    Unframed,
    reason_of,
    shorten_reason,
    with_fields,
)
from jetspark.payloads.encoder import Encoder, misfit_error, scatter
from jetspark.payloads.json_columns import build_column
from jetspark.payloads.json_decoder import JsonDecoder
from jetspark.payloads.json_objects import parse_object

_REQUIRED: Final = ("id", "source", "specversion", "type")
_TEXTS: Final = (*_REQUIRED, "subject", "datacontenttype", "dataschema")
_TIME: Final = pa.timestamp("us", tz="UTC")
ATTRIBUTES: Final = pa.schema(
    [
        *(pa.field(f"ce_{name}", pa.string()) for name in _TEXTS),
        pa.field("ce_time", _TIME),
        pa.field("ce_extensions", pa.map_(pa.string(), pa.string())),
    ]
)
DATA: Final = pa.field("ce_data", pa.binary())
_PARSE_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NO_EVENT: Final = "The payload is no CloudEvent: "
_VERSION: Final = re.compile(r"1(\.\d+)?")


def _reason_of(error: BaseException) -> str:
    """Return the sentence that says why a payload is no CloudEvent, from the exception that parsing
    it has raised."""
    if isinstance(error, ValueError | msgspec.MsgspecError):
        return shorten_reason(f"{_NO_EVENT}{error}.")
    return reason_of(error)


class JsonEncoder:
    """Encodes rows as objects of JSON, without the fields that are null, as Spark does."""

    def __init__(self, fields: pa.Schema | None) -> None:
        self.fields = fields

    def encode_rows(self, rows: pa.RecordBatch) -> list[bytes]:
        """Return a JSON object for each row."""
        kind = pa.struct(list(rows.schema))
        return [_encode(_to_json(row, kind, "")) for row in rows.to_pylist()]


_encode = msgspec.json.Encoder(decimal_format="number").encode


def _to_json(value: Any, kind: pa.DataType, name: str) -> Any:
    """Return a value of PyArrow in the form that msgspec writes as JSON: a struct without its
    nulls, a map as an object. `name`: the path of the value, for errors. Raises ConfigError for a
    number that JSON does not have, such as NaN."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        members = ((field, value[field.name], f"{name}.{field.name}".strip(".")) for field in kind)
        return {
            f.name: _to_json(item, f.type, path) for f, item, path in members if item is not None
        }
    if pa.types.is_map(kind):
        return {key: _to_json(item, kind.item_type, f"{name}[{key!r}]") for key, item in value}
    if pa.types.is_list(kind):
        return [_to_json(item, kind.value_type, f"{name}[{at}]") for at, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise misfit_error(name, value, "a number in JSON")
    return value


class CloudEventEncoder:
    """Encodes rows as CloudEvents in JSON. Columns `ce_…` are their attributes; the data is in the
    column `ce_data`, or is made of all other columns by an encoder."""

    def __init__(self, data: Encoder | None, format_: str) -> None:
        """`data`: encodes the columns of the data, in the format `format_`; None: the column
        `ce_data` has the data."""
        self._data, self._format = data, format_
        more = None if data is None else data.fields
        self.fields: pa.Schema | None = pa.schema([*ATTRIBUTES, *(more or [DATA])])

    def encode_rows(self, rows: pa.RecordBatch) -> list[bytes]:
        """Return a CloudEvent in JSON for each row."""
        # The columns of the data are all that are no attributes.
        names = [name for name in rows.schema.names if name not in ATTRIBUTES.names]
        data: Sequence[bytes | None] = [None] * len(rows)
        if names and self._data is not None:
            data = self._data.encode_rows(rows.select(names))
        elif names:
            data = rows.column(DATA.name).to_pylist()
        attributes = rows.select([name for name in rows.schema.names if name not in names])
        events = attributes.to_pylist(maps_as_pydicts="strict")
        return [self._encode_event(row, datum) for row, datum in zip(events, data, strict=True)]

    def _encode_event(self, row: Mapping[str, Any], data: bytes | None) -> bytes:
        """Encode one CloudEvent. `row`: its attributes, by columns `ce_…`; `data`: its encoded
        data, None if it has none. Raises ConfigError for a missing or malformed attribute."""
        # Attributes have the names of their columns without `ce_`.
        event = {name[3:]: value for name, value in row.items() if value not in (None, "")}
        event = {"specversion": "1.0", **event.pop("extensions", {}), **event}
        for name in _REQUIRED:
            if not event.get(name):
                raise ConfigError(f"Field ce_{name} is null, and each CloudEvent has one.")
        if bad := next((name for name in event if not _ATTRIBUTE.fullmatch(name)), None):
            raise ConfigError(f"{bad!r} is no attribute: its name has letters and digits only.")
        if self._data is not None and data is not None:
            event.setdefault("datacontenttype", f"application/{self._format}")
            if self._format == "json":
                return _encode(event | {"data": msgspec.Raw(data)})
        return _encode(event if data is None else event | {"data_base64": data})


_ATTRIBUTE: Final = re.compile("(?!data$)[a-z0-9]+")


class CloudEventDecoder:
    """Decodes CloudEvents into columns: `ce_…` for their attributes, and the data as `ce_data` or,
    by a decoder of its own, as the fields in it."""

    def __init__(
        self,
        unframe: Callable[[pa.RecordBatch], Unframed],
        data: PayloadDecoder | JsonDecoder | None = None,
        takes: str = "",
    ) -> None:
        """`unframe`: undoes the compression of payloads; `data`: decodes the data of events, None:
        it stays as it is; `takes`: a word that the content type of such data has in it, as "json".
        JSON may be without a content type."""
        self._unframe, self._data, self._takes = unframe, data, takes
        self.fields = pa.schema([*ATTRIBUTES, *([DATA] if data is None else data.fields)])

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema of `decode_batch` for a batch with these columns."""
        return with_fields(columns, self.fields)

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the columns of its events, and `REASON`, after its own. A bad
        record has null in all of them but `REASON`."""
        events, reasons = self._parse_events(batch)
        # Times are parsed as a column of times in JSON is.
        texts = (event.get("ce_time") for event in events)
        times = build_column(_TIME, [None if text is None else _encode(text) for text in texts])
        for row, event in enumerate(events):
            if (text := event.get("ce_time")) is not None and not times[row].is_valid:
                problem = f"{_NO_EVENT}{safe_repr(text)} is not a time of the years 1 to 9999."
                reasons[row], events[row] = shorten_reason(problem), {}
        data = pa.array([event.get("data") for event in events], pa.binary())
        data_columns, data_reasons = self._decode_data(data)
        for row, reason in enumerate(data_reasons.to_pylist()):
            if reason is not None:
                reasons[row], events[row] = reason, {}
        is_good = pa.array([reason is None for reason in reasons], pa.bool_())
        attributes = [
            pc.if_else(is_good, times, None)
            if name == "ce_time"
            else pa.array([event.get(name) for event in events], type_)
            for name, type_ in zip(ATTRIBUTES.names, ATTRIBUTES.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *attributes, *data_columns, pa.array(reasons, pa.string())],
            schema=self.decoded_schema(batch.schema),
        )

    def _parse_events(self, batch: pa.RecordBatch) -> tuple[list[dict[str, Any]], list[str | None]]:
        """Return for each record the columns of its event (see `_parse_event`), and why it is a bad
        record, or None. The columns of a bad record are empty."""
        unframed = self._unframe(batch)
        reasons: list[str | None] = [None] * batch.num_rows
        if unframed.reasons is not None:
            reasons = unframed.reasons.to_pylist()
        at = batch.schema.get_field_index("headers")
        headers = [None] * batch.num_rows if at < 0 else batch.column(at).to_pylist()
        events: list[dict[str, Any]] = [{} for _ in reasons]
        for row, payload in enumerate(unframed.payloads.to_pylist()):
            if reasons[row] is None:
                try:
                    events[row] = self._parse_event(payload, headers[row])
                except BaseException as error:  # `_reason_of` raises what no payload causes
                    reasons[row] = _reason_of(error)
        return events, reasons

    def _parse_event(
        self, payload: bytes, headers: Sequence[Mapping[str, str]] | None
    ) -> dict[str, Any]:
        """Return the attributes of an event by their columns, and its data as "data". In
        CloudEvents' binary mode the attributes are in headers `ce-…`, else everything is in the
        payload. Raises ValueError."""
        headers_by_name = {header["key"].lower(): header["value"] for header in headers or ()}
        content = headers_by_name.get("content-type")
        is_structured = (content or "").strip().lower().startswith("application/cloudevents")
        attributes: dict[str, Any]
        data: bytes | None
        if "ce-specversion" in headers_by_name and not is_structured:
            attributes = {
                name.removeprefix("ce-"): unquote(value, errors="strict")
                for name, value in headers_by_name.items()
                if name.startswith("ce-")
            }
            attributes["datacontenttype"], data = content, payload or None
        else:
            attributes, data = _parse_structured(payload)
        for name in _REQUIRED:
            if not attributes.get(name):
                raise ValueError(f"it lacks {name}")
        if not _VERSION.fullmatch(attributes["specversion"]):
            raise ValueError(f"it is of version {safe_repr(attributes['specversion'])}, not 1.0")
        content = attributes.get("datacontenttype")
        fits = self._takes in content.lower() if content else self._takes == "json"
        if data is not None and self._data is not None and not fits:
            raise ValueError(f"its data is {content}, not {self._takes}")
        event = {f"ce_{name}": attributes.pop(name, None) for name in _TEXTS}
        event["ce_time"] = attributes.pop("time", None)
        event["ce_extensions"] = list(attributes.items())
        return event | {"data": data}

    def _decode_data(self, data: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode the data of events; return its columns, and for each event why its data does not
        decode, or null."""
        if self._data is None:
            return [data], pa.nulls(len(data), pa.string())
        has_data = data.is_valid()
        decoded = self._data.decode_batch(pa.record_batch([data.filter(has_data)], [PAYLOAD]))
        reasons = decoded.column(REASON)
        columns = [decoded.column(name) for name in self._data.fields.names]
        if reasons.null_count < len(reasons):
            good = reasons.is_null()  # other data has null in its fields
            columns = [scatter(good, column.filter(good)) for column in columns]
        return [scatter(has_data, column) for column in columns], scatter(has_data, reasons)


def _parse_structured(payload: bytes) -> tuple[dict[str, Any], bytes | None]:
    """Parse an event that is a JSON object: return its attributes, and its data, which is None if
    it has none. Raises ValueError."""
    fields = parse_object(payload, _PARSE_FIELDS)
    raw, encoded = fields.pop("data", None), fields.pop("data_base64", None)
    texts = {name: _attribute_text(bytes(raw)) for name, raw in fields.items()}
    attributes = {name: value for name, value in texts.items() if value is not None}
    raw = None if raw is None or bytes(raw) == b"null" else raw
    if encoded is not None and bytes(encoded) != b"null":
        if raw is not None:
            raise ValueError("it has data and data_base64")
        return attributes, base64.b64decode(msgspec.json.decode(encoded, type=str), validate=True)
    if raw is None:
        return attributes, None
    content = attributes.get("datacontenttype")
    if content is None or "json" in content.lower():
        return attributes, bytes(raw)
    value = msgspec.json.decode(raw)  # a text is the data itself, such as XML
    return attributes, value.encode() if isinstance(value, str) else bytes(raw)


def _attribute_text(raw: bytes) -> str | None:
    """Return an attribute, given in JSON, as a text; what is no text in JSON stays as it is
    written. Null becomes None."""
    if raw == b"null":
        return None
    return msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()

"""Messages as they are printed: for people, as JSON, or only their payload."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

import jetspark.errors as errors
from jetspark.cli.console import escape_to_line, say, say_json, warn, write_bytes
from jetspark.cli.formatting import format_time
from jetspark.wire.headers import Headers, PayloadCodec

if TYPE_CHECKING:
    from jetspark.client.messages import Message
    from jetspark.documents.streams import StoredMsg
    from jetspark.jetstream.message import JsMsg


def show_message(
    message: Message, *, as_json: bool, raw: bool = False, codec: PayloadCodec | None = None
) -> None:
    """Print a message of a subscription or a reply: for people, as JSON, or only its payload.

    `raw`: only the payload, unchanged. `codec`: decodes the payload, whose value is then printed as
    JSON.
    """
    if raw:
        write_bytes(message.data)
    elif as_json:
        say_json(_make_document(message, message.headers, codec))
    else:
        title = Text.assemble((message.subject, "bold"))
        if message.reply is not None:
            title.append(f"  (reply to {message.reply})", style="dim")
        _say_message(message, title, message.headers, codec, message.subject)


def show_stored(message: StoredMsg, *, as_json: bool, codec: PayloadCodec | None = None) -> None:
    """Print a message that a stream stores: for people, or as a line of JSON.

    `codec`: decodes the payload, whose value is then printed as JSON. Headers that cannot be read
    are left out, with a warning.
    """
    description = f"Message {message.seq:,} on {message.subject}"
    headers = _read_headers(message, description)
    if as_json:
        position = {"seq": message.seq, "time": message.time.isoformat()}
        say_json(position | _make_document(message, headers, codec))
    else:
        details = f"  {message.seq:,}  {format_time(message.time)}"
        title = Text.assemble((message.subject, "bold"), (details, "dim"))
        _say_message(message, title, headers, codec, description)


def show_delivered(message: JsMsg, *, as_json: bool, codec: PayloadCodec | None = None) -> None:
    """Print a message that a consumer delivered: for people, or as a line of JSON.

    `codec`: decodes the payload, whose value is then printed as JSON. Headers that cannot be read
    are left out, with a warning.
    """
    metadata = message.metadata
    description = f"Message {metadata.stream_seq:,} on {message.subject}"
    headers = _read_headers(message, description)
    if as_json:
        position = {
            "seq": metadata.stream_seq,
            "time": metadata.timestamp.isoformat(),
            "deliveries": metadata.deliveries,
            "pending": metadata.pending,
        }
        say_json(position | _make_document(message, headers, codec))
    else:
        details = f"  {metadata.stream_seq:,}  {format_time(metadata.timestamp)}"
        if metadata.deliveries > 1:
            details += f"  delivery {metadata.deliveries:,}"
        title = Text.assemble((message.subject, "bold"), (details, "dim"))
        _say_message(message, title, headers, codec, description)


def _read_headers(message: Message | StoredMsg, description: str) -> Headers | None:
    """The headers of a message; None, and a warning, if they cannot be read."""
    try:
        return message.headers
    except errors.BadHeaderError as error:
        warn(f"{description}: {error}")
        return None


def _say_message(
    message: Message | StoredMsg,
    title: Text,
    headers: Headers | None,
    codec: PayloadCodec | None,
    description: str,
) -> None:
    """Print a message for people: a title, the headers, and the payload as text.

    `description`: the beginning of the warning about a payload that does not decode.
    """
    pairs = [] if headers is None else headers.items()
    lines = [Text(escape_to_line(f"{name}: {value}"), style="dim") for name, value in pairs]
    payload, problem = _decode_payload(message, codec)
    if problem:
        warn(f"{description}: {problem}")
    say(title, *lines, payload.decode("utf-8", "backslashreplace"))


def _decode_payload(message: Message | StoredMsg, codec: PayloadCodec | None) -> tuple[bytes, str]:
    """Decode a message's payload for printing; returns it and why it could not be decoded, or "".

    With a codec the decoded value is returned as JSON. A payload that does not decode, or for which
    there is no codec, is returned as it is.
    """
    try:
        return message.data if codec is None else msgspec.json.encode(message.decode(codec)), ""
    except (errors.CodecError, errors.BadHeaderError) as error:
        return message.data, str(error)


def _make_document(
    message: Message | StoredMsg, headers: Headers | None, codec: PayloadCodec | None
) -> dict[str, object]:
    """Describe a message for --json: subject, reply, headers and payload (`data`).

    A payload that is not UTF-8 is `data_base64`. The field `error` says why one does not decode.
    """
    document: dict[str, object] = {"subject": message.subject}
    reply = getattr(message, "reply", None)
    if reply is not None:
        document["reply"] = reply
    if headers:
        document["headers"] = headers.to_dict()
    data, problem = _decode_payload(message, codec)
    if problem:
        document["error"] = problem
    return document | make_bytes_field("data", data)


def make_bytes_field(name: str, data: bytes) -> dict[str, str]:
    """Make a JSON field of bytes: NAME with their text, or NAME_base64 if they are not UTF-8."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}

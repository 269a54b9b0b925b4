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


def show_message(
    message: Message, *, as_json: bool, raw: bool = False, codec: PayloadCodec | None = None
) -> None:
    """Print one message: for people, as a line of JSON, or only its payload."""
    if raw:
        write_bytes(message.data)
    elif as_json:
        say_json(_document_of(message, message.headers, codec))
    else:
        line = Text.assemble((message.subject, "bold"))
        if message.reply is not None:
            line.append(f"  (reply to {message.reply})", style="dim")
        headers = message.headers.items() if message.headers is not None else ()
        lines = [Text(escape_to_line(f"{name}: {value}"), style="dim") for name, value in headers]
        say(line, *lines, _payload_text(message, codec, message.subject))


def show_stored(message: StoredMsg, *, as_json: bool, codec: PayloadCodec | None = None) -> None:
    """Print one message of a stream: for people, or as a line of JSON."""
    description = f"Message {message.seq:,} on {message.subject}"
    try:
        headers = message.headers or Headers()
    except errors.BadHeaderError as error:
        warn(f"{description}: {error}")
        headers = Headers()
    if as_json:
        position = {"seq": message.seq, "time": message.time.isoformat()}
        say_json(position | _document_of(message, headers, codec))
    else:
        line = Text.assemble(
            (message.subject, "bold"), (f"  {message.seq:,}  {format_time(message.time)}", "dim")
        )
        lines = [
            Text(escape_to_line(f"{name}: {value}"), style="dim") for name, value in headers.items()
        ]
        say(line, *lines, _payload_text(message, codec, description))


def _payload_text(message: Message | StoredMsg, codec: PayloadCodec | None, label: str) -> str:
    payload, reason = _payload_of(message, codec)
    if reason:
        warn(f"{label}: {reason}")
    return payload.decode("utf-8", "backslashreplace")


def _payload_of(message: Message | StoredMsg, codec: PayloadCodec | None) -> tuple[bytes, str]:
    """The payload and ""; with a codec its value in JSON. A bad one as it is, and the reason."""
    try:
        return message.data if codec is None else msgspec.json.encode(message.decode(codec)), ""
    except (errors.CodecError, errors.BadHeaderError) as error:
        return message.data, str(error)


def _document_of(
    message: Message | StoredMsg, headers: Headers | None, codec: PayloadCodec | None
) -> dict[str, object]:
    """subject, reply, headers and data, or data_base64 for a payload that is not UTF-8; `error`
    says why a payload does not decode."""
    document: dict[str, object] = {"subject": message.subject}
    reply = getattr(message, "reply", None)
    if reply is not None:
        document["reply"] = reply
    if headers:
        document["headers"] = headers.to_dict()
    data, reason = _payload_of(message, codec)
    if reason:
        document["error"] = reason
    try:
        document["data"] = data.decode()
    except UnicodeDecodeError:
        document["data_base64"] = base64.b64encode(data).decode()
    return document

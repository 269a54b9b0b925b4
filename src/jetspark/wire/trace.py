"""Protocol lines for the log, without payloads and headers, with CONNECT's secrets masked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from jetspark.wire.control import Err, Info, Ok, Ping
from jetspark.wire.kernel import Event, MessageFrame
from jetspark.wire.parser import Frame, one_by_one

MASK = "***"
_SECRETS = ("pass", "auth_token", "jwt", "sig", "user")


def sent_lines(data: bytes) -> Iterator[str]:
    """The control lines of the frames in `data`, which must be complete."""
    position = 0
    while (end := data.find(b"\r\n", position)) >= 0:
        line = data[position:end]
        position = end + 2
        if line.startswith((b"PUB ", b"HPUB ")):
            position += int(line.rsplit(b" ", 1)[1]) + 2
        if line.startswith(b"CONNECT "):
            yield "CONNECT " + _masked(line[8:])
        else:
            yield line.decode("utf-8", "replace")


def _masked(document: bytes) -> str:
    fields = json.loads(document)
    return json.dumps({k: MASK if k in _SECRETS else v for k, v in fields.items()})


def received_lines(events: Iterable[Event]) -> Iterator[str]:
    """The control line of each received event."""
    return map(received_line, one_by_one(events))


def received_line(event: Frame) -> str:
    """The control line of a received event."""
    if isinstance(event, MessageFrame):
        headers = event.headers
        words = [b"MSG" if headers is None else b"HMSG", event.subject, b"%d" % event.sid]
        if event.reply is not None:
            words.append(event.reply)
        if headers is not None:
            words.append(b"%d" % len(headers))
        words.append(b"%d" % (len(headers or b"") + len(event.payload)))
        return b" ".join(words).decode("utf-8", "replace")
    if isinstance(event, Info):
        return "INFO " + event.document.decode("utf-8", "replace")
    if isinstance(event, Err):
        return f"-ERR '{event.text}'"
    if isinstance(event, Ok):
        return "+OK"
    return "PING" if isinstance(event, Ping) else "PONG"

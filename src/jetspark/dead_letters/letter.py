"""Dead letters, from advisories and from their stored form (`letter_rules`). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Final

import msgspec

import jetspark.letter_rules as rules
from jetspark.documents.document import text_of_time, timestamp_of_text
from jetspark.documents.events import MaxDeliverEvent, TerminatedEvent, event_subjects
from jetspark.documents.streams import StoredMsg, StreamConfig
from jetspark.errors import BadHeaderError, ConfigError, JetStreamError, safe_repr
from jetspark.subjects import subject_matches
from jetspark.wire.headers import Headers, forwarded

ADVISORIES: Final = "_ADVISORIES"
"""The end of the advisories' stream's name."""
WORKER: Final = "worker"
"""The consumer of that stream, which all workers share."""
KINDS: Final = ("max_deliver", "terminated")
REASONS: Final = (*KINDS, rules.QUARANTINED)
_WATCHED: Final = frozenset(subject.removesuffix(".*.*") for subject in event_subjects(KINDS))
"""The subjects of these advisories, without stream and consumer."""

_RESTORED: Final = "Nats-TTL"
"""The one header for servers that belongs to the message itself."""

Death = MaxDeliverEvent | TerminatedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that a consumer gave up, or that does not become a row of a table."""

    seq: int
    """The letter's own sequence, in the stream of the dead letters."""
    reason: str
    """ "max_deliver": delivered too often; "terminated": by `term`; "quarantined": kept by a
    query that writes a table."""
    text: str | None
    """The reason that `term` gave, or why there is no row."""
    stream: str
    consumer: str
    """The consumer, or the query's id."""
    stream_seq: int
    """The sequence of the message in `stream`."""
    deliveries: int
    time: datetime
    """When the consumer gave it up."""
    missing: str | None
    """Why there is no payload: "gone", the stream no longer had the message; "too large", it left
    no room for the headers of a letter. None: the payload is complete.
    """
    subject: str | None
    """The subject of the message; None when it was gone."""
    published: datetime | None
    """When the message was stored; None when it was gone."""
    column: str | None = None
    """The column that the message does not fit."""
    data: bytes = b""
    headers: Headers = field(default_factory=Headers)
    """The headers of the message."""


def watched_streams(config: StreamConfig) -> set[str] | None:
    """The streams whose consumers a stream of advisories watches; None for another stream."""
    subjects = [subject.rsplit(".", 2) for subject in config.subjects or ()]
    if config.retention != "workqueue" or not subjects:
        return None
    return (
        {tokens[-2] for tokens in subjects}
        if all(tokens[0] in _WATCHED for tokens in subjects)
        else None
    )


def check_replay_subject(subject: str, *, own: bool = False) -> None:
    """Raise ConfigError where a replayed message would not be processed. `own`: its subject.

    On a letter's subject it would not be a letter, and on a server's subject it would be a request
    or an advisory; only a message that was stored there may go back.
    """
    of_letters = subject_matches(rules.letters_subject("*"), subject)
    if of_letters or (not own and subject_matches("$JS.>", subject)):
        whose = "dead letters" if of_letters else "the server"
        raise ConfigError(
            f"Messages are not replayed to {safe_repr(subject)}, a subject of {whose}: replay them "
            "to a subject of a stream that processes them."
        )


def letter_subject(name: str, death: Death) -> str:
    return rules.subject_of_letter(name, death.stream, death.consumer, str(death.id))


def filter_subject(name: str, stream: str | None, consumer: str | None) -> str:
    """The subjects of all letters, or those of a stream or a consumer."""
    return rules.subject_of_letter(name, stream or "*", consumer or "*", "*")


def died_of(death: Death, message: StoredMsg | None, *, complete: bool = True) -> Headers:
    """The headers of a letter. `message`: None if it is gone. `complete`: with its payload."""
    headers = Headers() if message is None or not complete else _headers_of_message(message)
    headers.set(rules.REASON, str(death.kind))
    if isinstance(death, TerminatedEvent) and death.reason:
        headers.set(rules.TEXT, rules.one_line(death.reason))
    headers.set(rules.STREAM, death.stream)
    headers.set(rules.CONSUMER, death.consumer)
    headers.set(rules.SEQUENCE, str(death.stream_seq))
    headers.set(rules.DELIVERIES, str(death.deliveries))
    if death.timestamp is not None:
        headers.set(rules.TIME, text_of_time(death.timestamp))
    if message is not None:
        headers.set(rules.SUBJECT, message.subject)
        headers.set(rules.PUBLISHED, text_of_time(message.time))
    if message is None or not complete:
        headers.set(rules.MISSING, rules.DELETED if message is None else rules.TOO_LARGE)
    return headers


def _headers_of_message(message: StoredMsg) -> Headers:
    try:
        headers = message.headers or Headers()
    except BadHeaderError:  # no client can read them
        headers = Headers()
    return forwarded(rules.headers_in_letter(headers.items()))


def read_letter(stored: StoredMsg) -> DeadLetter:
    try:
        headers = stored.headers or Headers()
        published = headers.get(rules.PUBLISHED)
        return DeadLetter(
            seq=stored.seq,
            reason=headers[rules.REASON],
            text=headers.get(rules.TEXT),
            stream=headers[rules.STREAM],
            consumer=headers[rules.CONSUMER],
            stream_seq=int(headers[rules.SEQUENCE]),
            deliveries=int(headers[rules.DELIVERIES]),
            time=timestamp_of_text(headers.get(rules.TIME) or text_of_time(stored.time)),
            missing=headers.get(rules.MISSING),
            subject=headers.get(rules.SUBJECT),
            published=None if published is None else timestamp_of_text(published),
            column=headers.get(rules.COLUMN),
            data=stored.data,
            headers=forwarded(rules.headers_of_original(headers.items())),
        )
    except KeyError as error:
        reason = f"it has no header {error.args[0]}"
    except (ValueError, BadHeaderError) as error:
        reason = f"its headers cannot be read: {str(error).removesuffix('.')}"
    raise JetStreamError(f"Message {stored.seq} is not a dead letter: {reason}.")


def replayed_headers(letter: DeadLetter) -> Headers:
    """Headers for publishing again: without conditions, ids and marks of the first publish."""
    return forwarded(
        (name, value)
        for name, value in letter.headers.items()
        if name == _RESTORED or not name.lower().startswith(rules.OF_SERVER)
    )


def as_json(letter: DeadLetter) -> dict[str, object]:
    """The letter as JSON values: times as text, the payload as text, or Base64 if not UTF-8."""
    document: dict[str, object] = {
        field.name: getattr(letter, field.name) for field in fields(letter)
    }
    document["time"] = text_of_time(letter.time)
    document["published"] = letter.published and text_of_time(letter.published)
    document["headers"] = letter.headers.to_dict()
    try:
        document["data"] = letter.data.decode()
    except UnicodeDecodeError:
        document["data_base64"] = msgspec.to_builtins(document.pop("data"))
    return {name: value for name, value in document.items() if value is not None}

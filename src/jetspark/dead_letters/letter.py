"""The form in which a dead letter is stored. Pure.

Contract: a letter has the payload and the headers of its message. Headers that begin with
Dead-Letter- say where the message was and why it is here. Headers with a meaning for servers
(Nats-…) get another name, or they would set conditions on the letter itself. Each advisory has its
own subject, so a letter is stored once, however often its advisory is handled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Final

import msgspec

from jetspark.documents.document import text_of_time, timestamp_of_text
from jetspark.documents.events import MaxDeliverEvent, TerminatedEvent, event_subjects
from jetspark.documents.streams import StoredMsg, StreamConfig
from jetspark.errors import BadHeaderError, ConfigError, JetStreamError, shown
from jetspark.subjects import subject_matches
from jetspark.wire.headers import Headers, forwarded

ADVISORIES: Final = "_ADVISORIES"
"""The end of the advisories' stream's name."""
WORKER: Final = "worker"
"""The consumer of that stream, which all workers share."""
KINDS: Final = ("max_deliver", "terminated")
_WATCHED: Final = frozenset(subject.removesuffix(".*.*") for subject in event_subjects(KINDS))
"""The subjects of these advisories, without stream and consumer."""

_MARK: Final = "Dead-Letter-"
_REASON: Final = f"{_MARK}Reason"
_TEXT: Final = f"{_MARK}Text"
_STREAM: Final = f"{_MARK}Stream"
_CONSUMER: Final = f"{_MARK}Consumer"
_SEQUENCE: Final = f"{_MARK}Sequence"
_DELIVERIES: Final = f"{_MARK}Deliveries"
_TIME: Final = f"{_MARK}Time"
_SUBJECT: Final = f"{_MARK}Subject"
_PUBLISHED: Final = f"{_MARK}Published"
_MISSING: Final = f"{_MARK}Missing"
_KEPT: Final = f"{_MARK}Header-"

_OF_SERVER: Final = "nats-"
_RESTORED: Final = "Nats-TTL"
"""The one header for servers that belongs to the message itself."""

Death = MaxDeliverEvent | TerminatedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that a consumer gave up."""

    seq: int
    """The letter's own sequence, in the stream of the dead letters."""
    reason: str
    """ "max_deliver": delivered too often; "terminated": by `term`."""
    text: str | None
    """The reason that `term` gave."""
    stream: str
    consumer: str
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
    data: bytes = b""
    headers: Headers = field(default_factory=Headers)
    """The headers of the message."""


def watched_streams(config: StreamConfig) -> set[str] | None:
    """The streams whose consumers a stream of advisories watches; None for another stream."""
    subjects = [subject.rsplit(".", 2) for subject in config.subjects or ()]
    if config.retention != "workqueue" or not subjects:
        return None
    return {one[-2] for one in subjects} if all(one[0] in _WATCHED for one in subjects) else None


def letters_subject(name: str) -> str:
    return f"_dead.{name}.>"


def check_replay_subject(subject: str, *, own: bool = False) -> None:
    """Raise ConfigError where a replayed message would not be processed. `own`: its subject.

    On a letter's subject it would not be a letter, and on a server's subject it would be a request
    or an advisory; only a message that was stored there may go back.
    """
    of_letters = subject_matches(letters_subject("*"), subject)
    if of_letters or (not own and subject_matches("$JS.>", subject)):
        whose = "dead letters" if of_letters else "the server"
        raise ConfigError(
            f"Messages are not replayed to {shown(subject)}, a subject of {whose}: replay them to "
            "a subject of a stream that processes them."
        )


def letter_subject(name: str, death: Death) -> str:
    return f"_dead.{name}.{death.stream}.{death.consumer}.{death.id}"


def filter_subject(name: str, stream: str | None, consumer: str | None) -> str:
    """The subjects of all letters, or those of a stream or a consumer."""
    return f"_dead.{name}.{stream or '*'}.{consumer or '*'}.*"


def died_of(death: Death, message: StoredMsg | None, *, complete: bool = True) -> Headers:
    """The headers of a letter. `message`: None if it is gone. `complete`: with its payload."""
    headers = Headers() if message is None or not complete else _kept(message)
    headers.set(_REASON, str(death.kind))
    if isinstance(death, TerminatedEvent) and death.reason:
        headers.set(_TEXT, " ".join(death.reason.replace("\x00", " ").split()))
    headers.set(_STREAM, death.stream)
    headers.set(_CONSUMER, death.consumer)
    headers.set(_SEQUENCE, str(death.stream_seq))
    headers.set(_DELIVERIES, str(death.deliveries))
    if death.timestamp is not None:
        headers.set(_TIME, text_of_time(death.timestamp))
    if message is not None:
        headers.set(_SUBJECT, message.subject)
        headers.set(_PUBLISHED, text_of_time(message.time))
    if message is None or not complete:
        headers.set(_MISSING, "gone" if message is None else "too large")
    return headers


def _kept(message: StoredMsg) -> Headers:
    try:
        found = message.headers or Headers()
    except BadHeaderError:  # no client can read them
        found = Headers()
    return forwarded(
        (f"{_KEPT}{name}" if name.lower().startswith(_OF_SERVER) else name, value)
        for name, value in found.items()
        if not name.startswith(_MARK)  # left by an earlier death
    )


def read_letter(stored: StoredMsg) -> DeadLetter:
    try:
        headers = stored.headers or Headers()
        published = headers.get(_PUBLISHED)
        return DeadLetter(
            seq=stored.seq,
            reason=headers[_REASON],
            text=headers.get(_TEXT),
            stream=headers[_STREAM],
            consumer=headers[_CONSUMER],
            stream_seq=int(headers[_SEQUENCE]),
            deliveries=int(headers[_DELIVERIES]),
            time=timestamp_of_text(headers.get(_TIME) or text_of_time(stored.time)),
            missing=headers.get(_MISSING),
            subject=headers.get(_SUBJECT),
            published=None if published is None else timestamp_of_text(published),
            data=stored.data,
            headers=_original(headers),
        )
    except KeyError as error:
        why = f"it has no header {error.args[0]}"
    except (ValueError, BadHeaderError) as error:
        why = f"its headers cannot be read: {str(error).removesuffix('.')}"
    raise JetStreamError(f"Message {stored.seq} is not a dead letter: {why}.")


def _original(headers: Headers) -> Headers:
    return forwarded(
        (name.removeprefix(_KEPT), value)
        for name, value in headers.items()
        if name.startswith(_KEPT) or not name.startswith((_MARK, "Nats-"))
    )


def replayed_headers(letter: DeadLetter) -> Headers:
    """Headers for publishing again: without conditions, ids and marks of the first publish."""
    return forwarded(
        (name, value)
        for name, value in letter.headers.items()
        if name == _RESTORED or not name.lower().startswith(_OF_SERVER)
    )


def as_json(letter: DeadLetter) -> dict[str, object]:
    """For programs: times as text, the payload as text, or as Base64 if it is not UTF-8."""
    found: dict[str, object] = {one.name: getattr(letter, one.name) for one in fields(letter)}
    found["time"] = text_of_time(letter.time)
    found["published"] = letter.published and text_of_time(letter.published)
    found["headers"] = letter.headers.to_dict()
    try:
        found["data"] = letter.data.decode()
    except UnicodeDecodeError:
        found["data_base64"] = msgspec.to_builtins(found.pop("data"))
    return {name: value for name, value in found.items() if value is not None}

"""The form in which a dead letter is stored. Pure.

Shared by the client's dead letters and by Spark, which quarantines records that do not become rows.

Contract: a letter has the payload and the headers of its message. Headers that begin with
Dead-Letter- say where the message was and why it is here. Headers with a meaning for servers
(Nats-…) get another name, or they would set conditions on the letter itself. Each reason to store a
letter has its own subject, so that it is stored once, however often that is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

MARK: Final = "Dead-Letter-"
REASON: Final = f"{MARK}Reason"
TEXT: Final = f"{MARK}Text"
COLUMN: Final = f"{MARK}Column"
STREAM: Final = f"{MARK}Stream"
CONSUMER: Final = f"{MARK}Consumer"
SEQUENCE: Final = f"{MARK}Sequence"
DELIVERIES: Final = f"{MARK}Deliveries"
TIME: Final = f"{MARK}Time"
SUBJECT: Final = f"{MARK}Subject"
PUBLISHED: Final = f"{MARK}Published"
MISSING: Final = f"{MARK}Missing"
_RENAMED: Final = f"{MARK}Header-"

QUARANTINED: Final = "quarantined"
"""The reason of a record that does not become a row of a table."""
DELETED, TOO_LARGE = "gone", "too large"
"""Why a letter has no payload."""
OF_SERVER: Final = "nats-"
"""The beginning of names, folded, of headers with a meaning for servers."""


def letters_subject(name: str) -> str:
    """The subject of a stream of letters."""
    return f"_dead.{name}.>"


def subject_of_letter(name: str, stream: str, consumer: str, letter: str) -> str:
    """The subject of one letter; `letter`: a token that no other one has."""
    return f"_dead.{name}.{stream}.{consumer}.{letter}"


def one_line(text: str) -> str:
    """The text as the value of a header."""
    return " ".join(text.replace("\x00", " ").split())


def headers_in_letter(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The headers of a message in its letter."""
    for name, value in headers:
        if not name.startswith(MARK):  # left by an earlier death
            yield f"{_RENAMED}{name}" if name.lower().startswith(OF_SERVER) else name, value


def headers_of_original(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The headers of a letter's message."""
    for name, value in headers:
        if name.startswith(_RENAMED) or not name.startswith((MARK, "Nats-")):
            yield name.removeprefix(_RENAMED), value

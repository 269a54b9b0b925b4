"""Records that do not become rows, put aside into a stream, as dead letters (`letter_rules`).

Contract: a letter is stored once, and needs neither a ledger nor a duplicate window. Its subject
has the query's id, and the stream, sequence and time of its message, and it is stored only while
its subject has no message. A letter that is refused is there already, which its payload proves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

import jetspark.letter_rules as rules
from jetspark.bulk.encoded_messages import FIRST_OF_SUBJECT, EncodedMessage, header_block
from jetspark.bulk.leaders import Leaders
from jetspark.bulk.publish import StreamPublisher
from jetspark.bulk.stream_api import StreamAPI
from jetspark.connection.options import ConnectOptions
from jetspark.errors import BadHeaderError, ConfigError, TableError
from jetspark.spark.option_values import CONNECTION, connection_options, read_options
from jetspark.spark.options import SourceOptions
from jetspark.subjects import check_name
from jetspark.timestamps import datetime_to_ns, format_isotime

PREFIX: Final = "stream:"
"""Before the name of a stream, in place of a table."""
OPTIONS: Final = "quarantine."
"""Prefix of the options of its connection."""
_TIMEOUT = 60.0


def with_connection(sink: Mapping[str, str], source: Mapping[str, str]) -> dict[str, str]:
    """A sink's options, with those of its source's connection for the letters, unless it has its
    own."""
    folded = {name.casefold(): value for name, value in sink.items()}
    given = dict(sink)
    if not folded.get("quarantinetable", "").strip().startswith(PREFIX):
        return given
    if not any(name.startswith(OPTIONS) for name in folded):
        names = {name.casefold() for name in CONNECTION}
        given |= {
            f"{OPTIONS}{name}": one for name, one in source.items() if name.casefold() in names
        }
    return given


@dataclass(frozen=True)
class LetterStream:
    """A stream of dead letters; it is made for its first one."""

    name: str
    connection: ConnectOptions = field(repr=False)

    @classmethod
    def parse(cls, name: str, given: Mapping[str, str]) -> LetterStream:
        """`given`: options of the connection. Raises ConfigError."""
        try:
            connection = connection_options(read_options(given, CONNECTION, elsewhere={}))
        except ConfigError as error:
            raise ConfigError(f"Options {OPTIONS}…, of the stream for letters: {error}") from None
        return cls(check_name("stream", name), connection)

    @property
    def replay(self) -> str:
        """The command that tries its records again."""
        return f"jetspark dead-letters replay {self.name}"

    def check(self) -> None:
        """Check the stream, if it is there; changes nothing.

        Raises ConfigError for one of another kind, and the errors of `Leaders.call`.
        """
        self._leaders(at_once=True).call(self._looked_at)

    def check_not_read(self, source: SourceOptions) -> None:
        """Raise ConfigError for a stream that is read for the same table: its letters would become
        letters without an end."""
        pattern = source.stream_pattern or "(?!)"
        if self.name in source.streams or re.fullmatch(pattern, self.name):
            raise ConfigError(
                f"Stream {self.name!r} is read here, and would get what does not become a row "
                "again, without an end: name another one for it."
            )

    def store(self, writer: str, records: Iterable[pa.RecordBatch]) -> None:
        """Store each record of `lakehouse.quarantine` that the stream does not have.

        `writer`: a token of its own for each query. Raises as `check` and `StreamPublisher.send`;
        ConfigError for a record that no message is known of, and TableError for a message of
        somebody else in the place of a letter.
        """
        largest: int | None = None
        for batch in records:
            if largest is None:
                largest = self._make(batch.column("stream")[0].as_py())
            messages = list(self._letters(writer, batch, largest))
            while messages:
                with StreamPublisher(
                    self.connection, self.name, timeout=_TIMEOUT, once=True
                ) as publisher:
                    publisher.send(messages)
                # What was taken out in this moment is stored again: nobody knows what it was.
                messages = [one for one in publisher.refused if not self._has(one)]

    def _letters(self, writer: str, batch: pa.RecordBatch, most: int) -> Iterator[EncodedMessage]:
        for row in batch.to_pylist():
            if None in (row["stream"], row["subject"], row["seq"], row["timestamp"]):
                raise ConfigError(
                    "A record that does not become a row lacks its stream, subject, sequence or "
                    f"time, which name its letter: name a table in place of {PREFIX}{self.name}."
                )
            of_message = [
                (pair["key"], pair["value"] or "") for pair in row["headers"] or () if pair
            ]
            mark = f"{row['seq']}-{datetime_to_ns(row['timestamp'])}"
            subject = rules.subject_of_letter(self.name, row["stream"], writer, mark).encode()
            own = list(_headers(writer, row))
            payload = row["data"] or b""
            try:
                block = header_block([*rules.kept(of_message), *own])
            except BadHeaderError:
                block = None
            if block is None or len(block) + len(payload) > most:
                # The original stays, since its payload is nowhere else.
                block, payload = header_block([*own, (rules.MISSING, rules.TOO_LARGE)]), b""
            yield subject, block, payload

    def _has(self, message: EncodedMessage) -> bool:
        """Whether the stream has this letter; False if it has none on its subject."""
        subject, _, payload = message
        leaders = self._leaders()
        with leaders.linearizable_reads():
            found = leaders.message(self.name, last_by_subj=subject.decode())
        if found is not None and found.data != payload:
            raise TableError(
                f"Stream {self.name!r} has a message of somebody else on {subject.decode()}, where "
                f"a letter goes: remove message {found.seq}, and run this again."
            )
        return found is not None

    def _make(self, source: str) -> int:
        """Make the stream if it is not there, as durable as the stream of the records; returns the
        most bytes of a message."""

        def question(api: StreamAPI) -> int:
            config = self._looked_at(api)
            if config is None:
                like = api.config_if_any(source) or {}  # it may be on other servers
                config = api.create(
                    {
                        "name": self.name,
                        "description": "Messages that do not become rows of a table",
                        "subjects": [rules.letters_subject(self.name)],
                        "num_replicas": like.get("num_replicas", 1),
                    }
                )
            limit = int(config.get("max_msg_size", -1))
            most = int(api.link.info.max_payload)
            return min(most, limit) if limit >= 0 else most

        return self._leaders().call(question)

    def _looked_at(self, api: StreamAPI) -> dict[str, Any] | None:
        config = api.config_if_any(self.name)
        if config is None:
            return None
        needed = rules.letters_subject(self.name)
        if config.get("subjects") != [needed]:
            raise ConfigError(
                f"Stream {self.name!r} is not a stream of dead letters, whose only subject would "
                f"be {needed!r}: name another one, which is made for its first letter."
            )
        if config.get("retention") == "interest" or config.get("no_ack") or config.get("sealed"):
            raise ConfigError(
                f"Stream {self.name!r} does not keep each letter (retention 'interest', no_ack or "
                "sealed): name another one, which is made for its first letter."
            )
        return config

    def _leaders(self, *, at_once: bool = False) -> Leaders:
        return Leaders(self.connection, _TIMEOUT, at_once_if_new=at_once)


def _headers(writer: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield rules.REASON, rules.QUARANTINED
    yield rules.TEXT, rules.one_line(row["reason"])
    if row["column"] is not None:
        yield rules.COLUMN, rules.one_line(row["column"])
    yield rules.STREAM, row["stream"]
    yield rules.CONSUMER, writer
    yield rules.SEQUENCE, str(row["seq"])
    yield rules.DELIVERIES, "1"
    yield rules.SUBJECT, row["subject"]
    yield rules.PUBLISHED, format_isotime(datetime_to_ns(row["timestamp"]))
    yield FIRST_OF_SUBJECT

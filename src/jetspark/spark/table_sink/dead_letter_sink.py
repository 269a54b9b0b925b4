"""A stream of dead letters in place of a quarantine table (`letter_rules` has their form).

Contract: a letter is stored once, without a ledger or a duplicate window. Its subject has the
query's id, and the stream, sequence and time of its message, and it is stored only while its
subject has no message. If the server rejects it, the stream has it, which its payload proves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

import jetspark.letter_rules as rules
from jetspark.connection.options import ConnectOptions
from jetspark.errors import BadHeaderError, ConfigError, TableError
from jetspark.links.leaders import Leaders
from jetspark.links.stream_api import StreamAPI
from jetspark.options.names import spark_name
from jetspark.options.scopes import CONNECTION, connection_options
from jetspark.options.spark_options import read_options
from jetspark.spark.source.options import SourceOptions
from jetspark.stream_writes.encoded_messages import FIRST_OF_SUBJECT, EncodedMessage, header_block
from jetspark.stream_writes.publish import StreamPublisher
from jetspark.subjects import check_name
from jetspark.timestamps import datetime_to_ns, format_isotime

STREAM_PREFIX: Final = "stream:"
"""Begins the option of a quarantine that is a stream."""
CONNECTION_PREFIX: Final = "quarantine."
"""Begins the options of the stream's connection."""
_TIMEOUT = 60.0
"""Seconds for one request or one batch of letters."""


def with_connection(sink: Mapping[str, str], source: Mapping[str, str]) -> dict[str, str]:
    """Add the options of the source's connection to those of a table, as `quarantine.servers` and
    so on, so that its dead letters go to the same servers as its messages come from.

    Nothing is added if the table's quarantine is no stream, or if `sink` has such options already.
    """
    folded = {name.casefold(): value for name, value in sink.items()}
    has_stream = folded.get("quarantine", "").strip().startswith(STREAM_PREFIX)
    if not has_stream or any(name.startswith(CONNECTION_PREFIX) for name in folded):
        return dict(sink)
    names = {spark_name(name).casefold() for name in CONNECTION}
    connection = {
        f"{CONNECTION_PREFIX}{name}": value
        for name, value in source.items()
        if name.casefold() in names
    }
    return {**sink, **connection}


@dataclass(frozen=True)
class DeadLetterSink:
    """A stream that gets records that do not become rows, as dead letters: messages with the
    record's payload, and why it was rejected. The stream is created for the first one."""

    name: str
    connection: ConnectOptions = field(repr=False)

    @classmethod
    def parse(cls, name: str, options: Mapping[str, str]) -> DeadLetterSink:
        """The stream of this name, on the servers that `options`, those of a connection, name.
        Raises ConfigError."""
        try:
            connection = connection_options(read_options(options, CONNECTION, elsewhere={}))
        except ConfigError as error:
            raise ConfigError(
                f"Options {CONNECTION_PREFIX}…, of the stream for letters: {error.message}"
            ) from None
        return cls(check_name("stream", name), connection)

    @property
    def replay_command(self) -> str:
        """The shell command that publishes the messages of these dead letters again."""
        return f"jetspark dead-letters replay {self.name}"

    def check(self) -> None:
        """Check that the stream, if it exists, is one for dead letters; changes nothing.

        Raises ConfigError for another stream, and the errors of `Leaders.call`, without a wait for
        servers that have never answered.
        """
        self._leaders(fail_at_once=True).call(self._existing_config)

    def check_not_read(self, source: SourceOptions) -> None:
        """Raise ConfigError if the stream is also a source of the table: each dead letter would be
        read, rejected, and stored as a dead letter again, without an end."""
        pattern = source.stream_pattern or "(?!)"  # matches nothing
        if self.name in source.streams or re.fullmatch(pattern, self.name):
            raise ConfigError(
                f"Stream {self.name!r} is read here, and would get what does not become a row "
                "again, without an end: name another one for it."
            )

    def store(self, writer: str, records: Iterable[pa.RecordBatch]) -> None:
        """Publish a dead letter for each rejected record, unless the stream already has it.

        `writer`: a token that tells the letters of this query from those of others; `records`: rows
        with the columns of a quarantine table. Raises as `check` and `StreamPublisher.send`;
        ConfigError for a record that does not say which message it comes from, and TableError where
        somebody else has stored another message on the subject of a letter.
        """
        max_bytes: int | None = None
        for batch in records:
            if max_bytes is None:
                max_bytes = self._create(batch.column("stream")[0].as_py())
            messages = list(self._encode(writer, batch, max_bytes))
            while messages:
                # `only_first`: the server rejects a message if its subject has one already.
                with StreamPublisher(
                    self.connection, self.name, timeout=_TIMEOUT, only_first=True
                ) as publisher:
                    publisher.send(messages)
                # Rejected, but not in the stream: the message that was in the way was removed just
                # now. It need not have been this letter, so the letter is published again.
                messages = [letter for letter in publisher.rejected if not self._has(letter)]

    def _encode(
        self, writer: str, batch: pa.RecordBatch, max_bytes: int
    ) -> Iterator[EncodedMessage]:
        """Encode rejected records as dead letters: subject, headers and payload to publish.

        A letter leaves out headers and payload of the original message if it would have more than
        `max_bytes` with them, or if the headers cannot be published. Raises ConfigError for a
        record that does not say which message it comes from.
        """
        for row in batch.to_pylist():
            if None in (row["stream"], row["subject"], row["seq"], row["timestamp"]):
                raise ConfigError(
                    "A record that does not become a row lacks its stream, subject, sequence or "
                    "time, which name its letter: name a table in place of "
                    f"{STREAM_PREFIX}{self.name}."
                )
            message_headers = [
                (pair["key"], pair["value"] or "") for pair in row["headers"] or () if pair
            ]
            message_id = f"{row['seq']}-{datetime_to_ns(row['timestamp'])}"
            subject = rules.subject_of_letter(self.name, row["stream"], writer, message_id)
            own = list(_letter_headers(writer, row))
            payload = row["data"] or b""
            try:
                block = header_block([*rules.headers_in_letter(message_headers), *own])
            except BadHeaderError:
                block = None
            if block is None or len(block) + len(payload) > max_bytes:
                # The letter only names the original message, which stays in its own stream.
                block, payload = header_block([*own, (rules.MISSING, rules.TOO_LARGE)]), b""
            yield subject.encode(), block, payload

    def _has(self, message: EncodedMessage) -> bool:
        """Ask the server whether the stream has this dead letter; False if the letter's subject has
        no message. Raises TableError if it has one with another payload."""
        subject, _, payload = message
        leaders = self._leaders()
        with leaders.linearizable_reads():  # an answer of a replaced leader could miss the letter
            stored = leaders.message(self.name, last_by_subj=subject.decode())
        if stored is not None and stored.data != payload:
            raise TableError(
                f"Stream {self.name!r} has a message of somebody else on {subject.decode()}, where "
                f"a letter goes: remove message {stored.seq}, and run this again."
            )
        return stored is not None

    def _create(self, source: str) -> int:
        """Create the stream of dead letters if it does not exist, with as many replicas as the
        stream `source`, whose messages were rejected; returns the maximum size of a message in
        bytes."""

        def create(api: StreamAPI) -> int:
            """Create the stream unless it exists; returns its maximum size of a message."""
            config = self._existing_config(api)
            if config is None:
                like = api.config_if_any(source) or {}  # `source` may be on other servers
                config = api.create(
                    {
                        "name": self.name,
                        "description": "Messages that do not become rows of a table",
                        "subjects": [rules.letters_subject(self.name)],
                        "num_replicas": like.get("num_replicas", 1),
                    }
                )
            limit = int(config.get("max_msg_size", -1))
            max_payload = int(api.link.info.max_payload)
            return min(max_payload, limit) if limit >= 0 else max_payload

        return self._leaders().call(create)

    def _existing_config(self, api: StreamAPI) -> dict[str, Any] | None:
        """Ask for the configuration of the stream; None if it does not exist. Raises ConfigError
        for a stream with other subjects than dead letters have, or that may not keep each one."""
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

    def _leaders(self, *, fail_at_once: bool = False) -> Leaders:
        """A client for requests to the stream's servers, which repeats failed ones for a while.
        `fail_at_once`: no repetition on servers that have never answered."""
        return Leaders(self.connection, _TIMEOUT, at_once_if_new=fail_at_once)


def _letter_headers(writer: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The headers of a dead letter that say which message was rejected, and why.

    `row`: a row of a quarantine table; `writer`: the token of its query, in place of the consumer
    that the dead letters of a consumer name.
    """
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

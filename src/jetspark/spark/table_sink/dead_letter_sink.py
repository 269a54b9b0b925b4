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
    """Add the connection of the source to a sink's options, for its stream of dead letters, unless
    they have a connection for it."""
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
    """A stream of dead letters, which is created when the first one is stored."""

    name: str
    connection: ConnectOptions = field(repr=False)

    @classmethod
    def parse(cls, name: str, options: Mapping[str, str]) -> DeadLetterSink:
        """Parse the options of the connection to the stream of this name. Raises ConfigError."""
        try:
            connection = connection_options(read_options(options, CONNECTION, elsewhere={}))
        except ConfigError as error:
            raise ConfigError(
                f"Options {CONNECTION_PREFIX}…, of the stream for letters: {error.message}"
            ) from None
        return cls(check_name("stream", name), connection)

    @property
    def replay_command(self) -> str:
        """The command that publishes its messages again."""
        return f"jetspark dead-letters replay {self.name}"

    def check(self) -> None:
        """Check the stream, if it is there; changes nothing.

        Raises ConfigError for one of another kind, and the errors of `Leaders.call`.
        """
        self._leaders(at_once=True).call(self._existing_config)

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
        """Store a letter for each record of `tables.quarantine`, unless the stream has it.

        `writer`: a token of its own for each query. Raises as `check` and `StreamPublisher.send`;
        ConfigError for a record that does not say its message, and TableError where somebody else
        has stored another message on the subject of a letter.
        """
        max_bytes: int | None = None
        for batch in records:
            if max_bytes is None:
                max_bytes = self._create(batch.column("stream")[0].as_py())
            messages = list(self._encode(writer, batch, max_bytes))
            while messages:
                with StreamPublisher(
                    self.connection, self.name, timeout=_TIMEOUT, only_first=True
                ) as publisher:
                    publisher.send(messages)
                # A message that was removed in this moment is stored again: it may have been any.
                messages = [letter for letter in publisher.rejected if not self._has(letter)]

    def _encode(
        self, writer: str, batch: pa.RecordBatch, max_bytes: int
    ) -> Iterator[EncodedMessage]:
        """Encode records as letters; without headers and payload of the message where a letter with
        them would have more than `max_bytes`. Raises ConfigError."""
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
                # The original stays, since its payload is nowhere else.
                block, payload = header_block([*own, (rules.MISSING, rules.TOO_LARGE)]), b""
            yield subject.encode(), block, payload

    def _has(self, message: EncodedMessage) -> bool:
        """Whether the stream has this letter; False if it has none on its subject."""
        subject, _, payload = message
        leaders = self._leaders()
        with leaders.linearizable_reads():
            stored = leaders.message(self.name, last_by_subj=subject.decode())
        if stored is not None and stored.data != payload:
            raise TableError(
                f"Stream {self.name!r} has a message of somebody else on {subject.decode()}, where "
                f"a letter goes: remove message {stored.seq}, and run this again."
            )
        return stored is not None

    def _create(self, source: str) -> int:
        """Create the stream if it does not exist, as durable as the stream of the records; returns
        the maximum size of a message in bytes."""

        def create(api: StreamAPI) -> int:
            config = self._existing_config(api)
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
            max_payload = int(api.link.info.max_payload)
            return min(max_payload, limit) if limit >= 0 else max_payload

        return self._leaders().call(create)

    def _existing_config(self, api: StreamAPI) -> dict[str, Any] | None:
        """The configuration of the stream; None if there is none. Raises ConfigError for a stream
        that is none of dead letters, or that does not keep each of them."""
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
        """Calls to the stream's servers; `at_once`: one that never answered gets one attempt."""
        return Leaders(self.connection, _TIMEOUT, at_once_if_new=at_once)


def _letter_headers(writer: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The headers of a letter that say what it is about, from a row of `tables.quarantine`."""
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

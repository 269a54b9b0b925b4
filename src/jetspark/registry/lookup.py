"""Schemas of payloads for tasks, which block: from a registry over NATS, or over HTTP.

A process remembers what it found: a version and an id for good, as they do not change; the latest
version, and what there is not, for a minute. (Synadia's own registry may change a version; that is
seen by the next process.) Payloads can name any number of schemas that there are not, so that a
process asks in vain a limited number of times in a minute.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Final

import jetspark.registry.documents as documents
from jetspark.connection.options import ConnectOptions
from jetspark.errors import BadNameError, ConfigError, NoRespondersError, SchemaNotFoundError
from jetspark.links.link_pool import pool
from jetspark.links.retry import Retry, attempt
from jetspark.payloads.schema import PayloadSchema, SchemaLookup
from jetspark.registry.confluent import ConfluentRegistry
from jetspark.wire.headers import parse_headers

OVER_NATS: Final = "nats"
_RETRY_SECONDS: Final = 15.0
_ANSWER_TIMEOUT: Final = 5.0
_REMEMBERED: Final = 60.0
_MAX_ANSWERS: Final = 10_000
_MAX_CHARACTERS: Final = 32 << 20
"""Characters of all schemas that a process remembers."""
MAX_UNKNOWN: Final = 100
"""Questions in vain that a process asks a registry in a minute."""


def schema_lookup(
    registry: str,
    options: ConnectOptions,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
) -> SchemaLookup:
    """Schemas of `registry`: "nats", the one on the servers of `options`, or an https URL.

    The others: for a registry with a URL (see ConfluentRegistry). Raises ConfigError. Sends
    nothing.
    """
    if registry != OVER_NATS:
        return Remembering(ConfluentRegistry(registry, user, password, token, ca_file))
    if any(option is not None for option in (user, password, token, ca_file)):
        raise ConfigError("A registry over NATS has the credentials of the connection.")
    return Remembering(NatsRegistry(options))


class _NeverAskedError(SchemaNotFoundError):
    """No registry can have this schema."""


@dataclass(frozen=True)
class NatsRegistry:
    """Asks the registry that speaks Synadia's protocol, over a link of this process."""

    options: ConnectOptions

    def by_id(self, number: int) -> PayloadSchema:
        """Raises ConfigError: in this protocol there are only names and versions."""
        raise ConfigError(
            "A schema registry over NATS has no ids: payloads in Confluent's frame need a registry "
            "with an https URL."
        )

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        """A version of a schema, or its latest; see SchemaLookup."""
        kind = "jsonschema" if format == "json" else format
        try:
            ref = documents.SchemaRef(documents.check_schema_name(name), kind, version)
        except BadNameError as error:  # of a payload's header
            raise _NeverAskedError(f"There is no such schema. {error}") from None
        try:
            return attempt(lambda: self._request(ref), Retry(_RETRY_SECONDS))
        except NoRespondersError:
            raise documents.no_registry(", ".join(map(str, self.options.urls()))) from None

    def _request(self, ref: documents.SchemaRef) -> PayloadSchema:
        subject = documents.request_subject(documents.Verb.GET, ref.subject_tail)
        with pool.link(self.options) as link:
            frame = link.request(subject, b"{}", _ANSWER_TIMEOUT)
        headers = parse_headers(frame.headers)[0] if frame.headers else None
        answer = documents.answer_of(headers, frame.payload, documents.GetResponse)
        return answer.schema.payload_schema()


@dataclass(frozen=True)
class Remembering:
    """A registry that this process asks once. It can be pickled; what it found stays here."""

    registry: SchemaLookup

    @property
    def has_ids(self) -> bool:
        """Whether frames can name its schemas by numbers."""
        return not isinstance(self.registry, NatsRegistry)

    def by_id(self, number: int) -> PayloadSchema:
        """See SchemaLookup."""
        is_new = (self.registry, (number,)) not in _answers
        schema = self._remembered((number,), partial(self.registry.by_id, number), lasts=True)
        if is_new:  # it may be a newer version's
            forget_latest()
        return schema

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        """See SchemaLookup."""
        ask = partial(self.registry.by_name, name, version, format)
        return self._remembered((name, format, version), ask, lasts=version is not None)

    def _remembered(
        self, key: tuple[Hashable, ...], ask: Callable[[], PayloadSchema], *, lasts: bool
    ) -> PayloadSchema:
        until, answer = _answers.get((self.registry, key), (-math.inf, None))
        if answer is None or until < time.monotonic():
            unknown = _unknown.setdefault(self.registry, deque())
            while unknown and unknown[0] < time.monotonic():
                unknown.popleft()
            if len(unknown) >= MAX_UNKNOWN:
                raise SchemaNotFoundError(
                    f"The registry was asked for {MAX_UNKNOWN} schemas within a minute that it "
                    "does not have, and was not asked for the schema of this payload."
                )
            try:
                answer = ask()
            except _NeverAskedError:
                raise
            except SchemaNotFoundError as error:
                answer, lasts = error, False
                unknown.append(time.monotonic() + _REMEMBERED)
            until = math.inf if lasts else time.monotonic() + _REMEMBERED
            _remember((self.registry, key), until, answer)
        if isinstance(answer, SchemaNotFoundError):
            raise copy(answer)
        return answer


def _remember(
    key: tuple[SchemaLookup, tuple[Hashable, ...]],
    until: float,
    answer: PayloadSchema | SchemaNotFoundError,
) -> None:
    """Keep an answer, within bounds: damaged frames can name any id, and schemas may be large."""
    global _length
    length = len(answer.text) if isinstance(answer, PayloadSchema) else 0
    length += sum(len(schema.text) for schema in getattr(answer, "references", ()))
    if len(_answers) >= _MAX_ANSWERS or _length + length > _MAX_CHARACTERS:
        _answers.clear()
        _length = 0
    _answers[key] = until, answer
    _length += length


def forget_latest() -> None:
    """Ask for the latest version of each name anew."""
    for key in [key for key in _answers if key[1][-1] is None]:
        del _answers[key]


_length = 0
"""The characters in what was remembered since it was last forgotten."""
_unknown: dict[SchemaLookup, deque[float]] = {}
"""When what a registry did not have may be asked for again."""
_answers: dict[
    tuple[SchemaLookup, tuple[Hashable, ...]], tuple[float, PayloadSchema | SchemaNotFoundError]
] = {}

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
_CHANGING_SECONDS: Final = 60.0
"""How long an answer is remembered that may change."""
_MAX_ANSWERS: Final = 10_000
_MAX_CHARS: Final = 32 << 20
"""Characters of all schemas that a process remembers."""
MAX_UNKNOWN: Final = 100
"""Schemas that a registry does not have, for which a process asks it in a minute."""


def schema_lookup(
    registry: str,
    options: ConnectOptions,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
) -> SchemaLookup:
    """Return a registry: "nats", the one on the servers of `options`, or an https URL.

    The others: for a registry with a URL (see ConfluentRegistry). Raises ConfigError. Sends
    nothing.
    """
    if registry != OVER_NATS:
        return CachingLookup(ConfluentRegistry(registry, user, password, token, ca_file))
    if any(option is not None for option in (user, password, token, ca_file)):
        raise ConfigError("A registry over NATS has the credentials of the connection.")
    return CachingLookup(NatsRegistry(options))


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
        """Ask the registry once."""
        subject = documents.request_subject(documents.Verb.GET, ref.subject_tail)
        with pool.link(self.options) as link:
            frame = link.request(subject, b"{}", _ANSWER_TIMEOUT)
        headers = parse_headers(frame.headers)[0] if frame.headers else None
        answer = documents.answer_of(headers, frame.payload, documents.GetResponse)
        return answer.schema.payload_schema()


@dataclass(frozen=True)
class CachingLookup:
    """A registry that each process asks once for a schema. Pickled, it has no answers."""

    registry: SchemaLookup

    @property
    def has_ids(self) -> bool:
        """Whether frames can name its schemas by numbers."""
        return not isinstance(self.registry, NatsRegistry)

    def by_id(self, number: int) -> PayloadSchema:
        """See SchemaLookup."""
        is_new = (self.registry, (number,)) not in _answers
        schema = self._ask_once((number,), partial(self.registry.by_id, number), lasts=True)
        if is_new:  # it may be a newer version's
            forget_latest()
        return schema

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        """See SchemaLookup."""
        ask = partial(self.registry.by_name, name, version, format)
        return self._ask_once((name, format, version), ask, lasts=version is not None)

    def _ask_once(
        self, key: tuple[Hashable, ...], ask: Callable[[], PayloadSchema], *, lasts: bool
    ) -> PayloadSchema:
        """Return the answer to a question, from memory or by `ask`. `lasts`: it does not change."""
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
                unknown.append(time.monotonic() + _CHANGING_SECONDS)
            until = math.inf if lasts else time.monotonic() + _CHANGING_SECONDS
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
    global _total_chars
    chars = len(answer.text) if isinstance(answer, PayloadSchema) else 0
    chars += sum(len(schema.text) for schema in getattr(answer, "references", ()))
    if len(_answers) >= _MAX_ANSWERS or _total_chars + chars > _MAX_CHARS:
        _answers.clear()
        _total_chars = 0
    _answers[key] = until, answer
    _total_chars += chars


def forget_latest() -> None:
    """Forget the latest version of each name, so that it is asked for anew."""
    for key in [key for key in _answers if key[1][-1] is None]:
        del _answers[key]


_total_chars = 0
"""Characters of the schemas in `_answers`, and of those forgotten one by one."""
_unknown: dict[SchemaLookup, deque[float]] = {}
"""For each schema that a registry did not have, when it no longer counts; see `MAX_UNKNOWN`."""
_answers: dict[
    tuple[SchemaLookup, tuple[Hashable, ...]], tuple[float, PayloadSchema | SchemaNotFoundError]
] = {}

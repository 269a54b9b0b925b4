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
from jetspark.bulk.link_pool import pool
from jetspark.bulk.retry import Retry, attempt
from jetspark.codecs.schema import PayloadSchema, SchemaLookup
from jetspark.connection.options import ConnectOptions
from jetspark.errors import BadNameError, ConfigError, NoRespondersError, SchemaNotFoundError
from jetspark.registry.confluent import ConfluentRegistry
from jetspark.wire.headers import parse_headers

OVER_NATS: Final = "nats"
_WITHIN: Final = 15.0
_ONE_ANSWER: Final = 5.0
_REMEMBERED: Final = 60.0
_MOST: Final = 10_000
_MOST_CHARACTERS: Final = 32 << 20
"""Of the schemas that a process remembers."""
MAX_UNKNOWN: Final = 100
"""Questions in vain that a process asks a registry in a minute."""


def schema_lookup(
    where: str,
    options: ConnectOptions,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
) -> SchemaLookup:
    """Schemas of `where`: "nats", the registry on the servers of `options`, or an https URL.

    The others: of the registry with a URL (see ConfluentRegistry). Raises ConfigError. Sends
    nothing.
    """
    if where != OVER_NATS:
        return Remembering(ConfluentRegistry(where, user, password, token, ca_file))
    if any(one is not None for one in (user, password, token, ca_file)):
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
            place = documents.Place(documents.check_schema_name(name), kind, version)
        except BadNameError as error:  # of a payload's header
            raise _NeverAskedError(f"There is no such schema. {error}") from None
        try:
            return attempt(lambda: self._asked(place), Retry(_WITHIN))
        except NoRespondersError:
            raise documents.no_registry(", ".join(map(str, self.options.urls()))) from None

    def _asked(self, place: documents.Place) -> PayloadSchema:
        subject = documents.request_subject(documents.Verb.GET, place.subject_tail)
        with pool.link(self.options) as link:
            frame = link.request(subject, b"{}", _ONE_ANSWER)
        headers = parse_headers(frame.headers)[0] if frame.headers else None
        return documents.answer_of(
            headers, frame.payload, documents.GetResponse
        ).schema.payload_schema()


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
        is_new = (self.registry, (number,)) not in _found
        found = self._known((number,), partial(self.registry.by_id, number), lasts=True)
        if is_new:  # it may be a newer version's
            forget_latest()
        return found

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        """See SchemaLookup."""
        ask = partial(self.registry.by_name, name, version, format)
        return self._known((name, format, version), ask, lasts=version is not None)

    def _known(
        self, what: tuple[Hashable, ...], ask: Callable[[], PayloadSchema], *, lasts: bool
    ) -> PayloadSchema:
        until, found = _found.get((self.registry, what), (-math.inf, None))
        if found is None or until < time.monotonic():
            unknown = _unknown.setdefault(self.registry, deque())
            while unknown and unknown[0] < time.monotonic():
                unknown.popleft()
            if len(unknown) >= MAX_UNKNOWN:
                raise SchemaNotFoundError(
                    f"The registry was asked for {MAX_UNKNOWN} schemas within a minute that it "
                    "does not have, and was not asked for the schema of this payload."
                )
            try:
                found = ask()
            except _NeverAskedError:
                raise
            except SchemaNotFoundError as error:
                found, lasts = error, False
                unknown.append(time.monotonic() + _REMEMBERED)
            until = math.inf if lasts else time.monotonic() + _REMEMBERED
            _remember((self.registry, what), until, found)
        if isinstance(found, SchemaNotFoundError):
            raise copy(found)
        return found


def _remember(
    key: tuple[SchemaLookup, tuple[Hashable, ...]],
    until: float,
    found: PayloadSchema | SchemaNotFoundError,
) -> None:
    """Keep an answer, within bounds: damaged frames can name any id, and schemas may be large."""
    global _length
    length = len(found.text) if isinstance(found, PayloadSchema) else 0
    length += sum(len(one.text) for one in getattr(found, "references", ()))
    if len(_found) >= _MOST or _length + length > _MOST_CHARACTERS:
        _found.clear()
        _length = 0
    _found[key] = until, found
    _length += length


def forget_latest() -> None:
    """Ask for the latest version of each name anew."""
    for key in [key for key in _found if key[1][-1] is None]:
        del _found[key]


_length = 0
"""The characters in what was remembered since it was last forgotten."""
_unknown: dict[SchemaLookup, deque[float]] = {}
"""When what a registry did not have may be asked for again."""
_found: dict[
    tuple[SchemaLookup, tuple[Hashable, ...]], tuple[float, PayloadSchema | SchemaNotFoundError]
] = {}

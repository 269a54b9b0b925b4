"""The servers to try, and when: pure, with an injected clock and random source.

Attempts at one server are at least `wait` seconds apart, plus jitter. A failed attempt counts
against its server, a success resets the count. A server is removed when the count exceeds
`max_attempts` (-1: never), or, unless `retry_auth_errors`, after the same authentication error
twice in a row. A server that was tried or lost moves to the end. Servers advertised in INFO are
added, up to MOST_ADVERTISED, since before TLS anyone can send an INFO. They inherit scheme and
credentials, and TLS verifies an address, and a name from before TLS, against the name that the user
wrote (`tls_name`).
"""

from __future__ import annotations

import ipaddress
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from jetspark.connection.urls import ServerURL, parse_url
from jetspark.errors import AuthError, ConfigError, JetsparkError, ServerError
from jetspark.retries import Backoff

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
"""Seconds to wait after a link that the server ended with an error."""

MOST_ADVERTISED = 1000
"""Addresses of one INFO that count."""


@dataclass(slots=True, eq=False)
class PooledServer:
    """One server and its history."""

    url: ServerURL
    gossiped: bool = False
    reconnects: int = 0
    """Failed attempts since the last success."""
    last_attempt: float | None = None
    not_before: float = float("-inf")
    """Clock time of the earliest next attempt."""
    last_auth_error: type[AuthError] | None = None
    errors: int = 0
    """Links in a row that the server ended with an error."""

    @property
    def key(self) -> tuple[str, int]:
        """Equal for two URLs of the same server."""
        return self.url.host.casefold(), self.url.port


class ServerPool:
    """`delay`, if given, replaces `wait`; its argument is the server's count of failed attempts.

    `choose`, if given, gets the candidates and returns one, or None for the first.
    """

    def __init__(
        self,
        urls: Iterable[ServerURL],
        *,
        wait: float,
        jitter: float = 0.0,
        max_attempts: int = 60,
        delay: Callable[[int], float] | None = None,
        choose: Callable[[tuple[PoolServer, ...]], PoolServer | None] | None = None,
        retry_auth_errors: bool = False,
        randomize: bool = False,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._wait = wait
        self._jitter = jitter
        self._max_attempts = max_attempts
        self._delay = delay
        self._choose = choose
        self._retry_auth_errors = retry_auth_errors
        self._clock = clock
        self._randomize = randomize
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._servers: dict[tuple[str, int], PooledServer] = {}
        """The servers by key, in the order of trying."""
        self.replace(urls)

    def replace(self, urls: Iterable[ServerURL]) -> None:
        """Use these servers instead, shuffled if randomizing. Known ones keep their history."""
        previous, self._servers = self._servers, {}
        for url in urls:
            new = PooledServer(url)
            if (old := previous.get(new.key)) is not None:
                old.url, old.gossiped = url, False
            self._add(old or new)
        if self._randomize:
            shuffled = list(self._servers.items())
            self._rng.shuffle(shuffled)
            self._servers = dict(shuffled)

    def _add(self, server: PooledServer) -> bool:
        return self._servers.setdefault(server.key, server) is server

    @property
    def servers(self) -> tuple[PooledServer, ...]:
        """All servers, in the order of trying."""
        return tuple(self._servers.values())

    def next(self) -> tuple[PooledServer, float] | None:
        """The server to try next and the seconds to wait before; None when all were removed."""
        if not self._servers:
            return None
        now = self._clock()
        # sorted() is stable, so servers that are ready keep their order.
        server = self.choose(sorted(self.servers, key=lambda s: max(s.not_before, now)))
        return server, max(0.0, server.not_before - now)

    def choose(self, candidates: Sequence[PooledServer]) -> PooledServer:
        """The user's choice of these, or the first one."""
        if self._choose is None:
            return candidates[0]
        now = self._clock()
        offered = tuple(
            PoolServer(
                str(server.url),
                server.gossiped,
                server.reconnects,
                max(0.0, server.not_before - now),
            )
            for server in candidates
        )
        chosen = self._choose(offered)
        return candidates[offered.index(chosen)] if chosen in offered else candidates[0]

    def attempt(self, server: PooledServer) -> None:
        """An attempt begins now."""
        now = self._clock()
        server.last_attempt = now
        server.not_before = now + self._wait + self._rng.uniform(0.0, self._jitter)

    def failed(self, server: PooledServer, error: Exception) -> bool:
        """The attempt failed. Returns whether the server was removed."""
        server.reconnects += 1
        if self._delay is not None:
            server.not_before = self._clock() + max(0.0, self._delay(server.reconnects))
        exhausted = 0 <= self._max_attempts < server.reconnects
        auth_failed = self._same_auth_error(server, error) and not self._retry_auth_errors
        if auth_failed or exhausted:
            if self._servers.get(server.key) is server:
                del self._servers[server.key]
            return True
        self._move_back(server)
        return False

    def succeeded(self, server: PooledServer) -> None:
        """The attempt succeeded."""
        server.reconnects = 0
        server.last_auth_error = None

    def lost(self, server: PooledServer, error: JetsparkError | None = None) -> None:
        """The link to this server ended: it moves to the end.

        After an error sent by the server its next attempt waits, twice as long after each in a row.
        Credentials that expire on a link do not count as a refused attempt.
        """
        if isinstance(error, ServerError):
            server.errors += 1
            pause = Backoff(max(self._wait, _FIRST_PAUSE), _LONGEST_PAUSE).pause(server.errors)
            server.not_before = max(server.not_before, self._clock() + pause)
        else:
            server.errors = 0
        self._move_back(server)

    def hurry(self) -> None:
        """Skip the waiting times once, because a caller asked for a link now."""
        for server in self.servers:
            server.not_before = float("-inf")

    @staticmethod
    def _same_auth_error(server: PooledServer, error: Exception) -> bool:
        previous = server.last_auth_error
        server.last_auth_error = type(error) if isinstance(error, AuthError) else None
        return previous is not None and previous is server.last_auth_error

    def _move_back(self, server: PooledServer) -> None:
        if self._servers.get(server.key) is server:
            self._servers[server.key] = self._servers.pop(server.key)

    def learn(
        self, addresses: Iterable[str], via: PooledServer, *, secure: bool, in_clear: bool = False
    ) -> list[str]:
        """Add INFO's connect_urls; returns the new servers.

        `in_clear`: the INFO came before TLS, so anyone may have named the servers, and none is
        verified by the name that it has there. Removes advertised servers that are no longer in
        the list (the cluster shrank), except `via`. Skips an address that cannot be parsed.
        """
        named: list[PooledServer] = []
        for address in islice(addresses, MOST_ADVERTISED):
            try:
                url = parse_url(address)
            except ConfigError:
                continue
            named.append(
                PooledServer(
                    _inherit(url, via.url, secure=secure, in_clear=in_clear), gossiped=True
                )
            )
        if not named:
            return []
        keys = {server.key for server in named}
        self._servers = {
            key: server
            for key, server in self._servers.items()
            if not server.gossiped or server is via or key in keys
        }
        if not in_clear:  # some may have been named before TLS
            for server in named:
                if (gossiped := self._servers.get(server.key)) is not None and gossiped.gossiped:
                    gossiped.url = server.url
        if self._randomize:
            self._rng.shuffle(named)
        return [str(server.url) for server in named if self._add(server)]


def _inherit(url: ServerURL, via: ServerURL, *, secure: bool, in_clear: bool) -> ServerURL:
    return replace(
        url,
        scheme="tls" if secure and not via.websocket else via.scheme,
        user=via.user,
        password=via.password,
        token=via.token,
        tls_name=(via.tls_name or via.host) if in_clear or _is_address(url.host) else None,
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PoolServer:
    """A server that may be tried next, as shown to `choose_server`."""

    url: str
    """The URL without credentials."""
    discovered: bool
    """Whether the cluster advertised it, or the user gave it."""
    failures: int
    """Failed attempts since the last success."""
    wait: float
    """Seconds until its next attempt may begin (`reconnect_wait`); 0: now."""

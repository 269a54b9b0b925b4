"""Routes of subscriptions: their handlers, and the frames that restore them on a new link.

A route is the connection's side of a subscription. It outlives links: `received` counts over all
links, so a replayed SUB requests only the remaining messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TypeAlias

import jetspark.errors as errors
from jetspark.connection.server_errors import COMMON_LINE, Dropped
from jetspark.subjects import check_subscribe_subject
from jetspark.wire import frames
from jetspark.wire.kernel import MessageFrame

OnRun: TypeAlias = Callable[[list[MessageFrame], int], bool]
"""Takes a run of messages and their payload bytes. False: it wants them one by one."""

OnRefused: TypeAlias = Callable[[str, errors.JetsparkError], None]
"""Called for refused publishes to this subject, or with it as the reply subject."""


@dataclass(slots=True, eq=False)
class Route:
    """One subscription id. `handler` runs in the read loop: it must neither block nor raise.

    `on_run`, if given, is called first, with the messages of one `FrameRun`. It takes all or none:
    when it removes the route half-way, it must ignore the rest itself.
    """

    subject: str
    handler: Callable[[MessageFrame], None]
    _: KW_ONLY
    queue: str | None = None
    max_msgs: int = 0
    on_run: OnRun | None = None
    on_disconnect: Callable[[], None] | None = None
    on_reconnect: Callable[[], None] | None = None
    on_refused: OnRefused | None = None
    """Called when a request was refused and gets no reply, on routes of replies."""
    on_end: Callable[[errors.JetsparkError | None], None] | None = None
    sid: int = 0
    received: int = 0
    base: int = 0
    """`received` when the present SUB was sent; the server counts from then."""


class RouteTable:
    """The routes by subscription id; ids are never reused.

    `send` takes a control frame for the present link and drops it when there is none: the next
    link gets `replay`.
    """

    def __init__(
        self, send: Callable[[bytes], None], report: Callable[[errors.JetsparkError], None]
    ) -> None:
        self.by_sid: dict[int, Route] = {}
        self._send = send
        self._report = report
        self._last_sid = 0

    def __len__(self) -> int:
        return len(self.by_sid)

    def __iter__(self) -> Iterator[Route]:
        """A snapshot: callbacks may change the table."""
        return iter(tuple(self.by_sid.values()))

    def __contains__(self, route: Route) -> bool:
        return self.by_sid.get(route.sid) is route

    def find_refused(self, error: errors.JetsparkError) -> Route | None:
        """The route whose subscription the server has refused with this error; None: none.

        Some errors do not name the subscription. When there are too many, it is the newest: a
        server accepts them in order until it is full. A malformed subject can be recognised.
        """
        newest = reversed(self.by_sid.values())
        if isinstance(error, errors.PermissionsError) and error.operation == "subscription":
            if error.sid is not None:
                return self.by_sid.get(error.sid)
            return self._find(error.subject, error.queue)
        if isinstance(error, errors.SubscriptionLimitError):
            return next(newest, None)
        if isinstance(error, errors.InvalidSubjectError) and not error.of_publish:
            return next((route for route in newest if _malformed(route.subject)), None)
        return None

    def longest(self) -> Route | None:
        """The route with the longest SUB line, if a server may find it too long."""
        route = max(self, key=_length, default=None)
        return None if route is None or _length(route) <= COMMON_LINE else route

    def _find(self, subject: str, queue: str | None) -> Route | None:
        """The oldest route of exactly this subject and queue group."""
        for route in self.by_sid.values():
            if route.subject == subject and route.queue == queue:
                return route
        return None

    # -- sent to the server --------------------------------------------------------------------

    def add(self, route: Route) -> None:
        """Subscribe."""
        self._last_sid += 1
        route.sid = self._last_sid
        self.by_sid[route.sid] = route
        self._send(_announce(route))

    def remove(self, route: Route) -> None:
        """Unsubscribe, unless the route is gone."""
        if route in self:
            self._send(frames.unsub(route.sid))
            del self.by_sid[route.sid]

    def limit(self, route: Route, max_msgs: int) -> None:
        """End the route after `max_msgs` messages in all, which may be now."""
        if route not in self:
            return
        route.max_msgs = max_msgs
        if route.received >= max_msgs:
            self.remove(route)
            self._tell_end(route, None)
        else:
            self._send(frames.unsub(route.sid, max_msgs - route.base))

    def stop(self, route: Route) -> None:
        """Unsubscribe at the server, but still take the messages in flight."""
        if route in self:
            self._send(frames.unsub(route.sid))

    def replay(self) -> bytes:
        """SUB for every route, with the remaining count of a limited one."""
        return b"".join(map(_announce, self.by_sid.values()))

    # -- events for the routes -------------------------------------------------------------------

    def end(self, route: Route, error: errors.JetsparkError | None) -> None:
        """The route gets no more messages. Does nothing when it is gone."""
        if route in self:
            del self.by_sid[route.sid]
            self._tell_end(route, error)

    def refuse(self, route: Route, error: errors.JetsparkError) -> None:
        """End the route with this error, and unsubscribe in case the server has it."""
        if route in self:
            self._send(frames.unsub(route.sid))
            self.end(route, error)

    def tell_disconnect(self) -> None:
        """The link is gone."""
        for route in self:
            self._tell(route.on_disconnect)

    def tell_reconnect(self) -> None:
        """A link is up again and knows all routes."""
        for route in self:
            self._tell(route.on_reconnect)

    def tell_refused(self, name: str, error: errors.JetsparkError) -> None:
        """Publishes to the subject `name`, or with it as the reply subject, were refused."""
        for route in self:
            if (on_refused := route.on_refused) is not None:
                self._tell(partial(on_refused, name, error))

    def drop(self, dropped: Dropped) -> None:
        """A publish that was kept for the next server is not sent to it."""
        if dropped.reply:
            self.tell_refused(dropped.reply, dropped.error)
        self._report(dropped.error)

    def _tell_end(self, route: Route, error: errors.JetsparkError | None) -> None:
        on_end = route.on_end
        if on_end is not None:
            self._tell(partial(on_end, error))

    def _tell(self, hook: Callable[[], None] | None) -> None:
        if hook is None:
            return
        try:
            hook()
        except Exception as error:
            self._report(errors.user_error("A subscription's hook", error))


def _length(route: Route) -> int:
    return len(frames.target_of(route.subject, route.queue))


def _malformed(subject: str) -> bool:
    try:
        check_subscribe_subject(subject)
    except errors.BadSubjectError:
        return True
    return False


def _announce(route: Route) -> bytes:
    route.base = route.received
    sub = frames.sub(route.subject, route.sid, route.queue)
    if not route.max_msgs:
        return sub
    return sub + frames.unsub(route.sid, route.max_msgs - route.received)

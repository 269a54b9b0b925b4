"""Watching a store: the infos of its objects, None once, then every change (ADR-20).

Contract: that of `jetspark.jetstream.ordered.watching`. An info that cannot be read is reported
(log, last_error, error callback) and left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from jetspark.errors import JetsparkError, JetStreamError
from jetspark.jetstream.message import MessageFrame
from jetspark.jetstream.ordered.watching import Watching
from jetspark.objects.info import ObjectInfo, info_of
from jetspark.objects.meta import MetaStore, no_store
from jetspark.objects.names import all_infos
from jetspark.timestamps import ns_to_datetime


class ObjectWatcher(Watching[ObjectInfo]):
    """What `ObjectStore.watch` returns: iterate it."""

    def __init__(self, meta: MetaStore, *, ignore_deletes: bool, updates_only: bool) -> None:
        super().__init__(
            meta.js,
            meta.store,
            meta.stream,
            [all_infos(meta.store)],
            updates_only=updates_only,
        )
        self._ignore_deletes = ignore_deletes

    def _gone(self) -> JetsparkError:
        return no_store(self._name)

    def __aiter__(self) -> AsyncIterator[ObjectInfo | None]:
        return self._loop()

    def _entries(self, frames: Iterable[MessageFrame]) -> None:
        for frame, _, time_ns, _ in self._fresh(frames):
            try:
                info = info_of(frame.payload, ns_to_datetime(time_ns))
            except JetStreamError as error:
                self._js.client.report(error)
                continue
            if not (info.deleted and self._ignore_deletes):
                self._ready.append(info)

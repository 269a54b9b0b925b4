"""Orphans: chunks that belong to no object, and their removal.

They are left by a program killed during a put, by a connection lost for good, and by a killed
server, which may bring back part of what was purged just before. No name leads to them, so the
infos of all objects are read to tell them from others: from the leader, in stream order, so infos
written meanwhile come too.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from jetspark.errors import ConfigError, MessageNotFoundError, StreamNotFoundError
from jetspark.objects.info import ObjectInfo, info_of_stored
from jetspark.objects.meta import MetaStore, no_store
from jetspark.objects.names import all_infos, chunk_subject
from jetspark.timestamps import Seconds, in_seconds

ORPHAN_AGE: Final = timedelta(hours=1)


async def purge_orphans(meta: MetaStore, older_than: Seconds) -> int:
    """See `ObjectStore.purge_orphans`."""
    if (age := in_seconds(older_than)) < 0:
        raise ConfigError("older_than cannot be negative.")
    before = time.time() - age
    try:
        return await _purge(meta, before)
    except StreamNotFoundError:
        raise no_store(meta.store) from None


async def _purge(meta: MetaStore, before: float) -> int:
    js, stream, store = meta.js, meta.stream, meta.store
    # The chunks first: an object completed from now on has its info later in the stream.
    found = await js.stream_info(stream, subjects_filter=chunk_subject(store, ">"))
    subjects = set(found.state.subjects or ())
    if subjects:
        subjects -= {
            chunk_subject(store, info.nuid) async for info in _infos(meta) if not info.deleted
        }
    removed = 0
    for subject in sorted(subjects):
        try:
            last = await js.get_msg(stream, last_by_subject=subject, direct=False)
        except MessageNotFoundError:  # removed by its own put
            continue
        if last.time.timestamp() <= before:
            removed += await js.purge_stream(stream, filter=subject, seq=last.seq + 1)
    return removed


async def _infos(meta: MetaStore) -> AsyncIterator[ObjectInfo]:
    seq = 0
    while True:
        try:
            stored = await meta.js.get_msg(
                meta.stream, seq + 1, next_by_subject=all_infos(meta.store), direct=False
            )
        except MessageNotFoundError:
            return
        seq = stored.seq
        yield info_of_stored(stored)

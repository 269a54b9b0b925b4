"""Chunks that belong to no object, and how they are removed.

They are left by a program that was killed in the middle of a put, by a link that was gone for
good, and by a server that was killed: a part of what was purged just before may be there again when
it comes back. No name leads to them, so the information about all objects is read to tell them from
others. It is read from the leader, in the order of the stream: what is written meanwhile stands
further on, and comes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from jetspark.errors import MessageNotFoundError, StreamNotFoundError
from jetspark.objects.info import ObjectInfo, info_of_stored
from jetspark.objects.meta import MetaStore, no_store
from jetspark.objects.names import all_infos, chunk_subject
from jetspark.timestamps import Seconds, in_seconds

ORPHAN_AGE: Final = timedelta(hours=1)


async def purge_orphans(meta: MetaStore, older_than: Seconds) -> int:
    """What `ObjectStore.purge_orphans` does."""
    before = time.time() - in_seconds(older_than)
    try:
        return await _purge(meta, before)
    except StreamNotFoundError:
        raise no_store(meta.store) from None


async def _purge(meta: MetaStore, before: float) -> int:
    js, stream, store = meta.js, meta.stream, meta.store
    # The chunks first: an object that is completed from now on has its information further on.
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

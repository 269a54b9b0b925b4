"""An object store: put, get, change, link and delete objects, without async.

As `jetspark.objects.store`. Sources are read and files are written in the caller's thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TypeVar

from jetspark.arguments import spelt
from jetspark.blocking.generated.objects.store import GeneratedObjectStore
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.objects.content import ObjectData
from jetspark.blocking.objects.reader import ObjectReader
from jetspark.errors import ObjectDamagedError
from jetspark.objects.info import ObjectInfo
from jetspark.objects.reader import (
    NewFile,
    ObjectTarget,
    Writable,
    check_data,
    check_writable,
    sync_blocks,
    write_all,
)
from jetspark.objects.store import READ_TRIES
from jetspark.objects.store import ObjectStore as AsyncObjectStore
from jetspark.objects.writer import ObjectWriter

T = TypeVar("T")


class ObjectStore(GeneratedObjectStore):
    """What `JetStream.object_store` and `JetStream.create_object_store` return.

    For the errors of every call see `jetspark.objects.ObjectStore`.
    """

    def __init__(self, thread: LoopThread, inner: AsyncObjectStore) -> None:
        self._thread = thread
        self._inner = inner

    def _put(self, data: ObjectData, write: Callable[[], ObjectWriter]) -> ObjectInfo:
        check_data(data, awaitable=False)
        run = self._thread.run
        writer = self._thread.call(write)
        try:
            run(writer.begin)
            with closing(sync_blocks(data)) as source:
                for block in source:
                    run(writer.write, block)
            return run(writer.finish)
        except BaseException as error:
            self._thread.leave(error, writer.discard)
            raise

    @spelt
    def get_into(self, name: str, target: ObjectTarget) -> ObjectInfo:
        if isinstance(target, str | os.PathLike):
            return self._whole(name, partial(_save, target))
        check_writable(target)
        reader = self.get(name)
        _write_to(target, reader)
        return reader.info

    def _whole(self, name: str, use: Callable[[ObjectReader], T]) -> T:
        """Read the object; retry if it was replaced meanwhile, since nothing was returned yet."""
        tries = 0
        while True:
            reader = self.get(name)
            try:
                return use(reader)
            except ObjectDamagedError:
                tries += 1
                if tries == READ_TRIES or self.get(name).info.nuid == reader.info.nuid:
                    raise


def _write_to(file: Writable, reader: ObjectReader) -> None:
    try:
        while lot := reader.next_lot():
            write_all(file, lot)
    finally:
        reader.stop()


def _save(path: str | os.PathLike[str], reader: ObjectReader) -> ObjectInfo:
    file = NewFile(path)
    try:
        _write_to(file, reader)
        file.keep()
    except BaseException:
        file.drop()
        raise
    return reader.info

"""Object stores without async: sources are read, and files written, in the caller's thread.

See `jetspark.objects`. Each thread switch of a reader brings the chunks that have arrived, up to
about 1 MB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TypeAlias, TypeVar, Unpack

from jetspark.blocking.iterators import EntryIterator, Listing
from jetspark.blocking.twin import Read, Twin, awaits, makes, twin_of
from jetspark.errors import ObjectDamagedError
from jetspark.objects.content_digest import Writable
from jetspark.objects.info import ObjectInfo
from jetspark.objects.reader import (
    AtomicFile,
    Bytes,
    ObjectTarget,
    Readable,
    sync_blocks,
    write_all,
)
from jetspark.objects.reader import ObjectReader as AsyncObjectReader
from jetspark.objects.reader import ObjectWatcher as AsyncObjectWatcher
from jetspark.objects.store import READ_TRIES, PutOptions
from jetspark.objects.store import ObjectStore as AsyncObjectStore

__all__ = ["ObjectReader", "ObjectStore", "ObjectWatcher"]

T = TypeVar("T")
ObjectData: TypeAlias = Bytes | os.PathLike[str] | Readable | Iterable[Bytes]


@twin_of(AsyncObjectReader)
class ObjectReader(Twin):
    """The result of `ObjectStore.get`: `for chunk in reader`, or `reader.all()`, once.

    Reading raises ObjectDamagedError and DigestMismatchError in place of the last chunk,
    ObjectStoreNotFoundError, and ConnectionClosedError.
    """

    _inner: AsyncObjectReader

    info = Read[ObjectInfo]()
    all = awaits(AsyncObjectReader.all)
    next_chunks = awaits(AsyncObjectReader.next_chunks)

    def __iter__(self) -> Iterator[bytes]:
        try:
            while chunks := self.next_chunks():
                yield from chunks
        finally:
            # Without waiting: the garbage collector may call this.
            if not self._thread.is_over:
                self._thread.post(self._inner.stop)

    def stop(self) -> None:
        if not self._thread.is_over:
            self._thread.call(self._inner.stop)


@twin_of(AsyncObjectWatcher)
class ObjectWatcher(EntryIterator[ObjectInfo]):
    pass


@twin_of(AsyncObjectStore)
class ObjectStore(Twin):
    _inner: AsyncObjectStore
    name = Read[str]()
    stream = Read[str]()
    status = awaits(AsyncObjectStore.status)
    seal = awaits(AsyncObjectStore.seal)
    update_meta = awaits(AsyncObjectStore.update_meta)
    delete = awaits(AsyncObjectStore.delete)
    purge_orphans = awaits(AsyncObjectStore.purge_orphans)
    add_link = awaits(AsyncObjectStore.add_link)
    add_store_link = awaits(AsyncObjectStore.add_store_link)
    info = awaits(AsyncObjectStore.info)
    get = awaits(AsyncObjectStore.get, ObjectReader)
    get_bytes = awaits(AsyncObjectStore.get_bytes)
    objects = makes(AsyncObjectStore.objects, Listing)
    watch = makes(AsyncObjectStore.watch, ObjectWatcher)

    def put(self, name: str, data: ObjectData, **options: Unpack[PutOptions]) -> ObjectInfo:
        """Store an object from bytes, a path, a readable file or an iterable of bytes.

        See `jetspark.objects.ObjectStore.put`; reads piece by piece in this thread.
        """
        run = self._thread.run
        writer = self._thread.call(partial(self._inner.writer, name, **options))
        try:
            run(writer.begin)
            with closing(sync_blocks(data)) as source:
                for block in source:
                    run(writer.write, block)
            return run(writer.finish)
        except BaseException as error:
            self._thread.leave(error, writer.discard)
            raise

    def get_into(self, name: str, target: ObjectTarget, *, overwrite: bool = True) -> ObjectInfo:
        """Write the content of an object into a file, in this thread.

        See `jetspark.objects.ObjectStore.get_into`.
        """
        if isinstance(target, str | os.PathLike):
            return self._read_with_retries(name, partial(_save, target, overwrite))
        reader = self._reader(name)
        _write_to(target, reader)
        return reader.info

    def _reader(self, name: str) -> ObjectReader:
        return ObjectReader(self._caller, self._thread.run(self._inner.get, name))

    def _read_with_retries(self, name: str, use: Callable[[ObjectReader], T]) -> T:
        """Read the object; retry if it was replaced meanwhile, since nothing was returned yet."""
        tries = 0
        while True:
            reader = self._reader(name)
            try:
                return use(reader)
            except ObjectDamagedError:
                tries += 1
                if tries == READ_TRIES or self._reader(name).info.nuid == reader.info.nuid:
                    raise


def _write_to(file: Writable, reader: ObjectReader) -> None:
    try:
        while chunks := reader.next_chunks():
            write_all(file, chunks)
    finally:
        reader.stop()


def _save(path: str | os.PathLike[str], overwrite: bool, reader: ObjectReader) -> ObjectInfo:
    file = AtomicFile(path, overwrite=overwrite)
    try:
        _write_to(file, reader)
        file.keep()
    except BaseException:
        file.drop()
        raise
    return reader.info

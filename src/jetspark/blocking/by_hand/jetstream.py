"""JetStream without async: publishing in the caller's thread, events, lists, backups.

See `jetspark.jetstream`. A callback runs in its own thread and may use the blocking client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar, Unpack

from jetspark.backup import BackupProgress
from jetspark.blocking.by_hand.publish import AtomicBatch, FastIngest, Publisher
from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.client import Client
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import ItemT, Listing, MessageSource, SingleIterator
from jetspark.blocking.twin import Block, Twin
from jetspark.blocking.worker import check_callback
from jetspark.client.messages import Sendable, parts_of
from jetspark.documents.events import Event
from jetspark.documents.streams import PubAck, StoredMsg
from jetspark.errors import NoRespondersError
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.api import ContextOptions
from jetspark.jetstream.api import Paged as AsyncPaged
from jetspark.jetstream.atomic_batch import AtomicSender
from jetspark.jetstream.fast_ingest import GapPolicy, IngestSender
from jetspark.jetstream.publish_request import (
    PublishMsgOptions,
    PublishOptions,
    PublishTries,
    headers_of,
    parse_pub_ack,
    publish_headers,
)
from jetspark.jetstream.publisher import DisconnectPolicy, PublisherSender
from jetspark.payloads import Payload, payload_bytes
from jetspark.timestamps import Seconds, in_seconds

T = TypeVar("T")


class BaseJetStream(Twin):
    """Publishing in the caller's thread."""

    _caller: CallerSide
    _inner: AsyncJetStream

    def __init__(self, client: Client, **options: Unpack[ContextOptions]) -> None:
        super().__init__(client._caller, AsyncJetStream(client._caller.inner, **options))
        self._client = client

    @property
    def client(self) -> Client:
        return self._client

    def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        whole = publish_headers(self._inner.api.server, **options) if options else None
        tries = PublishTries(
            subject, self._inner.timeout if timeout is None else in_seconds(timeout)
        )
        payload = payload_bytes(payload)  # encoded once, since every attempt sends the same bytes
        while True:
            try:
                with tries:
                    return parse_pub_ack(
                        self._caller.ask(subject, payload, tries.left, whole).payload
                    )
            except NoRespondersError:
                pause = tries.pause()
            time.sleep(pause)

    def publish_msg(
        self,
        message: Sendable,
        *,
        timeout: Seconds | None = None,
        **options: Unpack[PublishMsgOptions],
    ) -> PubAck:
        subject, data, _, _ = parts_of(message)
        return self.publish(
            subject,
            data,
            headers=headers_of(message),
            timeout=timeout,
            **options,
        )

    def publisher(
        self,
        window: int = 4000,
        *,
        timeout: Seconds | None = None,
        on_disconnect: DisconnectPolicy = "auto",
        retry_for: Seconds = 30.0,
        raise_failures: bool = True,
    ) -> Publisher:
        sender = PublisherSender(
            self._inner.api,
            self._caller.publishing,
            window,
            timeout,
            on_disconnect,
            retry_for,
            raise_failures,
        )
        return Publisher(self._caller, sender)

    def atomic_batch(self, *, timeout: Seconds | None = None) -> AtomicBatch:
        sender = AtomicSender(self._inner.api, self._caller.publishing, timeout)
        return AtomicBatch(self._caller, sender)

    def fast_ingest(
        self,
        *,
        gaps: GapPolicy = "fail",
        ack_every: int = 500,
        outstanding: int = 2,
        timeout: Seconds | None = None,
    ) -> FastIngest:
        api, publishing = self._inner.api, self._caller.publishing
        sender = IngestSender(api, publishing, gaps, ack_every, outstanding, timeout)
        return FastIngest(self._caller, sender)


# -------------------------------------------------------------------------------------------------
# Events and lists

EventCallback: TypeAlias = Callable[[Event], None]


class BaseEvents(MessageSource[Event], SingleIterator[Event], Block):
    """See `jetspark.jetstream.events`."""

    def close(self) -> None:
        if not self._thread.is_over:
            self._thread.call(self._inner.close)

    def _finish(self) -> None:
        self.close()


@twin_of(AsyncPaged)
class Paged(Listing[ItemT]):
    """Iterate it, or `paged.all()` for a list."""

    _inner: AsyncPaged[ItemT]
    _lot = 256  # at most the server's smallest page, so that no page is requested early

    @property
    def missing(self) -> list[str]:
        """Streams or consumers that did not answer in the last iteration."""
        return self._inner.missing

    @property
    def offline(self) -> dict[str, str]:
        """Streams or consumers that the server cannot run, with its reason (2.12)."""
        return self._inner.offline


class StoredMsgs(Listing[StoredMsg]):
    """Stored messages in order of their sequences: iterate it, or `msgs.all()` for a list.

    The first request is sent when iteration begins; each iteration starts anew.
    """


# -------------------------------------------------------------------------------------------------
# Backing up and restoring: `progress` is called in the caller's thread, and the transfer waits for
# it. When it raises, or Ctrl-C interrupts the call, the transfer first ends and cleans up.

ProgressCallback: TypeAlias = Callable[[BackupProgress], None]
_OnStep: TypeAlias = Callable[[BackupProgress], Coroutine[Any, Any, None]]


def transfer(
    caller: CallerSide,
    call: Callable[[_OnStep | None], Coroutine[Any, Any, T]],
    progress: ProgressCallback | None,
) -> T:
    """Run `call`, with `progress` called in the caller's thread."""
    thread = caller.thread
    check_callback(progress)
    if progress is None:
        return thread.run(call, None)
    transfer = thread.call(_Transfer, call)
    try:
        while (step := thread.run(transfer.next)) is not None:
            progress(step)
    except BaseException as error:
        thread.leave(error, transfer.cancel)
        raise
    return thread.run(transfer.result)


class _Transfer(Generic[T]):
    """A transfer in the event loop that pauses after each step until the caller calls `next`.

    Otherwise it could be complete when the caller's `progress` raises.
    """

    def __init__(self, call: Callable[[_OnStep], Coroutine[Any, Any, T]]) -> None:
        self._step: BackupProgress | None = None
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(call(self._on_step))
        self._task.add_done_callback(lambda _: self._news.set())

    async def _on_step(self, step: BackupProgress) -> None:
        self._step = step
        self._taken.clear()
        self._news.set()
        await self._taken.wait()

    async def next(self) -> BackupProgress | None:
        """The next progress; None at the end of the transfer."""
        self._taken.set()
        await self._news.wait()
        if self._task.done():
            return None
        self._news.clear()
        return self._step

    async def result(self) -> T:
        try:
            return await self._task
        finally:
            del self._task  # in this thread: see `blocking.loop_thread`

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        del self._task

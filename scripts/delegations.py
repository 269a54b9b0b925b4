"""The calls of the blocking client that only hand on to their asyncio twins, written out of these.

`python scripts/delegations.py` writes src/jetspark/blocking/generated, and with `--check` says what
is not as it would be written. Signatures, types and docstrings are taken from the source of the
asyncio classes, defaults and annotations as they stand there; `await` and the like are taken out of
the docstrings. The tables below say what cannot be read there: which classes, how a call crosses
to the event loop, in what its result is wrapped, and where the words differ.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "src" / "jetspark" / "blocking" / "generated"
HEAD = "# Written by `python scripts/delegations.py`: change that, or the asyncio class.\n"
PREFIX = "Generated"

# -- the tables ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Twin:
    """One class to be written. `one`: the asyncio class, as module:Class."""

    one: str
    also: tuple[str, ...] = ()
    """Other classes whose calls it gets, such as bases of `one`."""
    bases: tuple[str, ...] = ()
    inner: str = ""
    """The type of `_inner`, when it is not `one`; "-" when there is none."""
    run: str = "self._thread.run(self._inner.{name}, {args})"
    """How a coroutine function is called."""
    read: str = "self._inner.{name}"
    """How a property is read."""
    attributes: tuple[str, ...] = ("_thread: LoopThread",)
    """What the class by hand has, besides `_inner`."""
    hooks: tuple[str, ...] = ()
    """Signatures of methods by hand that the bodies call."""
    slots: bool = False


_JS = "AsyncJetStream"
_CONSUMER: dict[str, Any] = {
    "run": "self._client.thread.run(self._inner.{name}, {args})",
    "attributes": ("_client: CallerSide",),
    "slots": True,
}
_GROUP: dict[str, Any] = {**_CONSUMER, "slots": False}
_CALLER = ("_thread: LoopThread", "_caller: CallerSide")

MODULES: dict[str, list[Twin]] = {
    # The module has the path of the one by hand whose classes inherit.
    "client": [
        Twin(
            "jetspark.client.client:Client",
            attributes=(*_CALLER, "_buffer: PublishBuffer", "_publishing: Publishing"),
            hooks=(
                "_make(self, hooks: Hooks | None, event_callback: EventCallback | None,"
                " error_callback: ErrorCallback | None,"
                " dial: Dial | None) -> None",
            ),
        )
    ],
    "full_client": [
        Twin(
            "jetspark.full_client:Client",
            also=(
                "jetspark.services.service:ServiceCalls",
                "jetspark.tracing.calls:TraceCalls",
                "jetspark.identity.callout:CalloutCalls",
                "jetspark.system.system:SystemCalls",
            ),
            bases=("Client",),
            inner="-",
            attributes=(),
        )
    ],
    "messages": [
        Twin(
            "jetspark.client.messages:Message",
            bases=("MessageView",),
            inner="-",
            attributes=("_client: CallerSide",),
            slots=True,
        )
    ],
    "events": [Twin("jetspark.client.callbacks:EventStream")],
    "subscription": [
        Twin("jetspark.client.subscription:Subscription", bases=("Taking[Message]",), attributes=())
    ],
    "listing": [Twin("jetspark.client.listing:Listing", slots=True)],
    "watching": [Twin("jetspark.jetstream.watching:Watching")],
    "jetstream.context": [
        Twin(
            "jetspark.jetstream.context:JetStreamContext",
            inner=_JS,
            attributes=_CALLER,
        )
    ],
    "jetstream.streams": [Twin("jetspark.jetstream.streams:StreamCalls", inner=_JS)],
    "jetstream.stored_calls": [Twin("jetspark.jetstream.stored:StoredCalls", inner=_JS)],
    "jetstream.publishing": [
        Twin(
            "jetspark.jetstream.publish:PublishCalls",
            bases=("ThisThreadCalls",),
            inner="-",
        ),
        Twin(
            "jetspark.jetstream.batches:BatchCalls",
            bases=("ThisThreadCalls",),
            inner="-",
            attributes=(),
        ),
    ],
    "jetstream.publisher": [
        Twin(
            "jetspark.jetstream.publisher:Publisher",
            bases=("Sending",),
            inner="WindowedPublishing",
            attributes=(),
            hooks=(
                "_send_message(self, subject: str, payload: Payload, headers: HeadersLike | None,"
                " msg_id: str | None, ttl: TimeToLive | None) -> int",
                "_submit_message(self, subject: str, payload: Payload, headers: HeadersLike | None,"
                " msg_id: str | None, ttl: TimeToLive | None) -> Future[PubAck]",
            ),
        )
    ],
    "jetstream.batch": [
        Twin(
            "jetspark.jetstream.batches:AtomicBatch",
            bases=("EnteringInTurn",),
            attributes=(),
            run="self._run_in_turn(self._inner.{name}, {args})",
            hooks=("_add_message(self, subject: str, payload: Payload, **options: Any) -> int",),
        )
    ],
    "jetstream.fast_ingest": [
        Twin(
            "jetspark.jetstream.batches:FastIngest",
            bases=("Sending",),
            inner="Ingesting",
            attributes=(),
            hooks=(
                "_add_message(self, subject: str, payload: Payload, headers: Headers | None)"
                " -> int",
            ),
        )
    ],
    "jetstream.message": [
        Twin(
            "jetspark.jetstream.message:JsMsg",
            bases=("Message",),
            inner="-",
            run="drive(self._answerer().{name}({args}))",
            read="self._answerer().{name}",
            attributes=(),
            hooks=("_answerer(self) -> AsyncJsMsg",),
            slots=True,
        )
    ],
    "jetstream.consume": [
        Twin(
            "jetspark.jetstream.consume:ConsumerMessages",
            bases=("Taking[JsMsg]",),
            attributes=(),
        )
    ],
    "jetstream.push": [
        Twin(
            "jetspark.jetstream.consumers:PushMessages",
            bases=("Taking[JsMsg]",),
            attributes=(),
        )
    ],
    "jetstream.ordered": [
        Twin(
            "jetspark.jetstream.ordered:OrderedMessages",
            bases=("ConsumerMessages",),
            attributes=(),
        )
    ],
    "jetstream.consumers": [
        Twin(
            "jetspark.jetstream.consumers:Consumer",
            **_CONSUMER,
        ),
        Twin("jetspark.jetstream.consumers:PullConsumer", **_CONSUMER),
        Twin("jetspark.jetstream.consumers:PushConsumer", **_CONSUMER),
    ],
    "jetstream.consumer_calls": [
        Twin(
            "jetspark.jetstream.consumers:ConsumerCalls",
            also=("jetspark.jetstream.ordered:OrderedCalls",),
            inner=_JS,
            attributes=_CALLER,
        ),
    ],
    "jetstream.events": [
        Twin(
            "jetspark.jetstream.events:Events",
            attributes=("_thread: LoopThread", "_client: CallerSide", "_worker: Worker"),
        )
    ],
    "jetstream.event_calls": [
        Twin(
            "jetspark.jetstream.events:EventCalls",
            inner=_JS,
            attributes=("_caller: CallerSide",),
        )
    ],
    "jetstream.backups": [
        Twin(
            "jetspark.jetstream.backup:BackupCalls",
            also=("jetspark.jetstream.restore:RestoreCalls",),
            inner=_JS,
        )
    ],
    "jetstream.paging": [Twin("jetspark.jetstream.paging:Paged", slots=True)],
    "kv.read_only": [Twin("jetspark.kv.bucket:ReadOnlyBucket")],
    "kv.bucket": [Twin("jetspark.kv.bucket:Bucket", bases=("ReadOnlyBucket",))],
    "kv.lock": [Twin("jetspark.kv.lock:Lock")],
    "kv.election": [Twin("jetspark.kv.lock:Election")],
    "kv.live": [Twin("jetspark.kv.watch:LiveBucket", bases=("Mapping[str, bytes]",))],
    "kv.calls": [Twin("jetspark.kv.bucket:BucketCalls", inner=_JS)],
    "objects.store": [
        Twin(
            "jetspark.objects.store:ObjectStore",
            hooks=(
                "_put(self, data: ObjectData, write: Callable[[], ObjectWriter]) -> ObjectInfo",
            ),
        )
    ],
    "objects.reader": [Twin("jetspark.objects.reader:ObjectReader")],
    "objects.calls": [Twin("jetspark.objects.store:ObjectStoreCalls", inner=_JS)],
    "services.request": [
        Twin(
            "jetspark.services.endpoint:Request",
            bases=("RequestView",),
            inner="-",
            run="drive(AsyncRequest(self._client, frame_of(self)).{name}({args}))",
            attributes=("_client: Answering",),
            slots=True,
        )
    ],
    "services.endpoint_calls": [
        Twin(
            "jetspark.services.service:EndpointCalls",
            hooks=(
                "_add(self, options: EndpointOptions, handler: Handler) -> None",
                "_add_nowait(self, options: EndpointOptions, handler: Handler) -> None",
            ),
        )
    ],
    "services.service": [Twin("jetspark.services.service:Service")],
    "services.discovery": [Twin("jetspark.services.discovery:Services", attributes=_CALLER)],
    "system.system": [Twin("jetspark.system.system:System")],
    "identity.callout": [Twin("jetspark.identity.callout:AuthCallout")],
    "groups.calls": [Twin("jetspark.groups.group:GroupCalls", inner=_JS, attributes=_CALLER)],
    "groups.group": [
        Twin("jetspark.groups.group:ConsumerGroup", **_GROUP),
        Twin("jetspark.groups.group:StaticGroup", **_GROUP),
        Twin("jetspark.groups.group:ElasticGroup", **_GROUP),
    ],
    "groups.member": [Twin("jetspark.groups.member:GroupMember", **_GROUP)],
    "dead_letters.calls": [Twin("jetspark.dead_letters.dead_letters:DeadLetterCalls", inner=_JS)],
    "dead_letters.dead_letters": [Twin("jetspark.dead_letters.dead_letters:DeadLetters")],
    "dead_letters.worker": [Twin("jetspark.dead_letters.worker:DeadLetterWorker")],
    "connecting": [],
}

BY_HAND = "raise NotImplementedError"
ON_LOOP = "self._thread.call(self._inner.{name}, {args})"
DIRECTLY = "self._inner.{name}({args})"
_DRAIN = "drain(self._client, self._worker, self._inner.drain, timeout)"
_PENDING = "self._inner.pending_msgs + len(self._taken)"
_STOP = "self._stop(self._inner.stop)"
_NEXT = "self._next_within(timeout)"
_CROWDED = "if self._buffer.crowded:\n    self._buffer.block()\n"
_SEND = "self._publishing.send(subject, payload, reply, headers)"
_CORE = "self._inner.api, self._caller.publishing"
_OPTIONS = (
    "self._inner.endpoint_options(name, subject, queue_group, metadata, concurrency, max_pending)"
)

BODIES: dict[str, str] = {
    # What is neither a property, nor run in the event loop, nor wrapped (see WRAPPED).
    "*.__repr__": "repr(self._inner)",
    "Client.__init__": "self.options = options or ConnectOptions()\n"
    "self._make(hooks, event_callback, error_callback, dial)",
    "Client.publish": _CROWDED + _SEND,
    "Client.publish_msg": BY_HAND,
    "Client.publish_nowait": _SEND,
    "Client.request": "Message(self._caller, self._caller.ask(subject, payload, timeout, headers))",
    "Client.request_msg": BY_HAND,
    "Client.new_inbox": DIRECTLY,
    "Client.events": f"EventStream(self._thread, {ON_LOOP})",
    "Client.report": ON_LOOP,
    "Client.set_servers": ON_LOOP,
    "Client.stats": BY_HAND,
    "Client.status": BY_HAND,
    "Client.is_connected": BY_HAND,
    "Client.connect": BY_HAND,
    "Client.flush": BY_HAND,
    "Client.drain": BY_HAND,
    "Client.barrier": BY_HAND,
    "Client.close": BY_HAND,
    "Client.jetstream": "JetStream(self, {args})",
    "Message.respond": "drive(AsyncMessage(self._client, frame_of(self)).respond({args}))",
    "EventStream.close": ON_LOOP,
    "Subscription.pending_msgs": _PENDING,
    "Subscription.pending_bytes": BY_HAND,
    "Subscription.delivered": BY_HAND,
    "Subscription.next": _NEXT,
    "Subscription.unsubscribe": BY_HAND,
    "Subscription.drain": _DRAIN,
    "ConsumerMessages.pending_msgs": _PENDING,
    "ConsumerMessages.next": _NEXT,
    "ConsumerMessages.stop": _STOP,
    "ConsumerMessages.drain": _DRAIN,
    "OrderedMessages.next": _NEXT,
    "OrderedMessages.stop": _STOP,
    "OrderedMessages.drain": _DRAIN,
    "OrderedMessages.pending_msgs": _PENDING,
    "PushMessages.pending_msgs": _PENDING,
    "PushMessages.next": _NEXT,
    "PushMessages.stop": _STOP,
    "PushMessages.drain": _DRAIN,
    "Events.close": BY_HAND,
    "Events.drain": _DRAIN,
    "Watching.next": BY_HAND,
    "Watching.stop": BY_HAND,
    "JetStreamContext.__init__": "self._client = client\nself._thread = client._thread\n"
    "self._caller = client._caller\nself._inner = AsyncJetStream(client._inner, {kwargs})",
    "PublishCalls.publish": "self._publish(subject, payload, "
    "publish_headers(self._inner.api.server, {args}), timeout)",
    "PublishCalls.publish_msg": "self.publish(*parts_of(message)[:2], "
    "headers=headers_of(message), {args})",
    "PublishCalls.publisher": "Publisher(self._caller, self._inner.api, "
    "publisher_options(self._inner.api, {names}))",
    "BatchCalls.atomic_batch": f"AtomicBatch(self._caller, atomic_batch({_CORE}, {{names}}))",
    "BatchCalls.fast_ingest": f"FastIngest(self._caller, fast_ingest({_CORE}, {{names}}))",
    "Publisher.send": "self._send_message({names})",
    "Publisher.submit": "self._submit_message({names})",
    "Publisher.flush": BY_HAND,
    "Publisher.pending": "self._inner.window.count()",
    "Publisher.sent": "self._inner.window.sent",
    "Publisher.failed": "self._inner.failed()",
    "AtomicBatch.add": "self._add_message({args})",
    "FastIngest.add": "self._add_message(subject, payload, self._inner.headers({args}))",
    "FastIngest.commit": BY_HAND,
    "FastIngest.sent": "self._inner.window.sent",
    "FastIngest.pending": "self._inner.window.pending",
    "FastIngest.acked": "self._inner.window.acked",
    "FastIngest.failed": "self._inner.failed()",
    "BackupCalls.backup_stream": "transfer(self._thread, "
    "partial(self._inner.backup_stream, {args}), progress)",
    "BackupCalls.restore_stream": "transfer(self._thread, "
    "partial(self._inner.restore_stream, {args}), progress)",
    "ReadOnlyBucket.with_codecs": BY_HAND,
    "Bucket.read_only": "ReadOnlyBucket(self._thread, self._inner.read_only())",
    "Election.next": BY_HAND,
    "GroupMember.next": BY_HAND,
    "GroupMember.stop": BY_HAND,
    "ConsumerGroup.partitions": DIRECTLY,
    "LiveBucket.entry": DIRECTLY,
    "LiveBucket.entries": DIRECTLY,
    "LiveBucket.snapshot": DIRECTLY,
    "LiveBucket.items": DIRECTLY,
    "LiveBucket.values": DIRECTLY,
    "ObjectStore.put": "self._put(data, "
    "partial(self._inner.writer, name, description, headers, metadata, chunk_size))",
    "ObjectStore.get_into": BY_HAND,
    "ObjectReader.stop": BY_HAND,
    "Client.add_service": "Service(self._caller, "
    "self._thread.run(start_service, self._inner, {names}))",
    "Client.trace": "self._thread.run(trace_message, self._inner, {names})",
    "Client.system": "System(self._thread, AsyncSystem(self._inner, timeout, stall))",
    "Client.auth_callout": "AuthCallout(self._caller, {names})",
    "Client.services": "Services(self._caller, AsyncServices(self._inner, prefix))",
    "Request.respond": "if self._client.publishing.outbox.crowded:\n"
    "    drive(AsyncRequest(self._client, frame_of(self)).respond({args}))\n"
    "else:\n    self._client.send(self._frame.reply, {args})",
    "Request.respond_nowait": "self._client.send(self._frame.reply, {args})",
    "EndpointCalls.add_endpoint": f"self._add({_OPTIONS}, handler)",
    "EndpointCalls.endpoint": "self._inner.decorator(self._add_nowait, {names})",
    "Service.info": ON_LOOP,
    "Service.stats": ON_LOOP,
    "Service.reset": ON_LOOP,
    "Service.stop": BY_HAND,
    "AuthCallout.stop": BY_HAND,
    "Services.request": "answered(Message(self._caller, "
    "self._caller.ask(subject, payload, timeout, headers)))",
    "Services.request_json": "json_answer(subject, "
    "self.request(subject, json_payload(value), timeout=timeout, headers=headers), type)",
}

ABSENT = {
    # Public in the asyncio class, and for nobody who uses the blocking one.
    *("Client.adopt", "Client.ask", "Client.ask_many", "Client.listen", "Client.publish_replying"),
    "JetStreamContext.client",
    *("Client.require_open", "Client.check_loop", "JetStreamContext.api"),
    *("EventStream.push", "Watching.report", "Watching.last_seq"),
    "EndpointCalls.add_group",  # by hand: it makes what inherits it
    *("EndpointCalls.owner", "EndpointCalls.endpoint_options", "EndpointCalls.decorator"),
    "AuthCallout.begin",
    *("Service.owner", "Service.begin", "Service.add", "Service.add_nowait"),
    *("ReadOnlyBucket.client", "Lock.lose", "ObjectStore.writer", "*.callback_task"),
    *("*.abandon", "*.handled", "*.left_by", "*.take_queued", "*.take_ready"),
}

ARGUMENTS: dict[str, dict[str, str | None]] = {
    # What is given for an argument instead of itself; None: nothing.
    "PublishCalls.publish": {"subject": None, "payload": None, "timeout": None},
    "PublishCalls.publish_msg": {"message": None},
    "FastIngest.add": {"subject": None, "payload": None},
    "Client.request_many": {"sentinel": "judging(self._caller, sentinel)"},
    "BackupCalls.backup_stream": {"progress": None},
    "BackupCalls.restore_stream": {"progress": None},
}

WRAPPED: dict[str, str] = {
    # By the type of the result. {value}: what the asyncio call returns. {begin}: a function that
    # makes the asyncio call with another callback.
    "Replies": "Replies(self._caller, {value})",
    "Subscription": "Subscription(self._caller, subject, {begin}, callback)",
    "Paged": "Paged(self._thread, {value})",
    "Listing": "Listing(self._thread, {value})",
    "StoredMsgs": "StoredMsgs(self._thread, {value})",
    "PullConsumer": "PullConsumer(self._caller, {value})",
    "PushConsumer": "PushConsumer(self._caller, {value})",
    "JsMsg": "received(self._client, {value})",
    "FetchResult": "fetched(self._client, {value})",
    "ConsumerMessages": "ConsumerMessages(self._client, self._inner.name, {begin}, callback)",
    "PushMessages": "PushMessages(self._client, self._inner.name, {begin}, callback)",
    "OrderedMessages": "OrderedMessages(self._caller, stream, {begin}, callback)",
    "Events": "Events(self._caller, {begin}, callback)",
    "Bucket": "Bucket(self._thread, {value})",
    "Lock": "Lock(self._thread, {value})",
    "Election": "Election(self._thread, key, {begin}, callback)",
    "Watcher": "Watcher(self._thread, self._inner.client, self._inner.name, {begin}, callback)",
    "LiveBucket": "LiveBucket(self._thread, self._inner.name, {begin}, on_change)",
    "StaticGroup": "StaticGroup(self._caller, {value})",
    "ElasticGroup": "ElasticGroup(self._caller, {value})",
    "GroupMember": "GroupMember(self._client, {begin}, callback)",
    "DeadLetters": "DeadLetters(self._thread, {value})",
    "DeadLetterWorker": "DeadLetterWorker(self._thread, {value})",
    "ObjectStore": "ObjectStore(self._thread, {value})",
    "ObjectReader": "ObjectReader(self._thread, {value})",
    "ObjectWatcher": "ObjectWatcher(self._thread, {value})",
}

OTHER_TYPES: dict[str, tuple[str, ...]] = {
    # Types of this name stand here below jetspark.blocking, and mean these in what is written.
    "client": ("Client",),
    "events": ("EventStream", "EventCallback", "ErrorCallback"),
    "replies": ("Replies",),
    "messages": ("Message",),
    "subscription": ("Subscription", "MessageCallback"),
    "listing": ("Listing",),
    "jetstream.context": ("JetStream",),
    "jetstream.paging": ("Paged",),
    "jetstream.message": ("JsMsg", "FetchResult"),
    "jetstream.consume": ("ConsumerMessages", "JsMsgCallback"),
    "jetstream.push": ("PushMessages",),
    "jetstream.ordered": ("OrderedMessages",),
    "jetstream.consumers": ("PullConsumer", "PushConsumer"),
    "jetstream.events": ("Events", "EventCallback"),
    "jetstream.stored": ("StoredMsgs",),
    "jetstream.publisher": ("Publisher",),
    "jetstream.batch": ("AtomicBatch",),
    "jetstream.fast_ingest": ("FastIngest",),
    "jetstream.backup": ("ProgressCallback",),
    "kv.bucket": ("Bucket",),
    "kv.read_only": ("ReadOnlyBucket",),
    "kv.lock": ("Lock",),
    "kv.election": ("Election", "StateCallback"),
    "kv.watch": ("Watcher", "EntryCallback"),
    "kv.live": ("LiveBucket", "ChangeCallback"),
    "groups.group": ("ConsumerGroup", "StaticGroup", "ElasticGroup"),
    "groups.member": ("GroupMember", "GroupCallback"),
    "groups.message": ("GroupMsg",),
    "dead_letters.dead_letters": ("DeadLetters",),
    "dead_letters.worker": ("DeadLetterWorker",),
    "objects.store": ("ObjectStore",),
    "objects.content": ("ObjectData",),
    "objects.reader": ("ObjectReader",),
    "objects.watch": ("ObjectWatcher",),
    "system.system": ("System",),
    "identity.callout": ("AuthCallout", "CalloutHandler"),
    "services.discovery": ("Services",),
    "services.endpoint_calls": ("EndpointCalls", "Group"),
    "services.handling": ("Handler", "HandlerT"),
    "services.service": ("Service",),
}

HELPERS: dict[str, str] = {
    # Names in the tables above.
    "Any": "typing",
    **dict.fromkeys(("Callable", "Coroutine", "Mapping"), "collections.abc"),
    "partial": "functools",
    "Future": "concurrent.futures",
    "drive": "jetspark.blocking.caller_side",
    "CallerSide": "jetspark.blocking.caller_side",
    "PublishBuffer": "jetspark.blocking.publish_buffer",
    "LoopThread": "jetspark.blocking.loop_thread",
    "Worker": "jetspark.blocking.worker",
    "EnteringInTurn": "jetspark.blocking.leaving",
    "Taking": "jetspark.blocking.taking",
    "drain": "jetspark.blocking.taking",
    "judging": "jetspark.blocking.replies",
    **dict.fromkeys(("fetched", "received"), "jetspark.blocking.jetstream.message"),
    "transfer": "jetspark.blocking.jetstream.backup",
    "ThisThreadCalls": "jetspark.blocking.jetstream.this_thread",
    "MessageView": "jetspark.client.messages",
    "make_options": "jetspark.connection.options",
    **dict.fromkeys(("atomic_batch", "fast_ingest"), "jetspark.jetstream.batches"),
    **dict.fromkeys(("publish_headers", "headers_of"), "jetspark.jetstream.publisher"),
    "parts_of": "jetspark.client.messages",
    "Sending": "jetspark.blocking.jetstream.sending",
    "Ingesting": "jetspark.jetstream.batches",
    "Headers": "jetspark.wire.headers",
    "Publishing": "jetspark.client.publishing",
    "frame_of": "jetspark.wire.kernel",
    "WindowedPublishing": "jetspark.jetstream.publisher",
    "publisher_options": "jetspark.jetstream.publish",
    "ObjectWriter": "jetspark.objects.writer",
    "AsyncJetStream": "jetspark.full_client:JetStream",
    "AsyncMessage": "jetspark.client.messages:Message",
    "AsyncJsMsg": "jetspark.jetstream.message:JsMsg",
    "AsyncRequest": "jetspark.services.endpoint:Request",
    "AsyncSystem": "jetspark.system.system:System",
    "AsyncServices": "jetspark.services.discovery:Services",
    "Answering": "jetspark.services.endpoint",
    "RequestView": "jetspark.services.endpoint",
    "EndpointOptions": "jetspark.services.endpoint",
    "start_service": "jetspark.services.service",
    "trace_message": "jetspark.tracing.calls",
    **dict.fromkeys(("answered", "json_answer", "json_payload"), "jetspark.services.discovery"),
}

WORDS: dict[str, dict[str, str]] = {
    # What a docstring says otherwise, beside `await`.
    "Client.events": {"Async iterator": "Iterator"},
    "Client.publish_nowait": {"with this turn": "with the next turn"},
    "Client.request": {"Cancelling it": "Interrupting it"},
    "Client.request_many": {
        "`async for` over the result, or `await` it for a list": (
            "iterate the result, or make a `list` of it"
        ),
        "for which it is true)": "for which it is true, called in the event loop's thread)",
    },
    "Client.subscribe": {"callback (plain or async).": "callback, called in a thread of its own."},
    "Client.drain": {"Awaited in": "Called in"},
    "Client.close": {"is cancelled.": "is left to finish, and gets no more."},
    "PullConsumer.consume": {"callback (plain or async).": "callback, called in its own thread."},
    "PushConsumer.subscribe": {"callback (plain or async).": "callback, called in its own thread."},
    "BackupCalls.backup_stream": {
        "`progress`, a function or coroutine function, is called with a BackupProgress": (
            "`progress` is called in the caller's thread with a BackupProgress"
        )
    },
    "RestoreCalls.restore_stream": {
        "`progress`, a function or coroutine function, is called with a BackupProgress": (
            "`progress` is called in the caller's thread with a BackupProgress"
        )
    },
    "ConsumerGroup.consume": {
        "callback (plain or async)": "callback, called in a thread of its own"
    },
    "Bucket.lock": {"async with bucket": "with bucket"},
    "Bucket.election": {
        "`callback` (plain or async) is called": "`callback` is called in a thread of its own"
    },
    "ObjectStore.put": {
        "iterable of bytes, async ones too; read piece by piece, files and iterables in threads.": (
            "iterable of bytes; read piece by piece in this thread."
        )
    },
    "ObjectStore.get": {"async for chunk in await": "for chunk in"},
    "ObjectStore.get_into": {"Written in threads.": "Written in this thread."},
    "EndpointCalls.add_endpoint": {
        "a handler (plain or async)": "a handler in a thread",
        "handled at once; by default": "handled at once, each in a thread; by default",
    },
    "Service.stop": {
        "are cancelled and answered with": "are answered with",
        "Awaited in a handler": "Called in a handler",
    },
    "Request.respond_nowait": {
        "with this turn of the event loop: for handlers that are plain functions": (
            "without waiting while the link accepts no more"
        )
    },
    "ServiceCalls.add_service": {
        "a plain function, called with": "a function, called in the event loop's thread with"
    },
    "CalloutCalls.auth_callout": {"`handler` (plain or async)": "`handler`, in a thread,"},
    "AuthCallout.stop": {
        "are cancelled; their users": "are left to finish; their users",
    },
    "Services.latencies": {"callback (plain or async)": "callback, called in its own thread"},
    "connect": {
        "`await connect(...)` or `async with connect(...) as nc`": (
            "`nc = connect(...)`, or `with connect(...) as nc`"
        ),
        "both may be async.": "both are called in a thread of their own.",
    },
}

BLOCKED = ((r"\bawait ", ""), (r"\basync (with|for)\b", r"\1"), (r"\basyncio\.Future\b", "Future"))
ASYNC = re.compile(r"\b([Aa]wait\w*|[Aa]sync|coroutine\w*|[Cc]ancel(led|ling)?)\b")

CONNECT = """
def connect({parameters}) -> Client:
    {doc}
    made = make_options(servers, **options)
    client = Client(
        made, hooks=hooks, event_callback=event_callback, error_callback=error_callback
    )
    client.connect()
    return client
"""

# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A method, property or attribute of an asyncio class."""

    owner: str
    """The class in which it stands."""
    name: str
    module: str
    arguments: ast.arguments | None
    """None: it is read."""
    returns: str
    doc: str
    is_async: bool = False


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


@cache
def names_of(module: str) -> dict[str, tuple[str, str]]:
    """What the names of a module mean: the module they come from, and their name there."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = (str(node.module), alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = (alias.name, "")
    for node in tree_of(module).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found[name] = (module, name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = (module, name)
    return found


def class_of(path: str) -> ast.ClassDef:
    module, _, name = path.partition(":")
    (found,) = (
        node
        for node in tree_of(module).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    return found


def calls_of(path: str) -> Iterator[Call]:
    """The public ones that stand in the class itself."""
    module = path.partition(":")[0]
    cls = class_of(path)
    for node in cls.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name == "__init__":
            yield from attributes_of(node, cls.name, module)
        if node.name.startswith("_") and node.name not in ("__init__", "__repr__"):
            continue
        reads = [ast.unparse(decorator) for decorator in node.decorator_list] == ["property"]
        assert reads or not node.decorator_list, f"{path}.{node.name} is decorated"
        yield Call(
            cls.name,
            node.name,
            module,
            None if reads else node.args,
            ast.unparse(node.returns) if node.returns else "None",
            ast.get_docstring(node) or "",
            isinstance(node, ast.AsyncFunctionDef),
        )


def attributes_of(
    init: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, module: str
) -> Iterator[Call]:
    """What a constructor sets in public, with the docstring below."""
    given = {each.arg: each.annotation for each in (*init.args.args, *init.args.kwonlyargs)}
    for node, after in zip(init.body, init.body[1:], strict=False):
        match node, after:
            case (
                ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=value)),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ) if value in given:
                annotation = given[value]
            case (
                ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ):
                pass
            case _:
                continue
        if not name.startswith("_"):
            assert annotation is not None
            yield Call(owner, name, module, None, ast.unparse(annotation), inspect.cleandoc(doc))


# -- writing ---------------------------------------------------------------------------------------


def arguments_of(call: ast.arguments, others: dict[str, str | None]) -> str:
    """The arguments, handed on."""
    positional = [*call.posonlyargs, *call.args][1:]
    handed = [(arg.arg, "{}") for arg in positional]
    handed += [(arg.arg, f"{arg.arg}={{}}") for arg in call.kwonlyargs]
    texts = [
        shape.format(value)
        for name, shape in handed
        if (value := others.get(name, name)) is not None
    ]
    if call.kwarg is not None:
        texts.append(f"**{call.kwarg.arg}")
    return ", ".join(texts)


def worded(name: str, doc: str, width: int = 92) -> str:
    """The docstring as the blocking client has it. `name`: Class.method, where it stands."""
    unused = dict(WORDS.get(name, {}))
    paragraphs = []
    for paragraph in doc.split("\n\n"):
        before = text = " ".join(paragraph.split())
        for old in [old for old in unused if old in text]:
            text = text.replace(old, unused.pop(old))
        for pattern, new in BLOCKED:
            text = re.sub(pattern, new, text)
        assert not (word := ASYNC.search(text)), f"{name} says {word}: see WORDS"
        if text != before:
            paragraph = textwrap.fill(text, width, break_on_hyphens=False)
        paragraphs.append(paragraph)
    assert not unused, f"{name} does not say {unused} any more: see WORDS"
    return "\n\n".join(paragraphs)


def docstring(name: str, doc: str, indent: int = 8) -> str:
    """The same as a literal."""
    assert doc, f"{name} has no docstring"
    assert "\\" not in doc, f"{name}: a backslash in its docstring"
    text = textwrap.indent(worded(name, doc, 100 - indent), " " * indent).strip()
    return f'"""{text}' + (f"\n{' ' * indent}" if "\n" in text else "") + '"""'


def twin_of(module: str, name: str) -> str | None:
    """The blocking module that has the twin of an asyncio module's type."""
    found = [twin for twin, names in OTHER_TYPES.items() if name in names]
    if len(found) > 1:
        jetstream = module.startswith("jetspark.jetstream.")
        found = [twin for twin in found if twin.startswith("jetstream.") == jetstream]
    return f"jetspark.blocking.{found[0]}" if found else None


@dataclass
class Module:
    """The text of one module, and what it imports."""

    name: str
    text: str = ""
    imports: dict[str, str] = field(default_factory=dict)
    """Names, and their import statements."""

    def use(self, text: str, source: str | None = None) -> str:
        """Import what a piece of Python names, as it is meant in the module `source`."""
        known = names_of(source) if source is not None else {}
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Name):
                continue
            name = node.id
            if name in known:
                module, original = known[name]
                self.add(name, twin_of(module, name) or module, original)
            elif (module := HELPERS.get(name) or twin_of("", name) or "") != "":
                module, _, original = module.partition(":")
                self.add(name, module, original or name)
        return text

    def add(self, name: str, module: str, original: str) -> None:
        line = f"from {module} import {original}" if original else f"import {module}"
        if original and name != original:
            line += f" as {name}"
        assert module != f"jetspark.blocking.{self.name}", f"{module} imports what needs its {name}"
        if (other := self.imports.setdefault(name, line)) != line:
            other_module = other.split()[1]
            same = getattr(sys.modules[module], original) is getattr(
                sys.modules[other_module], original, None
            )
            assert same, f"two meanings of {name} in {self.name}"

    def write_class(self, twin: Twin) -> None:
        module, _, name = twin.one.partition(":")
        bases = [self.use(base) for base in twin.bases]
        inner = twin.inner or f"Async{name}"
        variables = [
            ast.unparse(base.slice)
            for base in class_of(twin.one).bases
            if isinstance(base, ast.Subscript) and ast.unparse(base.value) == "Generic"
        ]
        for variable in variables:
            bases.append(f"Generic[{variable}]")
            self.use(variable, module)
            self.add("Generic", "typing", "Generic")
            inner = f"{inner}[{variable}]"
        lines = [f"class {PREFIX}{name}" + (f"({', '.join(bases)})" if bases else "") + ":"]
        lines.append(f'    """The calls of `{name}` that hand on to its asyncio twin."""\n')
        if twin.slots:
            lines.append("    __slots__ = ()\n")
        lines += [f"    {self.use(text)}" for text in twin.attributes]
        if twin.inner != "-":
            if twin.inner:
                self.use(inner)
            else:
                self.add(f"Async{name}", module, name)
            lines.append(f"    _inner: {inner}")
        for hook in twin.hooks:
            # Its types are known in the asyncio module, or helpers.
            self.use(f"def {hook}: ...", module)
            lines.append(f"\n    def {hook}:\n        raise NotImplementedError")
        seen: set[str] = set()
        for path in (twin.one, *twin.also):
            # A constructor first.
            for call in sorted(calls_of(path), key=lambda call: call.name != "__init__"):
                absent = not ABSENT.isdisjoint({f"{name}.{call.name}", f"*.{call.name}"})
                if absent or call.name in seen:
                    continue
                if call.name == "__init__" and self.body(name, call) is None:
                    continue
                seen.add(call.name)
                lines.append(self.write_call(name, twin, call))
        self.text += "\n\n" + "\n".join(lines) + "\n"

    def body(self, name: str, call: Call) -> str | None:
        return BODIES.get(f"{name}.{call.name}") or BODIES.get(f"*.{call.name}")

    def write_call(self, name: str, twin: Twin, call: Call) -> str:
        path = f"{name}.{call.name}"
        returns = call.returns.replace("asyncio.Future[", "Future[")
        for text in (returns, *texts_of(call.arguments)):
            self.use(text, call.module)
        doc = ""
        if not call.name.startswith("__"):
            doc = f"{' ' * 8}{docstring(f'{call.owner}.{call.name}', call.doc)}\n"
        if call.arguments is None:
            body = self.body(name, call) or twin.read.format(name=call.name)
            head = f"    @property\n    def {call.name}(self) -> {returns}:\n"
        else:
            body = self.call_body(path, twin, call)
            parameters = ast.unparse(call.arguments)
            head = f"    def {call.name}({parameters}) -> {returns}:\n"
        body = body.replace(", )", ")")
        self.use(body)
        if body != BY_HAND and "\n" not in body and returns != "None":
            body = f"return {body}"
        return "\n" + head + doc + textwrap.indent(body, " " * 8)

    def call_body(self, path: str, twin: Twin, call: Call) -> str:
        assert call.arguments is not None
        others = ARGUMENTS.get(path, {})
        positional = [*call.arguments.posonlyargs, *call.arguments.args][1:]
        known = {
            "name": call.name,
            "args": arguments_of(call.arguments, others),
            "names": ", ".join(arg.arg for arg in (*positional, *call.arguments.kwonlyargs)),
            "kwargs": ", ".join(f"{arg.arg}={arg.arg}" for arg in call.arguments.kwonlyargs),
        }
        if (body := self.body(path.partition(".")[0], call)) is not None:
            return body.format(**known)
        wrap = WRAPPED.get(re.match(r"\w*", call.returns)[0])  # type: ignore[index]
        assert call.is_async or wrap, f"{path}: how is it called? See BODIES and WRAPPED."
        if wrap is None:
            return twin.run.format(**known)
        callback = next((c for c in ("callback", "on_change") if f", {c})" in wrap), "")
        handed = arguments_of(call.arguments, {**others, callback: "forward"})
        return wrap.format(
            value=(twin.run if call.is_async else DIRECTLY).format(**known),
            begin=f"lambda forward: self._inner.{call.name}({handed})",
        )

    def whole(self) -> str:
        name = self.name.rpartition(".")[2]
        imports = "\n".join(self.imports.values())
        says = f'"""Calls of jetspark.blocking that hand on: {name.replace("_", " ")}."""'
        return f"{HEAD}{says}\n\nfrom __future__ import annotations\n\n{imports}\n{self.text}"


def texts_of(arguments: ast.arguments | None) -> Iterator[str]:
    """The types and defaults of a signature."""
    if arguments is None:
        return
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [arg for arg in (arguments.vararg, arguments.kwarg) if arg]
    yield from (ast.unparse(arg.annotation) for arg in every if arg.annotation)
    yield from (
        ast.unparse(value) for value in (*arguments.defaults, *arguments.kw_defaults) if value
    )


def connecting(module: Module) -> None:
    """The function `connect`."""
    (node,) = (
        node
        for node in tree_of("jetspark.full_client").body
        if isinstance(node, ast.FunctionDef) and node.name == "connect"
    )
    doc = ast.get_docstring(node) or ""
    for text in texts_of(node.args):
        module.use(text, "jetspark.full_client")
    module.add("Client", "jetspark.blocking.full_client", "Client")
    module.use("make_options")
    text = CONNECT.format(parameters=ast.unparse(node.args), doc=docstring("connect", doc, 4))
    module.text += f"\n\n{text}"


# -- the folder ------------------------------------------------------------------------------------


def written() -> dict[str, str]:
    """The files of the folder, formatted."""
    with tempfile.TemporaryDirectory() as folder:
        for name, twins in MODULES.items():
            module = Module(name)
            for twin in twins:
                module.write_class(twin)
            if name == "connecting":
                connecting(module)
            file = Path(folder, *name.split(".")).with_suffix(".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(module.whole(), "utf-8")
        for package in {Path(folder), *(file.parent for file in Path(folder).rglob("*.py"))}:
            says = '"""Calls of jetspark.blocking that hand on to their asyncio twins."""\n'
            (package / "__init__.py").write_text(HEAD + says, "utf-8")
        for step in (("check", "--select=I,UP,F401", "--fix", "--quiet"), ("format", "--quiet")):
            command = [sys.executable, "-m", "ruff", *step, "--no-cache"]
            command += ["--config", str(ROOT / "pyproject.toml"), folder]
            command += ["--config", 'lint.isort.known-first-party=["jetspark"]']
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stdout + done.stderr)
        return {
            file.relative_to(folder).as_posix(): file.read_text("utf-8")
            for file in sorted(Path(folder).rglob("*.py"))
        }


def committed() -> dict[str, str]:
    """The files of the folder as they are."""
    return {
        file.relative_to(FOLDER).as_posix(): file.read_text("utf-8")
        for file in sorted(FOLDER.rglob("*.py"))
    }


def differing() -> list[str]:
    """The files that are not what would be written, or should not be there."""
    ours, theirs = written(), committed()
    return sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The delegations of the blocking client.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when they differ")
    if parser.parse_args().check:
        if names := differing():
            raise SystemExit(f"Run `python scripts/delegations.py`: {', '.join(names)} differ.")
        return
    files = written()
    for name in committed().keys() - files.keys():
        (FOLDER / name).unlink()
    for name, text in files.items():
        file = FOLDER / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()

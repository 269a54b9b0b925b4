"""The permissions that a user needs for a role with this client, no more and no less.

A role allows what jetspark publishes for that work, on every supported server, and what it
subscribes to. Names and subjects are checked, nothing is sent. Roles are joined with `|`.

A user who may read a stream through an ephemeral consumer may read all of it, and may pull from its
other consumers and delete them, because ephemeral consumers have random names. A user who
administers a stream decides which subjects it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self

from jetspark.documents.events import DEFAULT_EVENT_PREFIX, event_subjects
from jetspark.errors import ConfigError
from jetspark.kv_rules import check_bucket
from jetspark.letter_rules import subject_of_letter
from jetspark.registry.documents import BUCKET, SERVICE, SchemaRef, served_subject
from jetspark.registry.documents import Verb as RegistryVerb
from jetspark.subjects import (
    check_name,
    check_publish_subject,
    check_queue,
    check_subscribe_subject,
)
from jetspark.timestamps import Seconds, in_seconds
from jetspark.validation import check_whole, texts_of
from jetspark.wire import js_api
from jetspark.wire.js_api import Call
from jetspark.wire.service_api import DEFAULT_PREFIX as DEFAULT_SERVICE_PREFIX
from jetspark.wire.service_api import ServiceVerb, verb_subjects


@dataclass(frozen=True, slots=True)
class Responses:
    """Permission to respond to received messages (`allow_responses`), instead of ack subjects.

    `max`: responses to one message; each in_progress is one. `expires`: how long they are allowed
    after its delivery (seconds or a timedelta), at least the consumer's ack_wait. Raises
    ConfigError.
    """

    max: int = 10
    expires: Seconds = timedelta(minutes=10)

    def __post_init__(self) -> None:
        check_whole("max", self.max)
        if in_seconds(self.expires) < 1:
            raise ConfigError("expires must be at least 1 second.")

    def __or__(self, other: Self) -> Responses:
        return Responses(max(self.max, other.max), max(self.expires, other.expires, key=in_seconds))

    def to_dict(self) -> dict[str, Any]:
        """The value of `allow_responses` in a server's configuration."""
        return {"max": self.max, "expires": f"{round(in_seconds(self.expires))}s"}


@dataclass(frozen=True, slots=True)
class Permissions:
    """The subjects that may be published and subscribed to, and no others.

    A subscription allowed for a queue group only is written "subject group".
    """

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    responses: Responses | None = None

    def __or__(self, other: Permissions) -> Permissions:
        responses = self.responses or other.responses
        if self.responses is not None and other.responses is not None:
            responses = self.responses | other.responses
        return Permissions(
            tuple(dict.fromkeys(self.publish + other.publish)),
            tuple(dict.fromkeys(self.subscribe + other.subscribe)),
            responses,
        )

    def to_dict(self) -> dict[str, Any]:
        """The value of `permissions` in a server's configuration."""
        document: dict[str, Any] = {
            "publish": _side(self.publish),
            "subscribe": _side(self.subscribe),
        }
        if self.responses is not None:
            document["allow_responses"] = self.responses.to_dict()
        return document

    def to_json(self) -> str:
        """`to_dict` as JSON, which a server's configuration may contain."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def to_config(self) -> str:
        """The entry `permissions: {…}` of a user in a server's configuration."""
        return f"permissions: {self.to_json()}"


def _side(subjects: tuple[str, ...]) -> dict[str, list[str]]:
    # A server may take an empty allow list for "everything".
    return {"allow": list(subjects)} if subjects else {"deny": [">"]}


USER_INFO: Final = "$SYS.REQ.USER.INFO"
_OF_SERVERS: Final = (
    *("STATSZ", "VARZ", "HEALTHZ", "CONNZ", "SUBSZ", "JSZ", "ACCOUNTZ"),
    *("ROUTEZ", "GATEWAYZ", "LEAFZ", "RAFTZ"),
)
_OF_ACCOUNTS: Final = ("INFO", "CONNZ", "JSZ", "SUBSZ", "STATZ")
_ADMINISTRATION: Final = (
    js_api.STREAM_CREATE,
    js_api.STREAM_UPDATE,
    js_api.STREAM_INFO,
    js_api.STREAM_DELETE,
    js_api.STREAM_PURGE,
    js_api.STREAM_LEADER_STEPDOWN,
    js_api.STREAM_PEER_EVACUATE,
    js_api.STREAM_PEER_REMOVE,
    js_api.STREAM_CANCEL_MOVE,
    js_api.MSG_GET,
    js_api.MSG_DELETE,
    js_api.CONSUMER_CREATE_UNNAMED,
    js_api.CONSUMER_CREATE,
    js_api.CONSUMER_CREATE_FILTERED,
    js_api.CONSUMER_DURABLE_CREATE,
    js_api.CONSUMER_INFO,
    js_api.CONSUMER_LIST,
    js_api.CONSUMER_NAMES,
    js_api.CONSUMER_DELETE,
    js_api.CONSUMER_PAUSE,
    js_api.CONSUMER_RESET,
    js_api.CONSUMER_UNPIN,
    js_api.CONSUMER_LEADER_STEPDOWN,
    js_api.CONSUMER_PEER_EVACUATE,
    js_api.CONSUMER_PEER_REMOVE,
)
# An ephemeral consumer: its name is random, so all names are allowed.
_OWN_CONSUMER: Final = (js_api.MSG_NEXT, js_api.CONSUMER_DELETE)
# A consumer that only marks progress is reset; nobody reads from it.
_MOVED_CONSUMER: Final = (js_api.CONSUMER_INFO, js_api.CONSUMER_RESET)


class Roles:
    """The permissions of roles, for one kind of connection.

    `inbox_prefix`: the connection's option; users who must not see each other's replies need
    different ones. `domain`, `api_prefix`: those of the JetStream context. The class and its roles
    raise ConfigError, BadNameError and BadSubjectError.
    """

    def __init__(
        self,
        *,
        inbox_prefix: str = "_INBOX",
        domain: str | None = None,
        api_prefix: str | None = None,
    ) -> None:
        check_publish_subject(inbox_prefix)
        self._inbox = f"{inbox_prefix}.>"
        self._prefix = js_api.api_prefix_of(domain, api_prefix)

    def publisher(self, subjects: str | Iterable[str], *, stream: str | None = None) -> Permissions:
        """Publish to a stream. `subjects`: the stream's subjects, or some of them.

        `stream`: also read its duplicate window, as a `JetStream.publisher` does before it sends a
        message with a msg_id again.
        """
        allowed = self._requesting(_subjects(subjects))
        if stream is not None:
            names = self._requesting((self._api(js_api.STREAM_NAMES),))
            allowed |= names | self._about(stream, (js_api.STREAM_INFO,))
        return allowed

    def pull_reader(
        self,
        stream: str,
        consumer: str,
        *,
        may_create: bool = False,
        responses: Responses | None = None,
    ) -> Permissions:
        """Bind to a pull consumer, fetch and acknowledge.

        `may_create`: create and update the consumer too. `responses`: acknowledge with the
        permission to respond, not with ack subjects.
        """
        return self._reader(stream, consumer, (js_api.MSG_NEXT,), may_create, responses)

    def push_reader(
        self,
        stream: str,
        consumer: str,
        deliver_subject: str,
        *,
        deliver_group: str | None = None,
        may_create: bool = False,
        responses: Responses | None = None,
    ) -> Permissions:
        """Receive from a push consumer, acknowledge, and answer its flow control requests.

        `deliver_group`: subscribe as a member of this queue group only. The other arguments are
        those of `pull_reader`.
        """
        check_subscribe_subject(deliver_subject)
        subscribed = deliver_subject
        if deliver_group is not None:
            check_queue(deliver_group)
            subscribed = f"{deliver_subject} {deliver_group}"
        reader = self._reader(stream, consumer, (), may_create, responses)
        flow = () if responses is not None else _flow_subjects(stream, consumer)
        return reader | Permissions(publish=flow, subscribe=(subscribed,))

    def ordered_reader(self, stream: str) -> Permissions:
        """Read a stream in order, through ephemeral consumers."""
        calls = (js_api.CONSUMER_CREATE_UNNAMED, js_api.CONSUMER_INFO, *_OWN_CONSUMER)
        return self._about(stream, calls)

    def range_reader(self, stream: str) -> Permissions:
        """Read ranges: `jetspark.read`, `jetspark.ranges`."""
        named = (js_api.CONSUMER_CREATE, js_api.CONSUMER_CREATE_FILTERED)
        return self._about(stream, (js_api.STREAM_INFO, js_api.MSG_GET, *named, *_OWN_CONSUMER))

    def stored_reader(self, stream: str) -> Permissions:
        """Read stored messages without a consumer: `Stream.get`, `get_many`, `get_last`."""
        direct = (js_api.DIRECT_GET, js_api.DIRECT_GET_LAST)
        return self._about(stream, (js_api.STREAM_INFO, js_api.MSG_GET, *direct))

    def spark_source(
        self,
        streams: str | Iterable[str],
        *,
        pattern: bool = False,
        sole_reader: bool = False,
        trim: bool = False,
        interest_consumer: str | None = None,
        progress_consumer: str | None = None,
        quarantine: str | None = None,
    ) -> Permissions:
        """Read streams with Spark, also by `jetspark ingest` and `jetspark run`.

        `pattern`: with the option streamPattern, which lists the names of all streams.
        `sole_reader`: with soleReader, which purges what it read from work queues and keeps other
        consumers out with one of its own. `trim`: with trim, which purges what it read, and looks
        for other readers in the lists of consumers and streams. `interest_consumer`,
        `progress_consumer`: with the option of that name. `quarantine`: the stream for records that
        do not become rows.
        """
        removes_by_reading = sole_reader or interest_consumer is not None
        if removes_by_reading and (trim or progress_consumer is not None):
            raise ConfigError(
                "trim and a progress consumer are for streams that keep what is read."
            )
        # Without a consumer: on a work queue it would take the messages.
        direct = (js_api.STREAM_INFO, js_api.MSG_GET, js_api.DIRECT_GET)
        claim = (js_api.CONSUMER_CREATE, js_api.CONSUMER_INFO)
        allowed = self._requesting((self._api(js_api.STREAM_NAMES),) if pattern else ())
        for stream in _texts_not_empty("streams", streams):
            if sole_reader:
                calls = (*direct, js_api.STREAM_PURGE, *claim)
                allowed |= self._about(stream, calls, "jetspark-sole-reader")
            elif interest_consumer is not None:
                check_name("consumer", interest_consumer)
                moved = (js_api.CONSUMER_CREATE, *_MOVED_CONSUMER)
                allowed |= self._about(stream, (*direct, *moved), interest_consumer)
                allowed |= self._about(stream, claim, f"{interest_consumer}-claim")
            else:
                allowed |= self.range_reader(stream)
            if trim:
                trimming = (js_api.STREAM_PURGE, js_api.MSG_GET, js_api.CONSUMER_LIST)
                allowed |= self._about(stream, (*trimming, *claim), "jetspark-trim")
                allowed |= self._requesting((self._api(js_api.STREAM_LIST),))
            if progress_consumer is not None:
                check_name("consumer", progress_consumer)
                allowed |= self._about(stream, _MOVED_CONSUMER, progress_consumer)
            if quarantine is not None:
                quarantining = (js_api.STREAM_INFO, js_api.STREAM_CREATE, js_api.MSG_GET)
                record_subject = subject_of_letter(quarantine, stream, "*", "*")
                allowed |= self._about(quarantine, quarantining) | Permissions(
                    publish=(record_subject,)
                )
        return allowed

    def spark_sink(
        self,
        stream: str,
        subjects: str | Iterable[str],
        *,
        exactly_once: bool = False,
        prepare_stream: bool = False,
    ) -> Permissions:
        """Write to a stream with Spark.

        `exactly_once`: with the guarantee exactly-once, which keeps a ledger in a second stream.
        `prepare_stream`: with the option prepareStream, which changes the stream's configuration as
        exactly-once needs it. Raises ConfigError for `prepare_stream` without `exactly_once`.
        """
        if prepare_stream and not exactly_once:
            raise ConfigError("A stream is prepared only for exactly-once: enable that too.")
        allowed = self.publisher(subjects) | self._about(stream, (js_api.STREAM_INFO,))
        if exactly_once:
            marking = (js_api.STREAM_CREATE, js_api.STREAM_PURGE)
            update = (js_api.STREAM_UPDATE,) if prepare_stream else ()
            allowed |= self._about(stream, (js_api.MSG_GET, *update))
            allowed |= self._about(
                f"{stream}_SPARK", (js_api.STREAM_INFO, js_api.MSG_GET, *marking)
            )
            allowed |= Permissions(publish=(f"_spark.{stream}.>",))
        return allowed

    def kv_reader(self, bucket: str) -> Permissions:
        """Get and watch keys of a bucket, list keys and history."""
        check_bucket(bucket)
        return self.stored_reader(f"KV_{bucket}") | self.ordered_reader(f"KV_{bucket}")

    def kv_writer(
        self, bucket: str, keys: str | Iterable[str] = (">",), *, origin: str | None = None
    ) -> Permissions:
        """Put, create, update, delete and purge keys; includes `kv_reader`.

        `keys`: only keys that match one of these filters. `origin`: the bucket that receives a
        mirror's writes, for a mirror in the same domain and account.
        """
        filters = _texts_not_empty("keys", keys)
        for key in filters:
            check_subscribe_subject(key)
        return self.kv_reader(bucket) | self._puts(origin or bucket, *filters)

    def administrator(self, stream: str) -> Permissions:
        """Create, update, purge and delete a stream and its consumers; delete single messages."""
        return self._about(stream, _ADMINISTRATION)

    def monitor(self, stream: str | None = None) -> Permissions:
        """Read information: of the account and all its streams, or of one stream."""
        consumers = (js_api.CONSUMER_LIST, js_api.CONSUMER_NAMES, js_api.CONSUMER_INFO)
        calls = (js_api.STREAM_INFO, *consumers)
        if stream is not None:
            return self._about(stream, calls)
        of_all = (js_api.ACCOUNT_INFO, js_api.STREAM_LIST, js_api.STREAM_NAMES)
        return self._requesting(tuple(self._api(call) for call in (*of_all, *calls)))

    def backup(self, stream: str) -> Permissions:
        """Back up a stream: backup_stream, `jetspark stream backup`."""
        saved = self._about(stream, (js_api.STREAM_SNAPSHOT,))
        return saved | Permissions(publish=(f"$JS.SNAPSHOT.ACK.{stream}.>",))

    def restore(self, stream: str) -> Permissions:
        """Restore a stream that does not exist: restore_stream, `jetspark stream restore`.

        A restore that fails half-way looks for its partial stream and deletes it, so this role
        allows both.
        """
        calls = (js_api.STREAM_RESTORE, js_api.STREAM_INFO, js_api.STREAM_DELETE)
        restored = self._about(stream, calls)
        return restored | Permissions(publish=(f"$JS.SNAPSHOT.RESTORE.{stream}.*",))

    def events(
        self,
        kinds: str | Iterable[str] | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        *,
        prefix: str = DEFAULT_EVENT_PREFIX,
    ) -> Permissions:
        """Receive events, and publish nothing.

        The arguments are those of `JetStream.events`. API audits have one subject for all streams:
        they are allowed for all or none.
        """
        return Permissions(subscribe=tuple(event_subjects(kinds, stream, consumer, prefix=prefix)))

    def dead_letters(
        self,
        letters: str,
        streams: str | Iterable[str],
        *,
        subjects: str | Iterable[str] | None = None,
        remove_originals: bool = False,
    ) -> Permissions:
        """Run, list and replay dead letters: `jetspark dead-letters run`, `ls` and `replay`.

        `letters`: the name of the dead letters. `streams`: the streams whose messages become
        letters. `subjects`: where letters are replayed to; without subjects, no letter can be
        replayed or deleted. `remove_originals`: allow that option, and let a replay into a work
        queue delete the original there. Creating dead letters needs `administrator`.
        """
        allowed = self.pull_reader(f"{letters}_ADVISORIES", "worker")
        replaying = () if subjects is None else (js_api.MSG_DELETE,)
        allowed |= self._about(f"{letters}_ADVISORIES", (js_api.STREAM_INFO,))
        allowed |= self._about(letters, (js_api.STREAM_INFO, js_api.MSG_GET, *replaying))
        allowed |= Permissions(publish=(f"_dead.{letters}.>",))
        if subjects is not None:
            allowed |= self.publisher(subjects)
        removing = (js_api.MSG_DELETE,) if remove_originals else ()
        for stream in _texts_not_empty("streams", streams):
            allowed |= self._about(stream, (js_api.STREAM_INFO, js_api.MSG_GET, *removing))
        return allowed

    def service(
        self,
        service: str,
        subjects: str | Iterable[str],
        *,
        queue_group: str | None = None,
        responses: Responses | None = None,
    ) -> Permissions:
        """Run instances of a service, and answer its requests.

        `subjects`: its endpoints' subjects, with the prefixes of their groups. `queue_group`: the
        only queue group that may listen on them. `responses`: how often and how long one request
        may be answered, by default ten times within ten minutes.
        """
        check_name("service", service)
        if queue_group is not None:
            check_queue(queue_group)
        member = f" {queue_group}" if queue_group else ""
        discovery = (subject for verb in ServiceVerb for subject in verb_subjects(verb, service))
        endpoints = (f"{subject}{member}" for subject in _subjects(subjects))
        return Permissions(subscribe=(*discovery, *endpoints), responses=responses or Responses())

    def service_client(self, subjects: str | Iterable[str]) -> Permissions:
        """Send requests to a service. `subjects`: its endpoints' subjects."""
        return self._requesting(_subjects(subjects))

    def service_monitor(
        self, service: str | None = None, *, service_prefix: str = DEFAULT_SERVICE_PREFIX
    ) -> Permissions:
        """Find and inspect all services, or those of one name.

        `service_prefix`: where another account's services are imported to.
        """
        check_publish_subject(service_prefix)
        if service is not None:
            check_name("service", service)
        levels = [
            verb_subjects(verb, service or "*", prefix=service_prefix) for verb in ServiceVerb
        ]
        first = 0 if service is None else 1
        return self._requesting(tuple(subject for level in levels for subject in level[first:]))

    def schema_registry(
        self, bucket: str = BUCKET, *, responses: Responses | None = None
    ) -> Permissions:
        """Run a schema registry: `jetspark registry serve`.

        `bucket`: its bucket, which it creates if there is none. `responses`: as for `service`.
        """
        served = self.service(SERVICE, map(served_subject, RegistryVerb), responses=responses)
        stream = f"KV_{check_bucket(bucket)}"
        stored = self._about(stream, (js_api.STREAM_CREATE, js_api.STREAM_INFO, js_api.MSG_GET))
        return (
            served | stored | self.ordered_reader(stream) | self._puts(bucket, SchemaRef(">").key)
        )

    def schema_reader(self) -> Permissions:
        """Get and list schemas of a registry."""
        return self._requesting(
            (served_subject(RegistryVerb.GET), served_subject(RegistryVerb.LIST))
        )

    def schema_writer(self) -> Permissions:
        """Register, change, remove, get and list schemas of a registry."""
        return self._requesting(tuple(map(served_subject, RegistryVerb)))

    def tracer(self, subjects: str | Iterable[str]) -> Permissions:
        """Trace the path of messages with `Client.trace`.

        `deliver`: also publish the traced messages. The server sends reports only to subjects that
        the tracing client may publish to.
        """
        return self._requesting((*_subjects(subjects), self._inbox))

    def auth_callout(
        self, *, queue_group: str = "auth-callout", responses: Responses | None = None
    ) -> Permissions:
        """Run an authorization callout service, in the callout's account.

        `queue_group`: its instances' queue group. `responses`: how long deciding on a login may
        take; by default a minute.
        """
        check_queue(queue_group)
        subject = f"$SYS.REQ.USER.AUTH {queue_group}"
        return Permissions(subscribe=(subject,), responses=responses or Responses(1, 60))

    def system_monitor(self, account: str | None = None) -> Permissions:
        """Inspect servers and accounts in the system account: all, or one account.

        For `Client.system`. It allows no request that changes something, such as a reload.
        """
        if account is not None:
            check_name("account", account)
        requests = [f"$SYS.REQ.ACCOUNT.{account or '*'}.{endpoint}" for endpoint in _OF_ACCOUNTS]
        if account is None:
            requests += [f"$SYS.REQ.SERVER.*.{endpoint}" for endpoint in _OF_SERVERS]
        return self._requesting(tuple(requests))

    def doctor(self) -> Permissions:
        """Ask for one's own permissions and the server's time: `jetspark doctor`."""
        return self._requesting((USER_INFO,))

    def _puts(self, bucket: str, *keys: str) -> Permissions:
        before = "" if self._prefix == js_api.DEFAULT_PREFIX else f"{self._prefix}."
        written = check_bucket(bucket)
        return Permissions(publish=tuple(f"{before}$KV.{written}.{key}" for key in keys))

    def _reader(
        self,
        stream: str,
        consumer: str,
        calls: tuple[Call, ...],
        may_create: bool,
        responses: Responses | None,
    ) -> Permissions:
        check_name("consumer", consumer)
        calls = (js_api.CONSUMER_INFO, *calls)
        if may_create:
            calls = (*calls, js_api.CONSUMER_CREATE, js_api.CONSUMER_CREATE_FILTERED)
        allowed = self._about(stream, calls, consumer)
        if responses is not None:
            return allowed | Permissions(responses=responses)
        return allowed | Permissions(publish=_ack_subjects(stream, consumer))

    def _about(self, stream: str, calls: Iterable[Call], consumer: str = "*") -> Permissions:
        check_name("stream", stream)
        return self._requesting(tuple(self._api(call, stream, consumer) for call in calls))

    def _api(self, call: Call, stream: str = "*", consumer: str = "*") -> str:
        names = {"stream": stream, "consumer": consumer, "filter": ">", "subject": ">"}
        return f"{self._prefix}.{call.template.format_map(names)}"

    def _requesting(self, publish: tuple[str, ...]) -> Permissions:
        """Publish requests, and receive the replies."""
        return Permissions(publish, (self._inbox,))


def _texts_not_empty(option: str, words: str | Iterable[str]) -> list[str]:
    texts = texts_of(option, words)
    if not texts:
        raise ConfigError(f"{option} is empty.")
    return texts


def _subjects(subjects: str | Iterable[str]) -> tuple[str, ...]:
    checked = _texts_not_empty("subjects", subjects)
    for subject in checked:
        check_subscribe_subject(subject)
    return tuple(checked)


def _ack_subjects(stream: str, consumer: str) -> tuple[str, ...]:
    # The number of tokens is exact, so that neither form matches the acks of another consumer.
    return (
        f"$JS.ACK.{stream}.{consumer}.*.*.*.*.*",
        f"$JS.ACK.*.*.{stream}.{consumer}.*.*.*.*.>",
    )


def _flow_subjects(stream: str, consumer: str) -> tuple[str, ...]:
    return f"$JS.FC.{stream}.{consumer}.*", f"$JS.FC.*.*.{stream}.{consumer}.*"

"""The few JetStream API calls that reading a range needs, over a blocking link.

Answers come from the stream's leader: STREAM.INFO and STREAM.MSG.GET are never behind, unlike
direct gets, which any replica may answer.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from jetspark.bulk.link import BlockingLink
from jetspark.errors import (
    APIError,
    ConsumerNotFoundError,
    JetStreamNotEnabledError,
    MessageNotFoundError,
    NoRespondersError,
    PermissionsError,
    RequestTimeoutError,
    StreamNotFoundError,
    StreamRecreatedError,
    UnsupportedByServerError,
)
from jetspark.subjects import nearest_name
from jetspark.timestamps import NANOSECONDS, parse_isotime
from jetspark.wire import js_api

# Passing states of a cluster that is electing or starting: worth asking again.
_PASSING = frozenset(
    {
        js_api.CLUSTER_NOT_AVAILABLE,
        js_api.NOT_LEADER,
        js_api.INSUFFICIENT_RESOURCES,
        js_api.WRONG_LAST_SEQUENCE_CONSTANT,
    }
)
_RETRY_SECONDS = 0.1
# A request is lost with a leader that stops; every call here may be asked twice. Parts of the
# timeout.
_ASK_AGAIN_AFTER = (0.2, 0.3)
_SILENCE_SECONDS = 1.0  # no responders for this long: JetStream is not there


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What planning and checking need to know of a stream."""

    name: str
    created: str
    """Creation time as the server writes it: another one means another stream."""
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    retention: str
    keeps_last_per_subject: bool
    """max_msgs_per_subject is the only limit, so the first sequence moves without any loss."""
    consumers: int = 0
    allows_direct: bool = False
    """Direct gets are allowed."""
    is_mirror: bool = False
    longest_inactive: float | None = None
    """Seconds that the stream allows its consumers to be inactive; None: as they like."""
    limits: str = ""
    """What makes messages go by themselves, in words; empty when nothing does."""
    oldest: str = ""
    """Time of the first message, as the server writes it; meaningless without messages."""
    subjects: tuple[str, ...] = ()
    """What it listens to and stores as it comes."""
    holds_others: bool = False
    """Messages may come under other subjects: it is a mirror, has sources, or changes subjects."""

    @property
    def removed_by(self) -> str:
        """Who may have removed messages, in words."""
        if self.limits:
            return f"by its limits ({self.limits}) or a purge"
        return "by a purge or deletion, since it has no limits"

    def another_than(self, created: str, advice: str = "") -> StreamRecreatedError:
        """The error for one of this name that was created at another time, with what to do."""
        restored: bool | None = None
        # A mirror has its origin's times.
        if self.messages and self.oldest and not self.is_mirror:
            restored = parse_isotime(self.oldest) < parse_isotime(self.created)
        return StreamRecreatedError(self.name, created, self.created, restored, advice)


class StoredMessage(NamedTuple):
    """A stored message, as the leader has it."""

    seq: int
    headers: bytes
    data: bytes
    subject: str
    time: str
    """RFC 3339."""


class StreamAPI:
    """Calls over one link. `timeout` in seconds for each call, passing errors retried within it."""

    def __init__(self, link: BlockingLink, timeout: float = 5.0) -> None:
        self.link = link
        self._timeout = timeout

    def stream(self, name: str) -> StreamFacts:
        """Raises StreamNotFoundError (naming the nearest stream), JetStreamNotEnabledError."""
        answer = self._info(name)
        config, state = answer["config"], answer["state"]
        return StreamFacts(
            name=name,
            created=answer["created"],
            first_seq=state["first_seq"],
            last_seq=state["last_seq"],
            messages=state["messages"],
            bytes=state["bytes"],
            retention=config.get("retention", "limits"),
            keeps_last_per_subject=config.get("max_msgs_per_subject", -1) > 0
            and config.get("max_age", 0) <= 0
            and config.get("max_msgs", -1) < 0
            and config.get("max_bytes", -1) < 0,
            consumers=state.get("consumer_count", 0),
            allows_direct=bool(config.get("allow_direct")),
            is_mirror="mirror" in config,
            longest_inactive=limits["inactive_threshold"] / NANOSECONDS
            if (limits := config.get("consumer_limits") or {}).get("inactive_threshold")
            else None,
            limits=_limits(config),
            oldest=state["first_ts"],
            subjects=() if "subject_transform" in config else tuple(config.get("subjects") or ()),
            holds_others=not {"mirror", "sources", "subject_transform"}.isdisjoint(config),
        )

    def config(self, name: str) -> dict[str, Any]:
        """A stream's configuration as the wire has it. Raises as `stream`."""
        config: dict[str, Any] = self._info(name)["config"]
        return config

    def _info(self, name: str) -> dict[str, Any]:
        try:
            return self.call(js_api.STREAM_INFO, None, stream=name)
        except StreamNotFoundError as error:
            raise StreamNotFoundError(
                error.code, error.err_code, error.description, self._not_found(name)
            ) from None

    def update(self, config: dict[str, Any]) -> dict[str, Any]:
        """Change a stream; its configuration afterwards."""
        changed: dict[str, Any] = self.call(js_api.STREAM_UPDATE, config, stream=config["name"])
        return dict(changed["config"])

    def stream_names(self) -> list[str]:
        """Names of all streams of the account."""
        names: list[str] = []
        while True:
            answer = self.call(js_api.STREAM_NAMES, {"offset": len(names)})
            page = answer.get("streams") or []
            names += page
            if not page or len(names) >= answer.get("total", 0):
                return names

    def create_reader(
        self,
        stream: str,
        name: str,
        start: int,
        subjects: Sequence[str],
        inactive: float,
        *,
        headers_only: bool = False,
        last_per_subject: bool = False,
    ) -> int:
        """An ephemeral pull consumer from sequence `start` on that acknowledges nothing.

        `last_per_subject`: from the last message of each of `subjects` on instead, which must be
        given.

        The server removes it after `inactive` seconds without a pull. Returns how many messages
        it has to deliver now.
        """
        if not self.link.info.at_least(2, 9):
            raise UnsupportedByServerError("Reading a range", "2.9", self.link.info.version)
        config: dict[str, Any] = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": round(inactive * NANOSECONDS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        if headers_only:
            config["headers_only"] = True
        if last_per_subject:
            config["deliver_policy"] = "last_per_subject"
            del config["opt_start_seq"]
        answer = self.create_consumer(stream, config, subjects)
        return int(answer.get("num_pending", 0))

    def create_consumer(
        self, stream: str, config: dict[str, Any], subjects: Sequence[str]
    ) -> dict[str, Any]:
        """A new consumer that `config` names, of the messages under `subjects`; all when empty."""
        call, names = js_api.CONSUMER_CREATE, {"stream": stream, "consumer": config["name"]}
        if len(subjects) == 1:
            config = {**config, "filter_subject": subjects[0]}
            # In the request's subject too, so that permissions can be given by filter; but a
            # subject with wildcards may not be published to.
            if not {"*", ">"} & set(subjects[0].split(".")):
                call, names = js_api.CONSUMER_CREATE_FILTERED, {**names, "filter": subjects[0]}
        elif subjects:
            if not self.link.info.at_least(2, 10):
                raise UnsupportedByServerError(
                    "Reading several subjects at once", "2.10", self.link.info.version
                )
            config = {**config, "filter_subjects": list(subjects)}
        request = {"stream_name": stream, "config": config, "action": "create"}
        return self.call(call, request, **names)

    def delete_reader(self, stream: str, name: str) -> None:
        """Remove the consumer; one that is gone already is fine."""
        try:
            self.call(js_api.CONSUMER_DELETE, None, stream=stream, consumer=name)
        except (ConsumerNotFoundError, StreamNotFoundError):
            pass

    def next_sequence(self, stream: str, at_least: int, subjects: Sequence[str]) -> int | None:
        """The leader's word: the first stored sequence >= `at_least` under one of the subjects."""
        found: list[int] = []
        for subject in subjects or (">",):
            try:
                answer = self.call(
                    js_api.MSG_GET, {"seq": at_least, "next_by_subj": subject}, stream=stream
                )
            except MessageNotFoundError:
                continue
            found.append(answer["message"]["seq"])
        return min(found, default=None)

    def purge(self, stream: str, before: int, subjects: Sequence[str] = ()) -> None:
        """Remove the messages before a sequence, those under one of the subjects if given."""
        for subject in subjects or (None,):
            what = {"seq": before} | ({} if subject is None else {"filter": subject})
            self.call(js_api.STREAM_PURGE, what, stream=stream)

    def message(self, stream: str, **which: int | str) -> StoredMessage | None:
        """The leader's word: a message by `seq`, `last_by_subj` or `next_by_subj`; None if none."""
        try:
            message = self.call(js_api.MSG_GET, dict(which), stream=stream)["message"]
        except MessageNotFoundError:
            return None
        return StoredMessage(
            message["seq"],
            base64.b64decode(message.get("hdrs") or ""),
            base64.b64decode(message.get("data") or ""),
            message["subject"],
            message["time"],
        )

    def subjects(self, stream: str, subject: str) -> set[str]:
        """The leader's word: the subjects that have messages, of those under a filter."""
        found: set[str] = set()
        while True:
            request = {"subjects_filter": subject, "offset": len(found)}
            answer = self.call(js_api.STREAM_INFO, request, stream=stream)
            page = (answer["state"].get("subjects") or {}).keys() - found
            found |= page
            if not page or len(found) >= answer.get("total", 0):
                return found

    def sequence_at(self, stream: str, ns: int) -> int | None:
        """The first stored sequence of time `ns` (nanoseconds) or later; None if all are older.

        Asks the leader for about log2 of the stream's length messages; relies on times that do
        not go back from one sequence to the next.
        """
        facts = self.stream(stream)
        low, high = facts.first_seq, facts.last_seq + 1
        found: int | None = None
        while low < high:
            middle = (low + high) // 2
            message = self._message(stream, middle)
            if message is None:
                high = middle  # nothing is stored from here on
            elif message[1] >= ns:
                found, high = message[0], middle
            else:
                low = message[0] + 1
        return found

    def _message(self, stream: str, at_least: int) -> tuple[int, int] | None:
        """Sequence and time of the first message stored at or behind a sequence."""
        try:
            request = {"seq": at_least, "next_by_subj": ">"}
            answer = self.call(js_api.MSG_GET, request, stream=stream)
        except MessageNotFoundError:
            return None
        return answer["message"]["seq"], parse_isotime(answer["message"]["time"])

    def _not_found(self, name: str) -> str:
        try:
            near = nearest_name(name, self.stream_names())
        except (PermissionsError, RequestTimeoutError):
            near = None  # who may not list streams gets no hint
        hint = f' (did you mean "{near}"?)' if near else ""
        return f'Stream "{name}" not found on {self.link.server}{hint}.'

    def call(
        self, call: js_api.Call, request: dict[str, Any] | None, **names: str
    ) -> dict[str, Any]:
        """One API call. Raises its typed error, once it is clear that it does not pass."""
        begun = time.monotonic()
        deadline = begun + self._timeout
        payload = b"" if request is None else msgspec.json.encode(request)
        while True:
            try:
                return self._ask(call, payload, deadline, names)
            except (APIError, NoRespondersError) as error:
                now = time.monotonic()
                if isinstance(error, NoRespondersError):
                    passing = now < begun + _SILENCE_SECONDS
                else:
                    passing = error.err_code in _PASSING
                if not passing or now + _RETRY_SECONDS > deadline:
                    raise _explain(error, self.link) from None
                time.sleep(_RETRY_SECONDS)

    def _ask(
        self, call: js_api.Call, payload: bytes, deadline: float, names: dict[str, str]
    ) -> dict[str, Any]:
        subject = js_api.subject_of(self.link.api_prefix, call, names)
        for patience in (*_ASK_AGAIN_AFTER, 1.0):
            until = min(deadline, time.monotonic() + patience * self._timeout)
            try:
                frame = self.link.request(subject, payload, until - time.monotonic())
            except RequestTimeoutError:
                continue
            return js_api.parse_answer(call, frame[4], names)
        raise RequestTimeoutError(
            f"JetStream on {self.link.server} did not answer within {self._timeout:g} s."
        )


def _limits(config: dict[str, Any]) -> str:
    found = [
        f"{name} {config[name]}"
        for name in ("max_msgs", "max_bytes", "max_msgs_per_subject")
        if config.get(name, -1) > 0
    ]
    if config.get("max_age", 0) > 0:
        found.append(f"max_age {config['max_age'] / NANOSECONDS:g} s")
    if config.get("allow_msg_ttl"):
        found.append("times to live of messages")
    return ", ".join(found)


def _explain(error: APIError | NoRespondersError, link: BlockingLink) -> Exception:
    if isinstance(error, NoRespondersError):
        return JetStreamNotEnabledError(
            503,
            js_api.NOT_ENABLED,
            "JetStream not enabled",
            f"JetStream does not answer on {link.server} under {link.api_prefix}: "
            "is it enabled there (nats-server -js), and for this account?",
        )
    return error

"""The calls of the JetStream API that reading and writing need, over a blocking link.

STREAM.INFO and STREAM.MSG.GET are answered by the stream's leader, or by a former leader that does
not know yet that it was replaced; where that matters, use `proof`. A direct get may be answered by
any replica.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from jetspark.bulk.facts import StreamFacts, facts_of, leader_of
from jetspark.bulk.leadership import Tenure, look_of
from jetspark.bulk.link import BlockingLink
from jetspark.bulk.retry import NOT_FOUND_SECONDS, CallRetry, answer_waits
from jetspark.err_codes import (
    NOT_ENABLED,
)
from jetspark.errors import (
    APIError,
    ConsumerNotFoundError,
    JetsparkError,
    JetStreamNotEnabledError,
    MessageNotFoundError,
    NoRespondersError,
    PermissionsError,
    RequestTimeoutError,
    StreamNotFoundError,
    UnsupportedByServerError,
)
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.subjects import nearest_name
from jetspark.timestamps import NANOSECONDS, parse_isotime
from jetspark.wire import js_api
from jetspark.wire.documents import encode_document
from jetspark.wire.subject_pages import SubjectPages

_tenures: WeakKeyDictionary[BlockingLink, dict[str, Tenure]] = WeakKeyDictionary()


class Reader(NamedTuple):
    """A consumer to read from."""

    pending: int
    """Messages to deliver, as of its creation."""
    server: str
    """The server that has the consumer; empty outside of a cluster."""


class StoredMessage(NamedTuple):
    """A stored message."""

    seq: int
    headers: bytes
    data: bytes
    subject: str
    time: str
    """RFC 3339."""


class StreamAPI:
    """Idempotent calls over one link, which are retried (`retry`). `timeout`: seconds for each.

    Every method raises as `call`.
    """

    def __init__(self, link: BlockingLink, timeout: float = 5.0) -> None:
        self.link = link
        self._timeout = timeout

    def stream(self, name: str, *, not_found_for: float = NOT_FOUND_SECONDS) -> StreamFacts:
        """The facts of a stream, which may be outdated; see `proof.leading`.

        `not_found_for`: seconds after which "not found" is final, in a cluster. Raises
        StreamNotFoundError, which suggests a stream with a similar name.
        """
        return facts_of(name, self._info(name, not_found_for), self.link.info.server_id)

    def config(self, name: str) -> dict[str, Any]:
        """A stream's configuration as the server sends it. Raises as `stream`."""
        config: dict[str, Any] = self._info(name)["config"]
        return config

    def tenure(self, name: str) -> Tenure:
        """What the answers over this link have shown about the stream's leader."""
        return _tenures.setdefault(self.link, {}).setdefault(name, Tenure())

    def _info(self, name: str, not_found_for: float = NOT_FOUND_SECONDS) -> dict[str, Any]:
        sent = time.monotonic()
        try:
            answer = self._call(js_api.STREAM_INFO, None, {"stream": name}, not_found_for)
        except StreamNotFoundError as error:
            raise StreamNotFoundError(
                error.code, error.err_code, error.description, self._not_found(name)
            ) from None
        self.tenure(name).add(look_of(answer, sent, time.monotonic()))
        return answer

    def update(self, config: dict[str, Any]) -> dict[str, Any]:
        """Update a stream; returns its new configuration."""
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

    def all_stream_names(self) -> list[str]:
        """The same, after a former metadata leader had time to learn that it was replaced."""
        names = self.stream_names()
        while not self.of_one_server:
            time.sleep(NOT_FOUND_SECONDS)
            before, names = names, self.stream_names()
            if names == before:
                break
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
    ) -> Reader:
        """Create an ephemeral pull consumer, from sequence `start` on, without acks.

        `last_per_subject`: from the last message of each of `subjects` on instead, which must be
        given. The server removes the consumer after `inactive` seconds without a pull. Raises
        UnsupportedByServerError.
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
        return Reader(int(answer.get("num_pending", 0)), leader_of(answer))

    def create_consumer(
        self, stream: str, config: dict[str, Any], subjects: Sequence[str]
    ) -> dict[str, Any]:
        """Create the consumer of `config` for messages under `subjects`, or all; the answer.

        Raises UnsupportedByServerError for several subjects before nats-server 2.10.
        """
        call, names = js_api.CONSUMER_CREATE, {"stream": stream, "consumer": config["name"]}
        if len(subjects) == 1:
            config = {**config, "filter_subject": subjects[0]}
            # Also in the request's subject, so that permissions can depend on the filter; not
            # with wildcards, which cannot be published to.
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

    def consumer(
        self, stream: str, consumer: str, *, not_found_for: float = NOT_FOUND_SECONDS
    ) -> dict[str, Any] | None:
        """The server's document of a consumer; None if there is none.

        `not_found_for`: seconds after which that is final, in a cluster.
        """
        try:
            names = {"stream": stream, "consumer": consumer}
            return self._call(js_api.CONSUMER_INFO, None, names, not_found_for)
        except ConsumerNotFoundError:
            return None

    def delete_reader(self, stream: str, name: str) -> None:
        """Delete the consumer, if it exists."""
        try:
            names = {"stream": stream, "consumer": name}
            self._call(js_api.CONSUMER_DELETE, None, names, not_found_for=0.0)
        except (ConsumerNotFoundError, StreamNotFoundError):
            pass

    def next_sequence(self, stream: str, at_least: int, subjects: Sequence[str]) -> int | None:
        """The first stored sequence >= `at_least`, under one of the subjects if given; or None."""
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
        """Remove the messages before a sequence, under one of the subjects if given.

        None is before sequence 1, with which servers before 2.14 remove all.
        """
        for subject in (subjects or (None,)) if before > 1 else ():
            what = {"seq": before} | ({} if subject is None else {"filter": subject})
            self.call(js_api.STREAM_PURGE, what, stream=stream)

    def message(self, stream: str, **which: int | str) -> StoredMessage | None:
        """A message by `seq`, `last_by_subj` or `next_by_subj`; None if there is none."""
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
        """The subjects under a filter that have messages."""
        pages = SubjectPages()
        complete = False
        while not complete:
            request = {"subjects_filter": subject, "offset": pages.offset}
            complete = pages.add(self.call(js_api.STREAM_INFO, request, stream=stream))
        return set(pages.found)

    def sequence_at(self, stream: str, ns: int) -> int | None:
        """The first stored sequence of time `ns` (nanoseconds) or later; None if all are older.

        A binary search with about log2(length of the stream) requests. It requires timestamps that
        do not decrease from one sequence to the next.
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
        """Sequence and time of the first message stored at or after a sequence."""
        try:
            request = {"seq": at_least, "next_by_subj": ">"}
            answer = self.call(js_api.MSG_GET, request, stream=stream)
        except MessageNotFoundError:
            return None
        return answer["message"]["seq"], parse_isotime(answer["message"]["time"])

    def _not_found(self, name: str) -> str:
        try:
            names = self.stream_names()
            if STREAM_PREFIX + name in names:
                return (
                    f'Stream "{name}" not found on {self.link.server}; there is a bucket of that '
                    "name: --bucket, or the option 'bucket'."
                )
            near = nearest_name(name, names)
        except (PermissionsError, RequestTimeoutError):
            near = None  # no permission to list streams
        hint = f' (did you mean "{near}"?)' if near else ""
        return f'Stream "{name}" not found on {self.link.server}{hint}.'

    @property
    def of_one_server(self) -> bool:
        """Whether the link's server has JetStream and is in no cluster: its answer is final."""
        info = self.link.info
        return info.jetstream and not info.cluster and self.link.api_prefix == js_api.DEFAULT_PREFIX

    def call(
        self,
        call: js_api.Call,
        request: dict[str, Any] | None,
        **names: str,
    ) -> dict[str, Any]:
        """One API call, which must be idempotent; returns its answer.

        Raises the typed error of the answer (an APIError) if it persists, JetStreamNotEnabledError
        when JetStream has no responders, RequestTimeoutError, JetStreamError for an unreadable
        answer, BadNameError, and as `BlockingLink.request`.
        """
        return self._call(call, request, names)

    def _call(
        self,
        call: js_api.Call,
        request: dict[str, Any] | None,
        names: dict[str, str],
        not_found_for: float = NOT_FOUND_SECONDS,
    ) -> dict[str, Any]:
        """`not_found_for`: seconds after which "not found" is final, in a cluster."""
        if self.of_one_server:
            not_found_for = 0.0
        retry = CallRetry(self._timeout, not_found_for=not_found_for)
        payload = b"" if request is None else encode_document(request)
        while True:
            try:
                return self._answer(call, payload, names, retry.deadline)
            except (APIError, NoRespondersError) as error:
                if not retry.again(error):
                    raise _explain(error, self.link) from None

    def _answer(
        self, call: js_api.Call, payload: bytes, names: dict[str, str], deadline: float
    ) -> dict[str, Any]:
        subject = js_api.subject_of(self.link.api_prefix, call, names)
        for seconds in answer_waits(self._timeout, deadline):
            try:
                frame = self.link.request(subject, payload, seconds)
            except RequestTimeoutError:
                continue
            return js_api.parse_answer(call, frame.payload, names)
        raise RequestTimeoutError(
            f"JetStream on {self.link.server} did not answer within {self._timeout:g} s: look "
            "whether the server is overloaded, or the network holds it back."
        )


def _explain(error: APIError | NoRespondersError, link: BlockingLink) -> JetsparkError:
    if isinstance(error, NoRespondersError):
        return JetStreamNotEnabledError(
            503,
            NOT_ENABLED,
            "JetStream not enabled",
            f"JetStream does not answer on {link.server} under {link.api_prefix}: "
            "is it enabled there (nats-server -js), and for this account?",
        )
    return error

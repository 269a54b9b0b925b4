"""The calls of the JetStream API that reading and writing need, over a blocking link.

The stream's leader answers STREAM.INFO and STREAM.MSG.GET, or a former leader that has not learnt
of its replacement; where that matters, use `leaders`. Any replica may answer a direct get.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import jetspark.errors as errors
from jetspark.err_codes import NOT_ENABLED
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.links.leader_terms import leader_of, observation_of
from jetspark.links.link import BlockingLink
from jetspark.links.retry import NOT_FOUND_SECONDS, CallRetry, answer_waits
from jetspark.links.stream_facts import StreamFacts, facts_of
from jetspark.nearest import nearest_name
from jetspark.timestamps import NANOSECONDS, parse_isotime
from jetspark.wire import js_api
from jetspark.wire.documents import encode_document
from jetspark.wire.js_api import SubjectPages


class CreatedConsumer(NamedTuple):
    """A consumer that was created to read from a stream."""

    pending: int
    """Messages to deliver when it was created."""
    server: str
    """The server that has the consumer; empty outside of a cluster."""


class StoredMessage(NamedTuple):
    """A message of a stream, as STREAM.MSG.GET returns it."""

    seq: int
    headers: bytes
    data: bytes
    subject: str
    time: str
    """The time in RFC 3339."""


class StreamAPI:
    """Makes idempotent calls of the JetStream API over one link, with retries.

    `timeout`: seconds for each call. Every method raises the errors of `call`.
    """

    def __init__(self, link: BlockingLink, timeout: float = 5.0) -> None:
        self.link = link
        self._timeout = timeout

    # -- streams ---------------------------------------------------------------------------

    def stream(self, name: str, *, not_found_for: float = NOT_FOUND_SECONDS) -> StreamFacts:
        """Request a stream's configuration and state, which may be outdated.

        A replaced leader may answer; `leaders.confirmed_facts` has answers of proven leaders.

        `not_found_for`: seconds after which "not found" is final, in a cluster. Raises
        StreamNotFoundError, which suggests a stream with a similar name.
        """
        return facts_of(name, self._info(name, not_found_for), self.link.info.server_id)

    def config(self, name: str) -> dict[str, Any]:
        """Request a stream's configuration, as it is sent. Raises the errors of `stream`."""
        config: dict[str, Any] = self._info(name)["config"]
        return config

    def config_if_any(self, name: str) -> dict[str, Any] | None:
        """Request a stream's configuration; None if there is no such stream.

        Unlike `config`, it never lists streams, for which the user may have no permission.
        """
        try:
            config: dict[str, Any] = self.call(js_api.STREAM_INFO, None, stream=name)["config"]
        except errors.StreamNotFoundError:
            return None
        return config

    def _info(self, name: str, not_found_for: float = NOT_FOUND_SECONDS) -> dict[str, Any]:
        """Request STREAM.INFO; the answer also counts for a proof of the stream's leader."""
        sent = time.monotonic()
        try:
            answer = self.call(js_api.STREAM_INFO, None, not_found_for, stream=name)
        except errors.StreamNotFoundError as error:
            raise errors.StreamNotFoundError(
                error.code, error.err_code, error.description, self._not_found_message(name)
            ) from None
        self.link.leader_terms[name].add(observation_of(answer, sent, time.monotonic()))
        return answer

    def _not_found_message(self, name: str) -> str:
        """The error's sentence for a stream that does not exist, with a hint to a similar name."""
        hint = "; `jetspark stream ls` shows the streams."
        # Without permission to list streams, a request may also be answered by silence.
        with suppress(errors.PermissionsError, errors.RequestTimeoutError):
            names = self.stream_names()
            if STREAM_PREFIX + name in names:
                bucket = errors.named("bucket")
                hint = f"; there is a bucket of that name: {bucket} reads it."
            elif near := nearest_name(name, names):
                hint = f' (did you mean "{near}"?).'
        return f'Stream "{name}" not found on {self.link.server}{hint}'

    def create(self, config: dict[str, Any]) -> dict[str, Any]:
        """Create a stream; returns its configuration."""
        return dict(self.call(js_api.STREAM_CREATE, config, stream=config["name"])["config"])

    def update(self, config: dict[str, Any]) -> dict[str, Any]:
        """Update a stream; returns its new configuration."""
        return dict(self.call(js_api.STREAM_UPDATE, config, stream=config["name"])["config"])

    def stream_names(self) -> list[str]:
        """List the names of all streams of the account, page by page."""
        return self._pages(js_api.STREAM_NAMES, "streams")

    def stream_infos(self) -> list[dict[str, Any]]:
        """List the configurations and states of all streams of the account, as the server sends
        them."""
        return self._pages(js_api.STREAM_LIST, "streams")

    def consumers(self, stream: str) -> list[dict[str, Any]]:
        """List the configurations and states of a stream's consumers, as the server sends them."""
        return self._pages(js_api.CONSUMER_LIST, "consumers", stream=stream)

    def _pages(self, call: js_api.Call, field: str, **names: str) -> list[Any]:
        """All items of a list that the server sends in pages. `field`: of the answer."""
        items: list[Any] = []
        before: list[Any] = []
        while True:
            answer = self.call(call, {"offset": len(items)}, **names)
            page = answer.get(field) or []
            if page == before:  # a server that counts wrong would send the last page for ever
                return items
            items += page
            if len(items) >= answer.get("total", 0):
                return items
            before = page

    def all_stream_names(self) -> list[str]:
        """List the names of all streams until two lists, some time apart, are equal.

        A replaced metadata leader may answer first, and lack streams: it has had time then to learn
        of its replacement.
        """
        names = self.stream_names()
        while not self.is_outside_cluster:
            time.sleep(NOT_FOUND_SECONDS)
            before, names = names, self.stream_names()
            if names == before:
                break
        return names

    # -- consumers -------------------------------------------------------------------------

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
    ) -> CreatedConsumer:
        """Create an ephemeral pull consumer without acks, to read from sequence `start` on.

        `name`: the consumer's; `subjects`: only messages under one of these, if given.
        `last_per_subject`: instead, the last message of each subject under `subjects` (required),
        and what is stored later. The server removes the consumer after `inactive` seconds without a
        pull. Raises UnsupportedByServerError.
        """
        if not self.link.info.at_least(2, 9):
            raise errors.UnsupportedByServerError("Reading a range", "2.9", self.link.info.version)
        config: dict[str, Any] = {
            "name": name,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": round(inactive * NANOSECONDS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        if last_per_subject:
            config["deliver_policy"] = "last_per_subject"
        else:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
        if headers_only:
            config["headers_only"] = True
        answer = self.create_consumer(stream, config, subjects)
        return CreatedConsumer(int(answer.get("num_pending", 0)), leader_of(answer))

    def create_consumer(
        self, stream: str, config: dict[str, Any], subjects: Sequence[str]
    ) -> dict[str, Any]:
        """Create a consumer with this configuration, for messages under `subjects` (empty: all).

        Returns the server's answer. Raises UnsupportedByServerError for several subjects before
        nats-server 2.10.
        """
        call, names = js_api.CONSUMER_CREATE, {"stream": stream, "consumer": config["name"]}
        if len(subjects) == 1:
            config = {**config, "filter_subject": subjects[0]}
            # The filter is also in the request's subject, so that permissions can depend on it,
            # unless it has wildcards, which cannot be published to.
            if not {"*", ">"} & set(subjects[0].split(".")):
                call, names = js_api.CONSUMER_CREATE_FILTERED, {**names, "filter": subjects[0]}
        elif subjects:
            if not self.link.info.at_least(2, 10):
                raise errors.UnsupportedByServerError(
                    "Reading several subjects at once", "2.10", self.link.info.version
                )
            config = {**config, "filter_subjects": list(subjects)}
        request = {"stream_name": stream, "config": config, "action": "create"}
        return self.call(call, request, **names)

    def consumer(
        self, stream: str, consumer: str, *, not_found_for: float = NOT_FOUND_SECONDS
    ) -> dict[str, Any] | None:
        """Request a consumer's configuration and state, as the server sends them.

        None if there is no such consumer. `not_found_for`: see `call`.
        """
        try:
            names = {"stream": stream, "consumer": consumer}
            return self.call(js_api.CONSUMER_INFO, None, not_found_for, **names)
        except errors.ConsumerNotFoundError:
            return None

    def delete_reader(self, stream: str, name: str) -> None:
        """Delete a consumer, if it and its stream exist."""
        with suppress(errors.ConsumerNotFoundError, errors.StreamNotFoundError):
            # "Not found" is final at once (0.0).
            self.call(js_api.CONSUMER_DELETE, None, 0.0, stream=stream, consumer=name)

    # -- messages --------------------------------------------------------------------------

    def message(self, stream: str, **selector: int | str) -> StoredMessage | None:
        """Read a message of the stream by `seq`, `last_by_subj` or `next_by_subj`.

        None if there is none. The leader answers, or a replaced one that is behind.
        """
        try:
            message = self.call(js_api.MSG_GET, dict(selector), stream=stream)["message"]
        except errors.MessageNotFoundError:
            return None
        return StoredMessage(
            message["seq"],
            base64.b64decode(message.get("hdrs") or ""),
            base64.b64decode(message.get("data") or ""),
            message["subject"],
            message["time"],
        )

    def next_sequence(self, stream: str, at_least: int, subjects: Sequence[str]) -> int | None:
        """Look up the first stored sequence from `at_least` on; None if there is none.

        `subjects`: count only messages under one of these, if given.
        """
        # By default under ">", which matches all subjects.
        messages = (
            self.message(stream, seq=at_least, next_by_subj=subject) for subject in subjects or ">"
        )
        return min((message.seq for message in messages if message is not None), default=None)

    def sequence_at(self, stream: str, ns: int) -> int | None:
        """Look up the first message stored at time `ns` or later, and return its sequence.

        `ns`: nanoseconds since the epoch. None if all messages are older. A binary search with
        about log2(length of the stream) requests. It requires timestamps that do not decrease from
        one sequence to the next.
        """
        facts = self.stream(stream)
        low, high = facts.first_seq, facts.last_seq + 1
        sequence: int | None = None
        while low < high:
            middle = (low + high) // 2
            message = self.message(stream, seq=middle, next_by_subj=">")
            if message is None:
                high = middle  # nothing is stored from here on
            elif parse_isotime(message.time) >= ns:
                sequence, high = message.seq, middle
            else:
                low = message.seq + 1
        return sequence

    def subjects(self, stream: str, subject: str) -> set[str]:
        """List the subjects that have messages in the stream and match the filter `subject`."""
        pages = SubjectPages()
        complete = False
        while not complete:
            request = {"subjects_filter": subject, "offset": pages.offset}
            complete = pages.add(self.call(js_api.STREAM_INFO, request, stream=stream))
        return set(pages.counts)

    def purge(self, stream: str, before: int, subjects: Sequence[str] = ()) -> None:
        """Remove the messages before the sequence `before`, under one of the subjects if given.

        Requests nothing for sequence 1 or less, since servers before 2.14 would remove everything.
        """
        for subject in (subjects or (None,)) if before > 1 else ():
            request = {"seq": before} | ({} if subject is None else {"filter": subject})
            self.call(js_api.STREAM_PURGE, request, stream=stream)

    # -- calls -----------------------------------------------------------------------------

    @property
    def is_outside_cluster(self) -> bool:
        """Whether the link's server is a single one with JetStream, so that no other knows more."""
        info = self.link.info
        # Another API prefix leads to another account or domain, perhaps in a cluster.
        return info.jetstream and not info.cluster and self.link.api_prefix == js_api.DEFAULT_PREFIX

    def call(
        self,
        call: js_api.Call,
        request: dict[str, Any] | None,
        not_found_for: float = NOT_FOUND_SECONDS,
        /,
        **names: str,
    ) -> dict[str, Any]:
        """Make an API call, which must be idempotent; returns its answer.

        `not_found_for`: seconds after which "not found" is final, in a cluster.

        Raises the typed error of the answer (an APIError) if it persists, JetStreamNotEnabledError
        when JetStream has no responders, RequestTimeoutError, JetStreamError for an unreadable
        answer, BadNameError, and the errors of `BlockingLink.request`.
        """
        link = self.link
        if self.is_outside_cluster:
            not_found_for = 0.0
        retry = CallRetry(self._timeout, not_found_for=not_found_for)
        payload = b"" if request is None else encode_document(request)
        while True:
            try:
                return self._request_until_answered(call, payload, names, retry.deadline)
            except errors.NoRespondersError as error:
                if not retry.wait_to_retry(error):
                    raise errors.JetStreamNotEnabledError(
                        503,
                        NOT_ENABLED,
                        "JetStream not enabled",
                        f"JetStream does not answer on {link.server} under {link.api_prefix}: "
                        "is it enabled there (nats-server -js), and for this account?",
                    ) from None
            except errors.APIError as error:
                if not retry.wait_to_retry(error):
                    raise

    def _request_until_answered(
        self, call: js_api.Call, payload: bytes, names: dict[str, str], deadline: float
    ) -> dict[str, Any]:
        """Send an API call, up to three times if there is silence, and return its answer.

        Raises RequestTimeoutError at the deadline, the error in the answer, and NoRespondersError.
        """
        subject = js_api.subject_of(self.link.api_prefix, call, names)
        for seconds in answer_waits(self._timeout, deadline):
            try:
                frame = self.link.request(subject, payload, seconds)
            except errors.RequestTimeoutError:
                continue
            return js_api.parse_answer(call, frame.payload, names)
        raise errors.RequestTimeoutError(
            f"JetStream on {self.link.server} did not answer within {self._timeout:g} s: check "
            "whether the server is overloaded or the network is slow."
        )

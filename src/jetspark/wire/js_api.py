"""The JetStream API: the table of subjects, parsing of responses, typed errors. No I/O.

A call is one request to <prefix>.<subject>; the prefix is "$JS.API", "$JS.<domain>.API" or the
caller's own. The response is a JSON document, whose `type` is checked; an `error` in it raises the
class of its err_code. Names follow the rules of ADR-6. `jetstream.api` and
`links.stream_api` send the requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

import jetspark.errors as errors
from jetspark.err_codes import STREAM_NAME_EXIST_RESTORE_FAILED
from jetspark.subjects import check_name, check_publish_subject, plain_text
from jetspark.validation import check_text
from jetspark.wire.documents import convert_document, decode_document

DEFAULT_PREFIX: Final = "$JS.API"


class Call(NamedTuple):
    """A subject after the prefix, and the `type` of its response (None: not a JSON document)."""

    template: str
    answer: str | None
    question: bool = False
    """True for a call that changes nothing, so that it may be sent twice."""


ACCOUNT_INFO: Final = Call("INFO", "account_info_response", question=True)
STREAM_LIST: Final = Call("STREAM.LIST", "stream_list_response", question=True)
STREAM_NAMES: Final = Call("STREAM.NAMES", "stream_names_response", question=True)
STREAM_CREATE: Final = Call("STREAM.CREATE.{stream}", "stream_create_response")
STREAM_UPDATE: Final = Call("STREAM.UPDATE.{stream}", "stream_update_response")
STREAM_INFO: Final = Call("STREAM.INFO.{stream}", "stream_info_response", question=True)
STREAM_DELETE: Final = Call("STREAM.DELETE.{stream}", "stream_delete_response")
STREAM_PURGE: Final = Call("STREAM.PURGE.{stream}", "stream_purge_response")
MSG_GET: Final = Call("STREAM.MSG.GET.{stream}", "stream_msg_get_response", question=True)
MSG_DELETE: Final = Call("STREAM.MSG.DELETE.{stream}", "stream_msg_delete_response")
STREAM_SNAPSHOT: Final = Call("STREAM.SNAPSHOT.{stream}", "stream_snapshot_response")
STREAM_RESTORE: Final = Call("STREAM.RESTORE.{stream}", "stream_restore_response")
STREAM_LEADER_STEPDOWN: Final = Call(
    "STREAM.LEADER.STEPDOWN.{stream}", "stream_leader_stepdown_response"
)
STREAM_PEER_REMOVE: Final = Call("STREAM.PEER.REMOVE.{stream}", "stream_remove_peer_response")
STREAM_PEER_EVACUATE: Final = Call("STREAM.PEER.EVACUATE.{stream}", "stream_evacuate_peer_response")
STREAM_CANCEL_MOVE: Final = Call("STREAM.CANCEL_MOVE.{stream}", "stream_cancel_move_response")
DIRECT_GET: Final = Call("DIRECT.GET.{stream}", None, question=True)
DIRECT_GET_LAST: Final = Call("DIRECT.GET.{stream}.{subject}", None, question=True)
CONSUMER_CREATE_UNNAMED: Final = Call("CONSUMER.CREATE.{stream}", "consumer_create_response")
CONSUMER_CREATE: Final = Call("CONSUMER.CREATE.{stream}.{consumer}", "consumer_create_response")
CONSUMER_CREATE_FILTERED: Final = Call(
    "CONSUMER.CREATE.{stream}.{consumer}.{filter}", "consumer_create_response"
)
CONSUMER_LIST: Final = Call("CONSUMER.LIST.{stream}", "consumer_list_response", question=True)
CONSUMER_NAMES: Final = Call("CONSUMER.NAMES.{stream}", "consumer_names_response", question=True)
CONSUMER_INFO: Final = Call(
    "CONSUMER.INFO.{stream}.{consumer}", "consumer_info_response", question=True
)
CONSUMER_DELETE: Final = Call("CONSUMER.DELETE.{stream}.{consumer}", "consumer_delete_response")
CONSUMER_DURABLE_CREATE: Final = Call(
    "CONSUMER.DURABLE.CREATE.{stream}.{consumer}", "consumer_create_response"
)
CONSUMER_PAUSE: Final = Call("CONSUMER.PAUSE.{stream}.{consumer}", "consumer_pause_response")
CONSUMER_UNPIN: Final = Call("CONSUMER.UNPIN.{stream}.{consumer}", "consumer_unpin_response")
CONSUMER_RESET: Final = Call("CONSUMER.RESET.{stream}.{consumer}", "consumer_reset_response")
CONSUMER_LEADER_STEPDOWN: Final = Call(
    "CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}", "consumer_leader_stepdown_response"
)
CONSUMER_PEER_EVACUATE: Final = Call(
    "CONSUMER.PEER.EVACUATE.{stream}.{consumer}", "consumer_evacuate_peer_response"
)
CONSUMER_PEER_REMOVE: Final = Call(
    "CONSUMER.PEER.REMOVE.{stream}.{consumer}", "consumer_remove_peer_response"
)
META_LEADER_STEPDOWN: Final = Call("META.LEADER.STEPDOWN", "meta_leader_stepdown_response")
META_RESCUE: Final = Call("META.RESCUE", "meta_rescue_response")
SERVER_EVACUATE: Final = Call("SERVER.EVACUATE", "meta_server_evacuate_response")
SERVER_REMOVE: Final = Call("SERVER.REMOVE", "meta_server_remove_response")
ACCOUNT_PURGE: Final = Call("ACCOUNT.PURGE.{account}", "account_purge_response")
MSG_NEXT: Final = Call("CONSUMER.MSG.NEXT.{stream}.{consumer}", None)

_ADR_6: Final = frozenset({"stream", "consumer"})
_ANSWER_TYPE: Final = "io.nats.jetstream.api.v1."


def api_prefix_of(domain: str | None, api_prefix: str | None) -> str:
    """The prefix of all API subjects. Raises ConfigError for a bad one, and if both are given."""
    if domain is not None and api_prefix is not None:
        raise errors.ConfigError("Give either domain or api_prefix, not both.")
    if domain is not None:
        return f"$JS.{check_name('domain', domain)}.API"
    if api_prefix is None:
        return DEFAULT_PREFIX
    prefix = check_text("api_prefix", api_prefix).removesuffix(".")
    check_publish_subject(prefix)
    return prefix


def subject_of(prefix: str, call: Call, names: Mapping[str, str]) -> str:
    """The subject of a call. Raises BadNameError for a name that breaks the rules of ADR-6."""
    plain = {
        kind: check_name(kind, name) if kind in _ADR_6 else plain_text(name)
        for kind, name in names.items()
    }
    return f"{prefix}.{call.template.format_map(plain)}"


def names_of(subject: str) -> dict[str, str]:
    """The names in an API subject, with any prefix; empty for an unknown call."""
    tail = subject.partition(".API.")[2]
    for pattern in _patterns():
        if match := pattern.fullmatch(tail):
            return match.groupdict()
    return {}


@cache
def _patterns() -> list[re.Pattern[str]]:
    calls = [value for value in globals().values() if isinstance(value, Call)]
    patterns = []
    for call in calls:
        text = re.escape(call.template).replace(r"\{", "{").replace(r"\}", "}")
        # Only the last part, a subject, may have several tokens.
        text = re.sub(r"{(filter|subject)}", r"(?P<\1>.+)", text)
        patterns.append(re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^.]+)", text)))
    return patterns


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


def error_of(document: Any, names: Mapping[str, str]) -> errors.APIError:
    """The exception for the `error` of a response. `names`: the names in the call's subject.

    Raises DocumentError.
    """
    error = convert_document(document, _Error, "error in an answer")
    code, err_code, description = error.code, error.err_code, error.description
    cls = errors.api_error_class(err_code)
    stream, consumer = names.get("stream"), names.get("consumer")
    message = None
    if issubclass(cls, errors.StreamNotFoundError) and stream:
        message = f'Stream "{stream}" not found.'
    elif issubclass(cls, errors.ConsumerNotFoundError) and consumer:
        message = f'Consumer "{consumer}" of stream "{stream}" not found.'
    elif issubclass(cls, errors.NameInUseError) and consumer:
        message = consumer_in_use(stream, consumer)
    elif err_code == STREAM_NAME_EXIST_RESTORE_FAILED and stream:
        message = f'Stream "{stream}" exists already: delete it before it is restored.'
    elif issubclass(cls, errors.NameInUseError) and stream:
        message = f'Stream "{stream}" exists with another configuration: {UPDATE}.'
    elif issubclass(cls, errors.MessageNotFoundError) and stream:
        message = f'No such message in stream "{stream}".'
    return cls(code, err_code, description, message)


UPDATE: Final = "update it, or take another name"
"""The advice about a name in use."""


def consumer_in_use(stream: str | None, consumer: str) -> str:
    """The message of a NameInUseError about a consumer."""
    return (
        f'Consumer "{consumer}" of stream "{stream}" exists with another configuration: '
        "update it, or bind to it as it is."
    )


def parse_document(request: str, data: bytes, names: Mapping[str, str]) -> dict[str, Any]:
    """A response's fields. Raises its `error`, or DocumentError if it is not a JSON object."""
    answer = decode_document(data, f"answer to {request}")
    if error_document := answer.get("error"):
        raise error_of(error_document, names)
    return answer


def parse_answer(call: Call, data: bytes, names: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a response of the call's type. Raises its `error`, else JetStreamError."""
    answer = parse_document(call.template, data, names)
    answer_type = answer.pop("type", None)
    if call.answer is not None and answer_type != _ANSWER_TYPE + call.answer:
        raise errors.JetStreamError(f"{call.template}: the answer is of type {answer_type!r}.")
    if call.answer in _NEEDED:
        convert_document(answer, _NEEDED[call.answer], f"answer to {call.template}")
    return answer


# The parts of answers that have no document of their own; an answer without its part is unreadable.


class _Limits(msgspec.Struct):
    inactive_threshold: int = 0


class _ConfigPart(msgspec.Struct):
    num_replicas: int = 1
    max_msgs_per_subject: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_ack_pending: int = 0
    retention: str = ""
    discard: str = ""
    description: str = ""
    subjects: list[str] | None = None
    consumer_limits: _Limits | None = None


class _State(msgspec.Struct):
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first_ts: str = ""
    last_ts: str = ""
    consumer_count: int = 0
    num_deleted: int = 0
    subjects: dict[str, int] | None = None


class _Replica(msgspec.Struct):
    name: str
    active: int = 0
    peer: str = ""


class _Cluster(msgspec.Struct):
    leader: str = ""
    leader_since: str = ""
    raft_group: str = ""
    replicas: list[_Replica] | None = None


class _Stream(msgspec.Struct):
    config: _ConfigPart
    state: _State
    created: str = ""
    total: int = 0
    cluster: _Cluster | None = None


class _Sequences(msgspec.Struct):
    consumer_seq: int
    stream_seq: int


class _Consumer(msgspec.Struct):
    config: _ConfigPart
    delivered: _Sequences
    num_ack_pending: int = 0
    num_waiting: int = 0
    paused: bool = False
    cluster: _Cluster | None = None


class _StoredMessage(msgspec.Struct):
    seq: int
    time: str


class _MessageAnswer(msgspec.Struct):
    message: _StoredMessage


class _ListPage(msgspec.Struct):
    total: int = 0
    streams: list[Any] | None = None
    consumers: list[Any] | None = None
    missing: list[str] | None = None
    offline: dict[str, str] | None = None


class _Purged(msgspec.Struct):
    purged: int = 0


_PARTS: Final[dict[type[msgspec.Struct], tuple[Call, ...]]] = {
    _Stream: (STREAM_INFO, STREAM_CREATE, STREAM_UPDATE, STREAM_SNAPSHOT),
    _Consumer: (CONSUMER_INFO, CONSUMER_CREATE),
    _MessageAnswer: (MSG_GET,),
    _Purged: (STREAM_PURGE,),
    _ListPage: (STREAM_LIST, STREAM_NAMES, CONSUMER_LIST, CONSUMER_NAMES),
}
_NEEDED: Final = {call.answer: part for part, calls in _PARTS.items() for call in calls}


# -------------------------------------------------------------------------------------------------
# The subjects of a stream from several answers to STREAM.INFO, none missing.
#
# A page is a part of the sorted subjects, by offset. When subjects of earlier pages are removed in
# the meantime, the others move up, and a page at the next offset would miss some. So pages overlap
# by one subject; a page without overlap is requested again, further back.


class SubjectPages:
    """Collects the pages of one filter."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """The messages of each subject; all subjects that had messages all the time."""
        self.offset = 0
        """The offset of the next page to request."""
        self._last = ""
        self._back = 1

    def add(self, answer: Mapping[str, Any]) -> bool:
        """Add the page at `offset`; returns whether it was the last one."""
        page: Mapping[str, int] = answer["state"].get("subjects") or {}
        total = answer.get("total", 0)
        if self.offset and (not page or min(page) > self._last):
            self.offset = max(0, self.offset - self._back)
            self._back *= 2
            return False
        self.counts.update(page)
        if self.offset + len(page) >= total or not page:
            return True
        self._last = max(page)
        self._back = 1
        self.offset += max(1, len(page) - 1)
        return False

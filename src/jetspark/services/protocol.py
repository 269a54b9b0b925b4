"""The wire form of ADR-32: subjects, documents as JSON, headers of errors. Pure.

Contract: what is written here the other clients read, some of which are strict. Every field is
there, also an empty one and `data` as null, and times have six fractional digits. What others write
is read with what their versions leave out or say otherwise: nulls, missing fields, and fractions of
nanoseconds.
"""

from __future__ import annotations

import secrets
import string
from typing import Any, Final, TypeVar

from jetspark.arguments import check_whole
from jetspark.errors import ConfigError, DocumentError, JetsparkError, ServiceError
from jetspark.jetstream.documents.document import Document, from_wire, to_wire
from jetspark.services.documents import ServiceInfo, ServicePing, ServiceStats
from jetspark.services.rules import check_service_name
from jetspark.wire.documents import decode_document, encode_document
from jetspark.wire.headers import Headers, HeadersLike
from jetspark.wire.service_api import DEFAULT_PREFIX, Verb, verb_subjects

DEFAULT_QUEUE_GROUP: Final = "q"

ERROR_HEADER: Final = "Nats-Service-Error"
ERROR_CODE_HEADER: Final = "Nats-Service-Error-Code"

_LONGEST_DESCRIPTION: Final = 1000
_SPANS: Final = ("processing_time", "average_processing_time")

AnswerT = TypeVar("AnswerT", bound=Document)


VERB_OF: Final[dict[type[Document], Verb]] = {
    ServicePing: Verb.PING,
    ServiceInfo: Verb.INFO,
    ServiceStats: Verb.STATS,
}


def verb_subject(
    verb: Verb, name: str | None = None, id: str | None = None, prefix: str = DEFAULT_PREFIX
) -> str:
    """Where all services, those of a name, or one instance are asked.

    Raises BadNameError, and ConfigError for an id without a name: there is no such subject.
    """
    if name is None:
        if id is not None:
            raise ConfigError("An id needs the service's name, too: instances are asked by both.")
        return verb_subjects(verb, prefix=prefix)[0]
    check_service_name("service", name)
    if id is None:
        return verb_subjects(verb, name, prefix=prefix)[1]
    return verb_subjects(verb, name, check_service_name("instance", id), prefix)[2]


def new_id() -> str:
    """The id of a new instance: 22 letters and digits."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(22))


# -- documents -----------------------------------------------------------------------------------


def encode_answer(answer: ServicePing | ServiceInfo | ServiceStats) -> bytes:
    """The JSON of an answer. Raises ConfigError for `data` that JSON has no form for."""
    document = to_wire(answer)
    if isinstance(answer, ServiceStats):
        for endpoint in document["endpoints"]:
            endpoint.setdefault("data", None)
        if answer.started is not None:
            started = answer.started.replace(tzinfo=None).isoformat(timespec="microseconds")
            document["started"] = f"{started}Z"
    return encode_document(document)


def decode_answer(cls: type[AnswerT], payload: bytes) -> AnswerT:
    """An answer of any client's service. Raises JetsparkError when it is none of this kind."""
    try:
        raw = decode_document(payload, cls.__name__)
        _round_spans(raw)
        answer = from_wire(cls, raw)
    except DocumentError as error:
        raise JetsparkError(f"It is no {cls.__name__}: {error.why}.") from None
    wanted = VERB_OF[cls].type
    if (said := raw.get("type")) != wanted:
        raise JetsparkError(f"Its type is {said!r}, not {wanted!r}.")
    return answer


def _round_spans(raw: dict[str, Any]) -> None:
    endpoints = raw.get("endpoints")
    for endpoint in endpoints if isinstance(endpoints, list) else ():
        for name in _SPANS:
            if isinstance(endpoint, dict) and isinstance(value := endpoint.get(name), float):
                endpoint[name] = round(value)


# -- errors --------------------------------------------------------------------------------------


def error_headers(code: int, description: str, headers: HeadersLike | None = None) -> Headers:
    """The headers of an answer that is an error, after those given.

    The description becomes one line of at most 1,000 characters. Raises ConfigError unless `code`
    is a whole number from 1 on (0 is how a code that is no number is read), BadHeaderError.
    """
    check_whole("code", code)
    found = Headers(() if headers is None else headers)
    found.set(ERROR_HEADER, one_line(description))
    found.set(ERROR_CODE_HEADER, f"{code:d}")
    return found


def one_line(text: str) -> str:
    """The text as a header can carry it."""
    plain = " ".join(str(text).replace("\0", " ").split())
    plain = plain.encode("utf-8", "replace").decode()  # lone surrogates
    most = _LONGEST_DESCRIPTION
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def service_error(headers: Headers | None, data: bytes = b"") -> ServiceError | None:
    """The error that an answer with these headers and this payload is; None when it is none.

    A code that is no number counts as 0.
    """
    if headers is None:
        return None
    code, description = headers.get(ERROR_CODE_HEADER), headers.get(ERROR_HEADER)
    if code is None and description is None:
        return None
    number = int(code) if code is not None and code.isascii() and code.isdecimal() else 0
    return ServiceError(number, description or "", data)

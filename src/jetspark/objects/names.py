"""What stores and objects may be called, their subjects, ids and digests (ADR-20), all pure."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import string
from typing import Final

from jetspark.errors import BadNameError

STREAM_PREFIX: Final = "OBJ_"
"""A store is the stream of this name and the store's."""

LONGEST_NAME: Final = 2048
"""Bytes of an object's name: it becomes a part of a subject, which servers do not take longer."""

_STORE = re.compile(r"[-_a-zA-Z0-9]+")
_ID_LETTERS: Final = string.digits + string.ascii_letters
_ALGORITHM: Final = "SHA-256"


def check_store(name: str) -> str:
    """The name itself. Raises BadNameError."""
    if not isinstance(name, str):
        raise BadNameError("object store", name, f"it is a str, not {type(name).__name__}")
    if _STORE.fullmatch(name) is None:
        raise BadNameError("object store", name, "only letters, digits, - and _ are allowed")
    return name


def info_subject(store: str, name: str) -> str:
    """Where the information about an object is. Raises BadNameError."""
    if not isinstance(name, str):
        raise BadNameError("object", name, f"it is a str, not {type(name).__name__}")
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise BadNameError("object", name, "it is no Unicode text") from None
    if not raw:
        raise BadNameError("object", name, "it is empty")
    if len(raw) > LONGEST_NAME:
        raise BadNameError("object", name, f"it has more than {LONGEST_NAME} bytes")
    return f"$O.{store}.M.{base64.urlsafe_b64encode(raw).decode()}"


def latin_info_subject(store: str, name: str) -> str | None:
    """Where the JavaScript client has it: it encodes names as Latin-1; None where that is no other.

    It cannot write names with letters that Latin-1 has not.
    """
    if name.isascii():
        return None
    try:
        raw = name.encode("latin-1")
    except UnicodeEncodeError:
        return None
    return f"$O.{store}.M.{base64.urlsafe_b64encode(raw).decode()}"


def all_infos(store: str) -> str:
    """The subjects of the information about all objects."""
    return f"$O.{store}.M.>"


def chunk_subject(store: str, nuid: str) -> str:
    """Where the chunks of an object are."""
    return f"$O.{store}.C.{nuid}"


def new_nuid() -> str:
    """An id that no other object has."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(22))


def digest_text(sha256: bytes) -> str:
    """A digest as it is written."""
    return f"{_ALGORITHM}={base64.urlsafe_b64encode(sha256).decode()}"


def is_digest(text: str, sha256: bytes) -> bool:
    """Whether a written digest is this one, whoever wrote it."""
    algorithm, _, value = text.partition("=")
    value = value.rstrip("=")
    try:
        said = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except (binascii.Error, ValueError):
        return False
    return algorithm.upper() == _ALGORITHM and said == sha256

"""Names of stores and objects, their subjects and ids (ADR-20). Pure."""

from __future__ import annotations

import base64
import re
import secrets
import string
from typing import Final

from jetspark.errors import BadNameError

STREAM_PREFIX: Final = "OBJ_"
"""The stream of a store has this before the store's name."""

LONGEST_NAME: Final = 2048
"""Most bytes of an object's name: it is part of a subject, whose length servers limit."""

_STORE = re.compile(r"[-_a-zA-Z0-9]+")
_ID_LETTERS: Final = string.digits + string.ascii_letters


def check_store(name: str) -> str:
    """The name itself. Raises BadNameError."""
    if not isinstance(name, str):
        raise BadNameError("object store", name, f"it is a str, not {type(name).__name__}")
    if _STORE.fullmatch(name) is None:
        raise BadNameError("object store", name, "only letters, digits, - and _ are allowed")
    return name


def info_subject(store: str, name: str) -> str:
    """The subject of an object's info. Raises BadNameError."""
    if not isinstance(name, str):
        raise BadNameError("object", name, f"it is a str, not {type(name).__name__}")
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise BadNameError("object", name, "it has a lone surrogate") from None
    if not raw:
        raise BadNameError("object", name, "it is empty")
    if len(raw) > LONGEST_NAME:
        raise BadNameError("object", name, f"it has more than {LONGEST_NAME} bytes")
    return f"$O.{store}.M.{base64.urlsafe_b64encode(raw).decode()}"


def latin_info_subject(store: str, name: str) -> str | None:
    """The subject that the JavaScript client uses, which encodes names as Latin-1; None: the same.

    It cannot write names with characters outside Latin-1.
    """
    if name.isascii():
        return None
    try:
        raw = name.encode("latin-1")
    except UnicodeEncodeError:
        return None
    return f"$O.{store}.M.{base64.urlsafe_b64encode(raw).decode()}"


def all_infos(store: str) -> str:
    """The subjects of the infos of all objects."""
    return f"$O.{store}.M.>"


def chunk_subject(store: str, nuid: str) -> str:
    """The subject of an object's chunks."""
    return f"$O.{store}.C.{nuid}"


def new_nuid() -> str:
    """A new unique id."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(22))

"""NKey seeds, JWTs and `.creds` files, and the signature of the server's nonce.

Contract: files are read each time a link is opened, so the next (re)connect uses rotated
credentials. Seeds and signatures appear in no repr, log or error; errors name the option and the
file. Signing with a seed needs PyNaCl (the extra `nkeys`) or cryptography.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from jetspark.connection.nkeys import KeyKind, KeyPair, decode_seed, object_of_part
from jetspark.errors import ConfigError, NKeyError
from jetspark.files import read_small_text

Sign: TypeAlias = Callable[[bytes], bytes]
"""Signs the server's nonce: returns the 64 bytes of an Ed25519 signature."""

Credential: TypeAlias = str | Callable[[], str]
"""A text, or a callable that returns it at each connect."""

# A block is a line of dashes around a title, lines of text, and another such line; `nsc` writes
# the closing one with a dash more. The first block holds the JWT, the second the seed.
_BLOCK = re.compile(r"-{3,}[^\n]*-{3,}[ \t]*\r?\n(.+?)\r?\n[ \t]*-{3,}[^\n]*-{3,}", re.DOTALL)
_SEED_LINE = re.compile(r"^[ \t]*(S[A-Z2-7]{57})[ \t\r]*$", re.MULTILINE)

_SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A JWT or a public NKey, and its signing callable (None: a bearer JWT)."""

    jwt: str = ""
    nkey: str = ""
    sign: Sign | None = None

    def fields(self, nonce: str) -> dict[str, str]:
        """The CONNECT fields. Without a nonce nothing is signed: the server checks no keys.

        Raises ConfigError when the signing callable fails.
        """
        named = {"jwt": self.jwt} if self.jwt else {"nkey": self.nkey}
        if self.sign is None or not nonce:
            return named
        return named | {"sig": _signature(self.sign, nonce)}


def text_of(option: str, value: Credential) -> str:
    """The text of an option that may be a callable. Raises ConfigError when that fails."""
    if isinstance(value, str):
        return value
    try:
        text = value()
    except Exception as error:
        # Without the error's text, which may hold secrets.
        raise ConfigError(f"The callable {option} raised {type(error).__name__}.") from error
    if not isinstance(text, str):
        raise ConfigError(
            f"The callable {option} must return a str, but returned {type(text).__name__}."
        )
    return text


def identity_of_creds(text: str, source: str) -> Identity:
    """The JWT and, unless it is a bearer JWT, the seed in the text of a `.creds` file.

    `source` names the text in errors. Raises ConfigError.
    """
    blocks = [match[1].strip() for match in _BLOCK.finditer(text)]
    jwt = "".join((blocks[0] if blocks else text).split())
    if jwt.count(".") != 2 or not jwt.isascii():
        raise ConfigError(f"{source} holds no user JWT.")
    if len(blocks) < 2 and text.count("-BEGIN ") < 2:
        return Identity(jwt=jwt)
    return Identity(jwt=jwt, sign=open_seed("".join(blocks[1:2]), source)[1])


def find_seed(text: str, source: str) -> str:
    """The seed in the text of a seed file: a line of its own, or in a block as in `.creds`."""
    if match := _SEED_LINE.search(text):
        return match[1]
    raise ConfigError(f"{source} holds no NKey seed.")


def open_seed(seed: str, source: str) -> tuple[str, Sign]:
    """The public key and the signer of a user's seed. Raises ConfigError without the seed."""
    try:
        kind, raw = decode_seed(seed)
    except NKeyError:
        raise ConfigError(
            f"{source} holds no valid NKey seed (a text of 58 characters, SU…)."
        ) from None
    if kind is not KeyKind.USER:
        raise ConfigError(f"{source} holds an NKey seed that is not a user's (SU…).")
    pair = KeyPair(kind, raw)
    return pair.public, pair.sign


def read_credentials(option: str, path: str | os.PathLike[str]) -> str:
    """The text of a file with secrets. Raises ConfigError that names the option and the file."""
    try:
        return read_small_text(path)
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {path!r} cannot be read: it is not text.") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{option} {path!r} cannot be read: {reason}.") from error


def jwt_expiry(jwt: str) -> float | None:
    """When a JWT expires, in seconds since 1970; None if it never does or is not a JWT."""
    body = jwt.split(".")[1:2]
    try:
        expires = object_of_part(body[0]).get("exp")
    except (IndexError, ValueError):
        return None
    return float(expires) if isinstance(expires, int) and expires > 0 else None


def _signature(sign: Sign, nonce: str) -> str:
    try:
        raw = sign(nonce.encode())
    except Exception as error:
        # Without the error's text, which may hold secrets.
        raise ConfigError(f"The signing callable raised {type(error).__name__}.") from error
    if not isinstance(raw, bytes) or len(raw) != _SIGNATURE_BYTES:
        raise ConfigError(
            "The signing callable must return the 64 bytes of an Ed25519 signature, "
            f"but returned {type(raw).__name__}."
        )
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")

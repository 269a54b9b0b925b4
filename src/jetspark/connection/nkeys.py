"""NKeys: Ed25519 and X25519 keys in the text form of NATS. No I/O.

Contract: the checksum and the kind of every key are checked here. Signing needs PyNaCl (the extra
`nkeys`) or cryptography, encryption PyNaCl, imported on first use. Seeds appear in no repr and no
error.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Self

from jetspark.errors import ConfigError, DocumentError, NKeyError
from jetspark.wire.documents import decode_document

_SEED: Final = 18 << 3  # S…
_RAW: Final = 32  # bytes
_XKEY_VERSION: Final = b"xkv1"
_NONCE: Final = 24  # bytes


class KeyKind(Enum):
    """The owner of a key, as the first letter of the public key says."""

    ACCOUNT = 0
    CLUSTER = 2 << 3
    OPERATOR = 14 << 3
    SERVER = 13 << 3
    USER = 20 << 3
    CURVE = 23 << 3

    @property
    def letter(self) -> str:
        """The first letter of its public keys, such as "U"."""
        return base64.b32encode(bytes([self.value])).decode()[0]


class KeyPair:
    """A pair of Ed25519 keys, with which an operator, account, user, server or cluster signs.

    Example:
        ```python
        from jetspark.identity import KeyPair, verify

        user = KeyPair.new()
        signature = user.sign(b"a nonce")
        print(user.public[0], verify(user.public, b"a nonce", signature))  # U True
        ```
    """

    __slots__ = ("_raw", "_sign", "kind", "public")

    def __init__(self, kind: KeyKind, raw: bytes) -> None:
        """`raw`: the 32 secret bytes. Raises ConfigError, also when no library can sign."""
        if kind is KeyKind.CURVE:
            raise ConfigError("Curve keys encrypt: CurveKeyPair.new() makes them.")
        self.kind = kind
        self._raw = _secret_bytes(raw)
        self._sign, public = _signer(raw)
        self.public = encode_key(kind, public)
        """The public key as text."""

    @classmethod
    def new(cls, kind: KeyKind = KeyKind.USER) -> Self:
        """New random keys. Raises ConfigError for KeyKind.CURVE, and when no library can sign."""
        return cls(kind, secrets.token_bytes(_RAW))

    @classmethod
    def from_seed(cls, seed: str) -> Self:
        """The keys of a seed (S…). Raises NKeyError for another text, without the text."""
        kind, raw = decode_seed(seed)
        if kind is KeyKind.CURVE:
            raise NKeyError("The seed is of a curve key (SX…), which cannot sign.")
        return cls(kind, raw)

    @property
    def seed(self) -> str:
        """The secret as text."""
        return encode_seed(self.kind, self._raw)

    def sign(self, data: bytes) -> bytes:
        """The 64 bytes of the signature."""
        return self._sign(data)

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"


class CurveKeyPair:
    """A pair of X25519 keys (xkeys), which encrypts for the holder of another pair.

    Example:
        ```python
        from jetspark.identity import CurveKeyPair

        ann, bert = CurveKeyPair.new(), CurveKeyPair.new()
        sealed = ann.seal(b"a secret", bert.public)
        print(bert.open(sealed, ann.public))  # b'a secret'
        ```
    """

    __slots__ = ("_raw", "public")

    def __init__(self, raw: bytes) -> None:
        """`raw`: the 32 secret bytes. Raises ConfigError, also when PyNaCl is missing."""
        self._raw = _secret_bytes(raw)
        self.public = encode_key(KeyKind.CURVE, bytes(_box().PrivateKey(raw).public_key))
        """The public key as text (X…)."""

    @classmethod
    def new(cls) -> Self:
        """New random keys. Raises ConfigError when PyNaCl is missing."""
        return cls(secrets.token_bytes(_RAW))

    @classmethod
    def from_seed(cls, seed: str) -> Self:
        """The keys of a seed (SX…). Raises NKeyError for another text, without the text."""
        kind, raw = decode_seed(seed)
        if kind is not KeyKind.CURVE:
            raise NKeyError("The seed is not of a curve key (SX…).")
        return cls(raw)

    @property
    def seed(self) -> str:
        """The secret as text."""
        return encode_seed(KeyKind.CURVE, self._raw)

    def seal(self, data: bytes, recipient: str) -> bytes:
        """Encrypt for the holder of a public key (X…), and prove the sender. Raises NKeyError."""
        nonce = secrets.token_bytes(_NONCE)
        sealed = self._with(recipient).encrypt(data, nonce).ciphertext
        return _XKEY_VERSION + nonce + bytes(sealed)

    def open(self, data: bytes, sender: str) -> bytes:
        """Decrypt what the holder of a public key sealed for this key. Raises NKeyError."""
        body = data[len(_XKEY_VERSION) :]
        if not data.startswith(_XKEY_VERSION) or len(body) < _NONCE:
            raise NKeyError("The data is not encrypted by an xkey.")
        try:
            return bytes(self._with(sender).decrypt(body[_NONCE:], body[:_NONCE]))
        except _crypto_error():
            raise NKeyError("The data cannot be decrypted: other keys, or changed.") from None

    def _with(self, public: str) -> Any:
        box = _box()
        peer = box.PublicKey(decode_key(public, KeyKind.CURVE))
        try:
            return box.Box(box.PrivateKey(self._raw), peer)
        except _crypto_error():
            raise NKeyError("The public key is not one of X25519.") from None

    def __repr__(self) -> str:
        return f"CurveKeyPair({self.public})"


def verify(public: str, data: bytes, signature: bytes) -> bool:
    """Whether the holder of a public key signed this data. Raises NKeyError for a wrong key."""
    kind, raw = decode_any_key(public)
    if kind is KeyKind.CURVE:
        raise NKeyError("A curve key (X…) cannot sign.")
    return _verifies(raw, data, signature)


def _secret_bytes(raw: bytes) -> bytes:
    """Raise ConfigError, without the bytes, unless there are 32."""
    if len(raw) != _RAW:
        raise ConfigError(f"raw is the {_RAW} bytes of a secret key, not {len(raw)} bytes.")
    return raw


# -- as text ---------------------------------------------------------------------------------


def encode_key(kind: KeyKind, raw: bytes) -> str:
    """A public key as text."""
    return _checked_text(bytes([kind.value]) + raw)


def encode_seed(kind: KeyKind, raw: bytes) -> str:
    """A seed as text: five bits say that it is a seed, the next five whose."""
    value = kind.value
    return _checked_text(bytes([_SEED | value >> 5, (value & 31) << 3]) + raw)


def decode_key(public: str, kind: KeyKind) -> bytes:
    """The 32 bytes of a public key of this kind. Raises NKeyError."""
    actual_kind, raw = decode_any_key(public)
    if actual_kind is not kind:
        raise NKeyError(f"The key is not a public {kind.name.lower()} key ({kind.letter}…).")
    return raw


def decode_any_key(public: str) -> tuple[KeyKind, bytes]:
    """The kind and bytes of a public key. Raises NKeyError."""
    raw = _checked_bytes(public)
    try:
        if len(raw) == 1 + _RAW:
            return KeyKind(raw[0]), raw[1:]
    except ValueError:
        pass
    raise NKeyError("The text is not a public NKey (56 letters and digits).")


def is_key(text: str, kind: KeyKind) -> bool:
    """Whether a text is a public key of this kind."""
    try:
        decode_key(text, kind)
    except NKeyError:
        return False
    return True


def decode_seed(seed: str) -> tuple[KeyKind, bytes]:
    """The kind and secret bytes of a seed. Raises NKeyError, without the seed."""
    raw = _checked_bytes(seed.strip())
    try:
        if len(raw) == 2 + _RAW and raw[0] & 0xF8 == _SEED:
            return KeyKind((raw[0] & 0x07) << 5 | (raw[1] & 0xF8) >> 3), raw[2:]
    except ValueError:
        pass
    raise NKeyError("The text is not an NKey seed (58 letters and digits, S…).")


def _checked_text(body: bytes) -> str:
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).decode().rstrip("=")


def _checked_bytes(text: str) -> bytes:
    """The bytes before the checksum; nothing when the checksum is wrong."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:  # ValueError also for letters that are not ASCII
        return b""
    if len(raw) < 3 or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return b""
    # The last letter has unused bits; only one text may stand for a key.
    return raw[:-2] if base64.b32encode(raw).decode().rstrip("=") == text else b""


# -- Ed25519: of PyNaCl, or else of cryptography; X25519 with XSalsa20: only PyNaCl has it --------


def _signer(raw: bytes) -> tuple[Callable[[bytes], bytes], bytes]:
    """The function that signs with these secret bytes, and the public key's bytes."""
    try:
        from nacl.signing import SigningKey
    except ImportError:
        private = _ed25519().Ed25519PrivateKey.from_private_bytes(raw)
        return private.sign, private.public_key().public_bytes_raw()
    key = SigningKey(raw)
    return (lambda data: key.sign(data).signature), bytes(key.verify_key)


def _verifies(public: bytes, data: bytes, signature: bytes) -> bool:
    try:
        from nacl.exceptions import CryptoError
        from nacl.signing import VerifyKey
    except ImportError:
        verify, wrong = _ed25519().Ed25519PublicKey.from_public_bytes(public).verify, _invalid()
        arguments = (signature, data)
    else:
        verify, wrong = VerifyKey(public).verify, CryptoError
        arguments = (data, signature)
    try:
        verify(*arguments)
    except (wrong, ValueError):  # ValueError: of another length
        return False
    return True


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError(
            "NKeys need PyNaCl or cryptography to sign with: pip install 'jetspark[nkeys]'."
        ) from None
    return ed25519


def _invalid() -> type[Exception]:
    from cryptography.exceptions import InvalidSignature

    return InvalidSignature


def _box() -> Any:
    try:
        import nacl.public
    except ImportError:
        raise ConfigError(
            "Curve keys need PyNaCl to encrypt with: pip install 'jetspark[nkeys]'."
        ) from None
    return nacl.public


def _crypto_error() -> type[Exception]:
    from nacl.exceptions import CryptoError

    return CryptoError


# -- a part of a JWT: Base64 for URLs, without padding, of a JSON object -----------------------


def bytes_of_part(part: str) -> bytes:
    """Raises ValueError for anything but Base64, and for another spelling of the same bytes."""
    raw = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    if not raw or part_of_bytes(raw) != part:
        raise ValueError("not Base64 of a JWT")
    return raw


def object_of_part(part: str) -> dict[str, Any]:
    """Raises ValueError for anything but a JSON object, at any depth of nesting."""
    try:
        return decode_document(bytes_of_part(part), "part of a JWT")
    except DocumentError as error:
        raise ValueError("not a JSON object") from error


def part_of_bytes(raw: bytes) -> str:
    """The bytes in Base64 for URLs."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")

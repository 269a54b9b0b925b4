"""Credentials without a server: what may be given together, what a file may look like."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import nkeys
import pytest
from tests.support.accounts import creds_text, make_jwt, new_key

from jetspark.connection.credentials import jwt_expiry
from jetspark.connection.handshake import credentials_of, identity_of
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.connection.urls import parse_url
from jetspark.errors import ConfigError

SERVER = parse_url("nats://127.0.0.1")
USER = new_key()
ISSUER = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
JWT = make_jwt(ISSUER, USER.public, "user")
NONCE = "a nonce"


def sign(nonce: bytes) -> bytes:
    return USER.sign(nonce)


@pytest.mark.parametrize(
    "options",
    [
        {"token": "t", "user": "u", "password": "p"},
        {"creds": "c", "creds_file": "f"},
        {"creds_file": "f", "nkey_seed": "s"},
        {"nkey_seed": "s", "nkey_seed_file": "f"},
        {"nkey_seed": "s", "sign": sign},
        {"jwt": "j", "nkey_seed": "s", "nkey_seed_file": "f"},
        {"jwt": "j", "creds": "c"},
        {"jwt": "j", "creds_file": "f", "token": "t"},
        {"user": "u"},
        {"user": lambda: "u"},
        {"password": "p"},
        {"token": "t", "nkey": "U"},
        {"sign": sign},
        {"nkey": "U"},
        {"nkey": "U", "nkey_seed": "s"},
        {"nkey": "U", "jwt": "j", "sign": sign},
    ],
)
def test_more_than_one_kind_or_half_of_one_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        make_options("nats://a", **options)
    assert str(caught.value).count(".") == 1  # one sentence


@pytest.mark.parametrize(
    "options",
    [
        {"nkey_seed": USER.seed},
        {"nkey": USER.public, "sign": sign},
        {"jwt": JWT, "nkey_seed": USER.seed},
        {"jwt": JWT, "sign": sign},
        {"creds": creds_text(JWT, USER.seed)},
    ],
)
def test_the_servers_nonce_is_signed(options: dict[str, Any]) -> None:
    fields = credentials_of(make_options("nats://a", **options), SERVER, NONCE)
    pair = nkeys.from_seed(bytearray(USER.seed.encode()))
    signature = base64.urlsafe_b64decode(fields["sig"] + "==")
    assert pair.verify(NONCE.encode(), signature)
    assert "=" not in fields["sig"]
    jwt = "jwt" in options or "creds" in options
    assert {**fields, "sig": ""} == {
        "jwt" if jwt else "nkey": JWT if jwt else USER.public,
        "sig": "",
    }


def test_without_a_nonce_nothing_is_signed() -> None:
    options = make_options("nats://a", nkey=USER.public, sign=lambda nonce: pytest.fail("signed"))
    assert credentials_of(options, SERVER, "") == {"nkey": USER.public}


@pytest.mark.parametrize("option", ["nkey_seed", "creds", "nkey_seed_file", "creds_file"])
@pytest.mark.parametrize(
    "change",
    [
        lambda seed: seed[:-2] + ("A" if seed[-2] != "A" else "B") + seed[-1],
        lambda seed: seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:],
        lambda seed: seed[:-2],
        lambda seed: seed.lower(),
        lambda seed: "",
        lambda seed: USER.public,
        lambda seed: new_key(nkeys.PREFIX_BYTE_ACCOUNT).seed,
    ],
)
def test_a_bad_seed_is_reported_and_not_shown(tmp_path: Path, option: str, change: Any) -> None:
    bad = change(USER.seed)
    text = creds_text(JWT, bad) if "creds" in option else bad
    file = tmp_path / "f"
    file.write_text(text)
    given: dict[str, Any] = {option: str(file) if "file" in option else text}
    options = make_options("nats://a", **given)
    with pytest.raises(ConfigError, match="NKey seed") as caught:
        identity_of(options)
    assert str(caught.value).startswith(option)
    shown = str(caught.value) + repr(options)
    assert not bad or bad[2:] not in shown


@pytest.mark.parametrize("option", ["nkey_seed_file", "creds_file"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, option: str) -> None:
    missing: dict[str, Any] = {option: str(tmp_path / "none")}
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    binary: dict[str, Any] = {option: str(tmp_path / "bytes")}
    with pytest.raises(ConfigError, match=f"{option} '.*none' cannot"):
        identity_of(make_options("nats://a", **missing))
    with pytest.raises(ConfigError, match="it is not text"):
        identity_of(make_options("nats://a", **binary))


def test_creds_without_a_jwt_are_refused() -> None:
    for text in ("", "hello", creds_text("not-a-jwt", USER.seed)):
        with pytest.raises(ConfigError, match="no user JWT"):
            identity_of(make_options("nats://a", creds=text))


def test_contents_take_the_place_of_files(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text(creds_text(JWT, USER.seed))
    options = make_options("nats://a", creds_file=str(file), name="n").with_contents()
    assert (options.creds, options.creds_file) == (file.read_text(), None)
    assert options.name == "n"
    options = make_options("nats://a", nkey_seed_file=str(file)).with_contents()
    assert (options.nkey_seed, options.nkey_seed_file) == (USER.seed, None)
    plain = make_options("nats://a", token="t")
    assert plain.with_contents() == plain
    assert USER.seed not in repr(options)


def test_signing_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nacl.signing", None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    options = ConnectOptions(nkey_seed=USER.seed)
    with pytest.raises(ConfigError, match=r"pip install 'jetspark\[nkeys\]'"):
        identity_of(options)
    identity_of(ConnectOptions(nkey=USER.public, sign=sign))  # needs nothing


def test_when_a_jwt_expires() -> None:
    assert jwt_expiry(make_jwt(ISSUER, USER.public, "user", 1234)) == 1234
    deep = base64.urlsafe_b64encode(b'{"exp":' + b"[" * 100_000).decode().rstrip("=")
    for never in (JWT, "", "a.b.c", "a.W10.c", "..", "é.é.é", f"a.{deep}.c"):
        assert jwt_expiry(never) is None

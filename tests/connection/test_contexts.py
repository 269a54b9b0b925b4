"""Contexts of the `nats` command and environment variables, as files and variables say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jetspark.connection.options import ConnectOptions, make_options
from jetspark.errors import ConfigError

# What `nats context save` writes: every field, most of them empty.
TEXTS = """
description url socks_proxy token user password creds nkey cert key ca nsc jetstream_domain
jetstream_api_prefix jetstream_event_prefix inbox_prefix user_jwt user_seed color_scheme
windows_cert_store windows_cert_match_by windows_cert_match
"""
EMPTY: dict[str, Any] = dict.fromkeys(TEXTS.split(), "") | {
    "tls_first": False,
    "windows_ca_certs_match": None,
}


class Home:
    """A configuration folder, and the environment that leads to it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "nats"
        (self.root / "context").mkdir(parents=True)
        self.environ = {"XDG_CONFIG_HOME": str(root), "HOME": str(root)}

    def save(self, name: str, **fields: Any) -> None:
        text = json.dumps(EMPTY | fields)
        (self.root / "context" / f"{name}.json").write_text(text, "utf-8")

    def select(self, name: str) -> None:
        (self.root / "context.txt").write_text(f"{name}\n")

    def options(self, *args: Any, **options: Any) -> ConnectOptions:
        return make_options(*args, environ=self.environ, **options)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"url": "nats://a:1, nats://b"}, {"servers": "nats://a:1, nats://b"}),
        ({"token": "t"}, {"token": "t"}),
        ({"user": "u", "password": "p"}, {"user": "u", "password": "p"}),
        ({"user": "t"}, {"token": "t"}),
        ({"socks_proxy": "socks5://u:p@h:1"}, {"proxy": "socks5://u:p@h:1"}),
        ({"creds": "/c"}, {"creds_file": "/c"}),
        ({"creds": "file:///c"}, {"creds_file": "/c"}),
        ({"nkey": "/n"}, {"nkey_seed_file": "/n"}),
        ({"user_jwt": "j", "user_seed": "s"}, {"jwt": "j", "nkey_seed": "s"}),
        ({"user_jwt": "j"}, {"jwt": "j"}),
        ({"ca": "/ca"}, {"tls_ca_file": "/ca"}),
        ({"cert": "/c", "key": "/k"}, {"tls_cert_file": "/c", "tls_key_file": "/k"}),
        ({"ca": "/ca", "url": "wss://a"}, {"tls_ca_file": "/ca", "servers": "wss://a"}),
        ({"ca": "/ca", "url": "ws://a"}, {"tls_ca_file": "/ca", "servers": "ws://a"}),
        ({"tls_first": True}, {"tls_first": True}),
        ({"inbox_prefix": "_ME"}, {"inbox_prefix": "_ME"}),
        ({"jetstream_domain": "hub"}, {"jetstream_domain": "hub"}),
        ({"jetstream_api_prefix": "from.hub"}, {"jetstream_api_prefix": "from.hub"}),
        ({"description": "d", "color_scheme": "red", "jetstream_event_prefix": "x"}, {}),
    ],
)
def test_each_field_of_a_context(
    home: Home, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    home.save("it", **fields)
    assert home.options(context="it") == ConnectOptions(**expected)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"socks_proxy": "socks://x"}, "context .* socks_proxy must be socks5://host:port"),
        ({"nsc": "nsc://o/a/u"}, "nsc"),
        ({"windows_cert_store": "user"}, "windows_cert_store"),
        ({"jetstream_domain": "a.b"}, "domain"),
        ({"jetstream_domain": "d", "jetstream_api_prefix": "p"}, "either domain or api_prefix"),
        ({"creds": "op://vault/item"}, "creds by op: URI"),
        ({"token": "env://SECRET"}, "token by env: URI"),
        ({"token": "s3cret", "user": "u", "password": "p4ss"}, "one kind of credentials"),
        ({"key": "/k"}, "tls_key_file needs tls_cert_file"),
        ({"url": 7}, "url must be a text"),
    ],
)
def test_what_is_not_honoured_is_refused(home: Home, fields: dict[str, Any], sentence: str) -> None:
    home.save("it", **fields)
    with pytest.raises(ConfigError, match=sentence) as caught:
        home.options(context="it")
    assert "s3cret" not in str(caught.value)
    assert "p4ss" not in str(caught.value)


def test_an_unknown_field_is_logged(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.save("it", brand_new="x")
    home.options(context="it")
    assert "brand_new" in caplog.text


def test_paths_are_expanded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    home.environ |= {"DIR": "/secrets", "D": "no", "OTHER": "$DIR"}
    for text, path in {
        "~/a.creds": "/home/me/a.creds",
        "$DIR/a": "/secrets/a",
        "${DIR}x": "/secretsx",
        "$OTHER": "$DIR",
        "$UNSET/a": "$UNSET/a",
        "/a~b": "/a~b",
    }.items():
        home.save("it", creds=text)
        assert home.options(context="it").creds_file == path


def test_the_selected_context_is_asked_for_by_an_empty_name(home: Home) -> None:
    with pytest.raises(ConfigError, match="No context is selected"):
        home.options(context="")
    home.save("one", url="nats://one")
    home.select("one")
    assert home.options(context="").servers == "nats://one"
    # Never by itself: another tool's choice must not move a program to other servers.
    assert home.options().servers == ConnectOptions().servers


def test_missing_or_unreadable_context_is_refused(home: Home) -> None:
    home.save("one")
    with pytest.raises(ConfigError, match=r"'two' .*known: one"):
        home.options(context="two")
    for path in ("../one", "a/b", "a\\b"):
        with pytest.raises(ConfigError, match="contains a path"):
            home.options(context=path)
    for text in ("[]", "{s3cret"):
        (home.root / "context" / "bad.json").write_text(text)
        with pytest.raises(ConfigError, match="not a JSON object") as caught:
            home.options(context="bad")
        assert caught.value.__context__ is None or "s3cret" not in str(caught.value)


def test_the_folder_without_xdg(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.save("one", token="t")
    (tmp_path / ".config").mkdir()
    home.root.rename(tmp_path / ".config" / "nats")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert make_options(context="one", environ={}).token == "t"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    assert ConnectOptions.from_context("one").token == "t"


def test_what_is_given_wins_over_the_context(home: Home) -> None:
    home.save("one", url="nats://one", creds="/c", inbox_prefix="_ONE", ca="/ca")
    options = home.options("nats://two", context="one", inbox_prefix="_TWO")
    assert (options.servers, options.inbox_prefix) == ("nats://two", "_TWO")
    assert (options.creds_file, options.tls_ca_file) == ("/c", "/ca")
    # Credentials as a whole: no half of one kind with half of another.
    options = home.options(context="one", user="u", password="p")
    assert (options.creds_file, options.user, options.servers) == (None, "u", "nats://one")


@pytest.mark.parametrize(
    ("variable", "option"),
    [
        ("NATS_URL", "servers"),
        ("NATS_TOKEN", "token"),
        ("NATS_USER", "token"),
        ("NATS_CREDS", "creds_file"),
        ("NATS_NKEY", "nkey_seed_file"),
        ("NATS_JWT", "jwt"),
        ("NATS_SEED", "nkey_seed"),
        ("NATS_CA", "tls_ca_file"),
        ("NATS_CERT", "tls_cert_file"),
    ],
)
def test_each_environment_variable_sets_its_option(variable: str, option: str) -> None:
    options = make_options(environ={variable: "value"})
    expected: dict[str, Any] = {option: "value"}
    assert options == ConnectOptions(**expected)


def test_variables_that_go_together(home: Home) -> None:
    environ = {"NATS_USER": "u", "NATS_PASSWORD": "p", "NATS_CERT": "/c", "NATS_KEY": "/k"}
    options = make_options(environ=environ)
    assert (options.user, options.password, options.tls_key_file) == ("u", "p", "/k")
    assert make_options(environ={"NATS_URL": "", "NATS_CREDS": ""}) == ConnectOptions()
    assert make_options(environ={"NATS_SOCKS_PROXY": "h:1080"}).proxy == "socks5://h:1080"
    with pytest.raises(ConfigError, match="socks5://host:port"):
        make_options(environ={"NATS_SOCKS_PROXY": "x"})


def test_the_environment_names_a_context_and_its_variables_win_over_it(home: Home) -> None:
    home.save("one", url="nats://one", creds="/c", inbox_prefix="_ONE")
    home.environ["NATS_CONTEXT"] = "one"
    assert home.options().servers == "nats://one"
    home.environ |= {"NATS_URL": "nats://two", "NATS_TOKEN": "t"}
    options = home.options()
    assert (options.servers, options.inbox_prefix) == ("nats://two", "_ONE")
    assert (options.token, options.creds_file) == ("t", None)


def test_whoever_names_a_server_or_a_context_gets_nothing_of_the_environment(home: Home) -> None:
    home.save("one", url="nats://one")
    home.environ |= {"NATS_URL": "nats://env", "NATS_TOKEN": "t"}
    assert home.options("nats://mine") == ConnectOptions(servers="nats://mine")
    assert home.options(servers="nats://mine") == ConnectOptions(servers="nats://mine")
    assert home.options(context="one") == ConnectOptions(servers="nats://one")
    assert home.options(name="n").servers == "nats://env"

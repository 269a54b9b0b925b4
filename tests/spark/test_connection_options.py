"""Every connection option of the source reaches the readers, and no secret is shown."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeServer
from tests.support.accounts import Operator, creds_text, new_key
from tests.support.certificates import Certificates

from jetspark.errors import AuthorizationError, ConfigError
from jetspark.links.link import connect
from jetspark.options.names import spark_name
from jetspark.options.scopes import CONNECTION
from jetspark.spark.source.options import parse_options

STREAM = {"stream": "S"}
SERVER = {"servers": "nats://a"}

EXAMPLES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "servers": ({"servers": "nats://a,tls://b"}, {"servers": "nats://a,tls://b"}),
    "user": ({"user": "u", "password": "s3cret"}, {"user": "u", "password": "s3cret"}),
    "password": ({"user": "u", "password": "s3cret"}, {"password": "s3cret"}),
    "token": ({"token": "s3cret"}, {"token": "s3cret"}),
    "credsFile": ({"credsFile": "/c"}, {"creds_file": "/c"}),
    "credentials": ({"credentials": "s3cret"}, {"creds": "s3cret"}),
    "nkeySeedFile": ({"nkeySeedFile": "/n"}, {"nkey_seed_file": "/n"}),
    "nkeySecret": ({"nkeySecret": "s3cret"}, {"nkey_seed": "s3cret"}),
    "jwtToken": ({"jwtToken": "s3cret", "nkeySecret": "x"}, {"jwt": "s3cret", "nkey_seed": "x"}),
    "proxy": ({"proxy": "socks5://h:1080"}, {"proxy": "socks5://h:1080"}),
    "tls": ({"tls": "true"}, {"tls": True}),
    "tlsFirst": ({"tlsFirst": "true"}, {"tls_first": True}),
    "tlsCaFile": ({"tlsCaFile": "/ca"}, {"tls_ca_file": "/ca"}),
    "tlsCaDir": ({"tlsCaDir": "/ca"}, {"tls_ca_dir": "/ca"}),
    "tlsCertFile": ({"tlsCertFile": "/c"}, {"tls_cert_file": "/c"}),
    "tlsKeyFile": ({"tlsCertFile": "/c", "tlsKeyFile": "/k"}, {"tls_key_file": "/k"}),
    "tlsKeyPassword": ({"tlsKeyPassword": "s3cret"}, {"tls_key_password": "s3cret"}),
    "tlsHostname": ({"tlsHostname": "h"}, {"tls_hostname": "h"}),
    "connectTimeout": ({"connectTimeout": "3"}, {"connect_timeout": 3.0}),
    "inboxPrefix": ({"inboxPrefix": "_ME"}, {"inbox_prefix": "_ME"}),
    "jetstreamDomain": ({"jetstreamDomain": "hub"}, {"jetstream_domain": "hub"}),
    "jetstreamApiPrefix": ({"jetstreamApiPrefix": "a.b"}, {"jetstream_api_prefix": "a.b"}),
}


@pytest.mark.parametrize("option", EXAMPLES)
@pytest.mark.parametrize("fold", [str, str.lower])
def test_each_option_reaches_the_readers(option: str, fold: Callable[[str], str]) -> None:
    given, expected = EXAMPLES[option]
    options = parse_options(STREAM | SERVER | {fold(name): text for name, text in given.items()})
    there = pickle.loads(pickle.dumps(options)).connection
    assert {name: getattr(there, name) for name in expected} == expected
    assert "s3cret" not in repr(options) + repr(there)


def test_every_option_has_its_example() -> None:
    assert EXAMPLES.keys() | {"context"} == set(map(spark_name, CONNECTION))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"sign": "x"}, "executors cannot call it; use creds"),
        ({"nkey": "x"}, "use nkey_seed"),
        ({"nkeySeed": "x"}, "is called 'nkeySecret' here"),
        ({"servers": "nats://u:p@h"}, "holds a user or token"),
        ({"proxy": "http://me:s3cret@h:1"}, "proxy holds a user"),
        ({"proxy": "h:1"}, "proxy: write http://host:port"),
        ({"dialer": "x"}, "cannot be sent to executors; use proxy"),
        ({"sslContext": "x"}, "use the tls… options"),
        ({"tlsFirst": "yes"}, "tls_first must be true or false"),
        ({"credentials": "x", "nkeySecret": "y"}, "one kind of credentials"),
        ({"credFile": "x"}, "did you mean 'credsFile'"),
    ],
)
def test_mistakes_are_one_sentence(wrong: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_options(STREAM | SERVER | wrong)


def test_a_context_is_read_on_the_driver_and_its_credentials_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    creds = tmp_path / "me.creds"
    creds.write_text("s3cret", "utf-8")
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    document = {"url": "nats://there", "creds": str(creds), "inbox_prefix": "_ME"}
    (folder / "it.json").write_text(json.dumps(document))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    options = parse_options(STREAM | {"context": "it"})
    creds.unlink()  # the executors do not have it
    there = pickle.loads(pickle.dumps(options)).connection
    assert (there.servers, there.creds, there.creds_file) == ("nats://there", "s3cret", None)
    assert "s3cret" not in repr(options)
    creds.write_text("s3cret", "utf-8")
    monkeypatch.setenv("NATS_CONTEXT", "it")
    assert parse_options(STREAM).connection == there
    assert parse_options(STREAM | SERVER).connection.creds is None


def test_the_range_reader_connects_with_credentials(
    make_server: MakeServer, tmp_path: Path
) -> None:
    operator, user = Operator(), new_key()
    server = make_server(operator.config())
    text = creds_text(operator.user(user), user.seed)
    file = tmp_path / "me.creds"
    file.write_text(text)
    base = STREAM | {"servers": server.url}
    for option in ({"credentials": text}, {"credsFile": str(file)}):
        with connect(parse_options(base | option).connection) as link:
            assert link.check()
    with pytest.raises(AuthorizationError):
        connect(parse_options(base).connection)


def test_no_secret_is_in_a_plan_or_an_error(
    spark: SparkSession, make_server: MakeServer, certificates: Certificates
) -> None:
    operator, user = Operator(), new_key()
    server = make_server(operator.config() + certificates.server_config())
    jwt = operator.user(user)
    options = STREAM | {
        "servers": f"tls://localhost:{server.port}",
        "credentials": creds_text(jwt, user.seed),
        "tlsCaFile": str(certificates.ca),
        "tlsKeyPassword": "s3cret",
    }
    with connect(parse_options(options).connection) as link:
        config = {"name": "S", "subjects": ["s"], "storage": "memory"}
        link.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode(), 5)
        link.request("s", b"x", 5)
    frame = spark.read.format("jetstream").options(**options).load()
    assert frame.count() == 1
    shown = frame._jdf.queryExecution().toString() + str(frame)
    wrong = options | {"credentials": creds_text(Operator().user(user), user.seed)}
    with pytest.raises(Exception, match="refused these credentials") as caught:
        spark.read.format("jetstream").options(**wrong).load().count()
    shown += str(caught.value)
    for secret in (user.seed, jwt, "s3cret"):
        assert secret not in shown

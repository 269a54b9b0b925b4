"""The connection options of format("jetstream").

They are read on the driver and used on the executors. Texts are sent with the plan's readers, and
are in no repr. Files (`credsFile`, `nkeySeedFile`, `tls…File`, `tlsCaDir`) must exist on every
machine under the same path, and are read at each connect. Spark shows the options of a write in its
plans, and masks those whose names contain secret, password, token or credential: all options for
secrets have such names, and URLs with secrets are refused. A context of the `nats` command and the
NATS_… variables exist on the driver only: the credentials files that they name are read there, and
their contents are sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from jetspark.connection.options import ConnectOptions, make_options
from jetspark.connection.proxy import parse_proxy
from jetspark.connection.urls import parse_urls
from jetspark.errors import ConfigError
from jetspark.spark import option_values as values
from jetspark.subjects import check_name


def _servers(name: str, value: str) -> str:
    for url in parse_urls(value):
        if url.user is not None or url.token is not None:
            raise ConfigError(
                f"Option {name!r} holds a user or token: give them in the options 'user' and "
                "'password', or 'token', which Spark does not show."
            )
    return value


def _proxy(name: str, value: str) -> str:
    if parse_proxy(value).user is not None:
        raise ConfigError(
            f"Option {name!r} holds a user: name the proxy in a context of the nats command, whose "
            "secrets Spark does not show."
        )
    return value


CONNECTION: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "servers": ("servers", _servers),
    "context": ("context", values.text),
    "user": ("user", values.text),
    "password": ("password", values.text),
    "token": ("token", values.text),
    "credsFile": ("creds_file", values.text),
    "credentials": ("creds", values.text),
    "nkeySeedFile": ("nkey_seed_file", values.text),
    "nkeySecret": ("nkey_seed", values.text),
    "jwtToken": ("jwt", values.text),
    "proxy": ("proxy", _proxy),
    "tls": ("tls", values.truth),
    "tlsFirst": ("tls_first", values.truth),
    "tlsCaFile": ("tls_ca_file", values.text),
    "tlsCaDir": ("tls_ca_dir", values.text),
    "tlsCertFile": ("tls_cert_file", values.text),
    "tlsKeyFile": ("tls_key_file", values.text),
    "tlsKeyPassword": ("tls_key_password", values.text),
    "tlsHostname": ("tls_hostname", values.text),
    "connectTimeout": ("connect_timeout", values.seconds),
    "inboxPrefix": ("inbox_prefix", values.subject),
    "jetstreamDomain": ("jetstream_domain", lambda name, value: check_name("domain", value)),
    "jetstreamApiPrefix": ("jetstream_api_prefix", values.api_prefix),
}
"""By the name in Spark: the name in ConnectOptions, and the parser of the text."""

MASKED = {
    "creds": "credentials",
    "nkeyseed": "nkeySecret",
    "nkey_seed": "nkeySecret",
    "jwt": "jwtToken",
}
"""The client's names, folded, that Spark would show in plans, and the masked ones to use."""

CALLABLES = {
    "sign": "executors cannot call it; use credentials, credsFile, or jwtToken with nkeySecret",
    "nkey": "executors cannot call sign; use nkeySecret or nkeySeedFile",
    "dialer": "it cannot be sent to executors; use proxy",
    "sslcontext": "it cannot be sent to executors; use the tls… options",
    "ssl_context": "it cannot be sent to executors; use the tls… options",
}
"""Options of the client, folded, that Spark cannot have: the reason, and what to use."""


_HERE = {target: name for name, (target, _) in CONNECTION.items() if target != name}
# Not in quotation marks, which contain what the user wrote.
_CLIENT_NAME = re.compile(rf"(?<!['\"\w])(?:{'|'.join(_HERE)})(?!['\"\w])")


def with_names_of_spark(error: ConfigError) -> ConfigError:
    """The client's error with the names of the options in Spark."""
    said = str(error)
    here = _CLIENT_NAME.sub(lambda found: _HERE[found[0]], said)
    return error if here == said else ConfigError(here)


def connection_options(given: dict[str, Any]) -> ConnectOptions:
    """ConnectOptions from their fields and `context`. Raises ConfigError."""
    if {"jetstream_domain", "jetstream_api_prefix"} <= given.keys():
        raise ConfigError("Give either 'jetstreamDomain' or 'jetstreamApiPrefix', not both.")
    try:
        options = make_options(**given)
        named_here = {"creds_file", "nkey_seed_file"} & given.keys()
        return options if named_here else options.with_contents()
    except ConfigError as error:
        raise with_names_of_spark(error) from None

"""Connections named elsewhere: contexts of the `nats` command (ADR-21), environment variables.

Both give keyword arguments of ConnectOptions; nothing connects here. A context is the file
`nats/context/<name>.json` under $XDG_CONFIG_HOME or ~/.config; `nats/context.txt` names the
selected one. The variables are those of the `nats` command:

NATS_CONTEXT, NATS_URL, NATS_USER, NATS_PASSWORD, NATS_TOKEN, NATS_CREDS (file), NATS_NKEY (file
with a seed), NATS_JWT and NATS_SEED (texts), NATS_CA, NATS_CERT, NATS_KEY (files),
NATS_SOCKS_PROXY.

Empty ones count as not set. The other variables win over the context that NATS_CONTEXT names. As in
the `nats` command, a user without a password is a token. ConfigError refuses unsupported fields
that would change where or how to connect (`nsc`, Windows certificate stores, secrets by URI).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jetspark.connection.proxy import parse_proxy
from jetspark.errors import ConfigError, DocumentError, safe_repr
from jetspark.files import read_small, read_small_text
from jetspark.wire.documents import decode_document

logger = logging.getLogger("jetspark")

_TEXTS = {
    "url": "servers",
    "user": "user",
    "password": "password",
    "token": "token",
    "user_jwt": "jwt",
    "user_seed": "nkey_seed",
    "inbox_prefix": "inbox_prefix",
    "jetstream_domain": "jetstream_domain",
    "jetstream_api_prefix": "jetstream_api_prefix",
}
_FILES = {
    "creds": "creds_file",
    "nkey": "nkey_seed_file",
    "ca": "tls_ca_file",
    "cert": "tls_cert_file",
    "key": "tls_key_file",
}
_VARIABLES = {
    "NATS_URL": "url",
    "NATS_USER": "user",
    "NATS_PASSWORD": "password",
    "NATS_TOKEN": "token",
    "NATS_CREDS": "creds",
    "NATS_NKEY": "nkey",
    "NATS_JWT": "user_jwt",
    "NATS_SEED": "user_seed",
    "NATS_CA": "ca",
    "NATS_CERT": "cert",
    "NATS_KEY": "key",
    "NATS_SOCKS_PROXY": "socks_proxy",
}
_SECRETS = frozenset({"user", "password", "token", "creds", "nkey", "user_jwt", "user_seed"})
_REFUSED = {
    "nsc": "nsc look-ups are not supported; give creds and url",
    "windows_cert_store": "Windows certificate stores are not supported; give ca, cert and key",
}
# Fields that do not affect a connection: labels, colours, and what only qualifies a refused field.
_IGNORED = frozenset(
    {
        *("name", "description", "color_scheme", "jetstream_event_prefix"),
        *("windows_cert_match_by", "windows_cert_match", "windows_ca_certs_match"),
    }
)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
# Newer versions of the command may have the URI of a secret in place of the secret.
_URI_SCHEMES = ("op://", "nsc://", "env://", "data:")


def from_context(name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The options of a context; of the selected one when `name` is empty. Raises ConfigError."""
    name = name or _selected(environ)
    return _options(_fields(name, environ), f"The context {name!r}", environ)


def from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The options in the environment; empty if it has none. Raises ConfigError."""
    fields = {field: environ[name] for name, field in _VARIABLES.items() if environ.get(name)}
    source = "The environment"
    if name := environ.get("NATS_CONTEXT"):
        source = f"The environment with the context {name!r}"
        context = _fields(name, environ)
        if fields.keys() & _SECRETS:
            context = {field: text for field, text in context.items() if field not in _SECRETS}
        fields = context | fields
    return _options(fields, source, environ)


def _fields(name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a context's file, except empty ones."""
    if any(part in name for part in ("/", "\\", "..")):
        raise ConfigError(f"{name!r} is not the name of a context: it contains a path.")
    file = _folder(environ) / "context" / f"{name}.json"
    try:
        document = decode_document(read_small(file), "context")
    except FileNotFoundError:
        contexts = ", ".join(sorted(path.stem for path in file.parent.glob("*.json"))) or "none"
        raise ConfigError(
            f"There is no context {safe_repr(name)} in {file.parent}; known: {contexts}."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"The context {safe_repr(str(file))} cannot be read: {error.strerror}."
        ) from error
    except DocumentError:  # whose message may show the text
        raise ConfigError(f"The context {str(file)!r} is not a JSON object.") from None
    return {field: value for field, value in document.items() if value}


def _selected(environ: Mapping[str, str]) -> str:
    file = _folder(environ) / "context.txt"
    try:
        name = read_small_text(file).strip()
    except (OSError, ValueError):
        name = ""
    if not name:
        raise ConfigError("No context is selected: name one, or run: nats context select.")
    return name


def _folder(environ: Mapping[str, str]) -> Path:
    root = environ.get("XDG_CONFIG_HOME")
    return (Path(root) if root else Path.home() / ".config") / "nats"


def _options(fields: dict[str, Any], source: str, environ: Mapping[str, str]) -> dict[str, Any]:
    for field, reason in _REFUSED.items():
        if field in fields:
            raise ConfigError(f"{source} sets {field}, which cannot be honoured: {reason}.")
    options: dict[str, Any] = {}
    for field, value in fields.items():
        if field == "socks_proxy":
            options["proxy"] = _socks_proxy(value, source)
        elif field == "tls_first" and isinstance(value, bool):
            options["tls_first"] = value
        elif (field in _TEXTS or field in _FILES) and not isinstance(value, str):
            raise ConfigError(f"{source}: {field} must be a text.")
        elif field in _TEXTS or field in _FILES:
            if value.startswith(_URI_SCHEMES):
                scheme = value.partition(":")[0]
                raise ConfigError(f"{source}: {field} by {scheme}: URI is not supported.")
            if field in _TEXTS:
                options[_TEXTS[field]] = value
            else:
                options[_FILES[field]] = _path(value, environ)
        elif field not in _IGNORED:
            logger.warning("%s sets %s, which is not known here and is ignored", source, field)
    if "user" in options and "password" not in options:
        options["token"] = options.pop("user")
    return options


def _socks_proxy(value: object, source: str) -> str:
    """The option `proxy`; the `nats` command does not write the scheme."""
    text = str(value)
    url = text if "://" in text else f"socks5://{text}"
    try:
        parse_proxy(url)
    except ConfigError:
        raise ConfigError(f"{source}: socks_proxy must be socks5://host:port.") from None
    return url


def _path(text: str, environ: Mapping[str, str]) -> str:
    """The path without `file://`, with $VARIABLES and ~ expanded."""
    text = _VARIABLE.sub(
        lambda match: environ.get(match[1] or match[2], match[0]), text.removeprefix("file://")
    )
    if text.startswith("~"):
        text = f"{Path.home()}{text[1:]}"
    return text

"""Names of nats-py's modules and options of its `connect` that are spelled differently here.

Contract: pure data for the errors of unknown names. Classes have no trace of nats-py: their
methods are plain functions, and docs/from-nats-py.md has the names of their attributes.
"""

from __future__ import annotations

# Of a module of jetspark, or the arguments of a call: {names in nats-py: here}.
_TABLE: dict[str, dict[str, str]] = {
    "jetspark": {
        "NATS": "connect(), which returns a Client", "Msg": "Message",
        "aio": "jetspark itself, with connect(), Client and Message",
        "js": "jetspark.jetstream, with the configurations in jetspark.documents",
        "micro": "Client.add_service()",
    },
    "errors": {
        "Error": "JetsparkError",
        "TimeoutError FlushTimeoutError DrainTimeoutError": "RequestTimeoutError",
        "FetchTimeoutError": "an empty result of fetch()",
        "BadSubscriptionError": "ClosedError",
        "MsgAlreadyAckdError": "MessageAlreadyAckedError",
        "NotJSMessageError": "NotJetStreamMessageError",
        "NotFoundError": "StreamNotFoundError, ConsumerNotFoundError or MessageNotFoundError",
        "KeyDeletedError": "KeyNotFoundError, with operation and revision",
        "KeyWrongLastSequenceError": "WrongLastSequenceError; KeyExistsError after create()",
        "NoKeysError": "an empty list of keys() or history()",
    },
    "connect": {
        "error_cb": "error_callback",
        "disconnected_cb reconnected_cb closed_cb": "event_callback, called with each change",
        "discovered_server_cb lame_duck_mode_cb": "event_callback, called with each change",
        "allow_reconnect": "reconnect", "reconnect_time_wait": "reconnect_wait",
        "dont_randomize": "randomize=False", "no_echo": "echo=False",
        "tls_handshake_first": "tls_first",
        "drain_timeout flush_timeout": "the timeout of drain() and flush()",
        "flusher_queue_size": "pending_size, in bytes",
        "signature_cb": "sign, which returns the 64 bytes of the signature",
        "user_jwt_cb": "jwt, which may be a function",
        "user_credentials": "creds_file, or creds for the text",
        "nkeys_seed nkeys_seed_str": "nkey_seed_file, or nkey_seed for the text",
        "ws_connection_headers": "ws_headers",
        "reconnect_to_server_handler": "choose_server, with reconnect_delay for the pause",
        "skip_subject_validation": "check_subjects=False",
    },
}  # fmt: skip
_REPLACEMENTS = {
    owner: {name: replacement for names, replacement in table.items() for name in names.split()}
    for owner, table in _TABLE.items()
}


def migration_hint(owner: str, name: str) -> str:
    """Say what a name of nats-py is called here; "" for any other. `owner`: as in the table."""
    replacement = _REPLACEMENTS[owner].get(name)
    return (
        ""
        if replacement is None
        else f"{name!r} is nats-py's name: in jetspark it is {replacement}."
    )

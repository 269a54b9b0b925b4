"""Every exception that jetspark raises.

::

    JetsparkError
     ├─ ConfigError(ValueError)            ErrInvalidArg: an option or argument that cannot work
     │   ├─ BadSubjectError                ErrBadSubject
     │   ├─ BadQueueError                  ErrBadQueueName
     │   ├─ BadTimeoutError                ErrBadTimeout
     │   ├─ BadPayloadError(TypeError)     a payload that is not bytes-like
     │   ├─ NKeyError                      a text that is not the NKey that it should be
     │   ├─ BadNameError                   a stream, consumer or bucket name against ADR-6
     │   └─ UnsupportedByServerError       "needs server >= x": nothing was done
     ├─ ConnectionFailure                  the link to the server
     │   ├─ ConnectionClosedError          ErrConnectionClosed
     │   │   └─ ConnectionLostError        no server is left to try
     │   ├─ NoServersError                 ErrNoServers
     │   ├─ ServerRefusedError             ErrConnectionRefused
     │   ├─ ConnectTimeoutError            ErrConnectionTimeout
     │   ├─ BrokenSocketError              ErrBrokenSocket
     │   ├─ StaleConnectionError           ErrStaleConnection
     │   ├─ TLSError                       ErrTLS
     │   ├─ SecureConnectionWantedError    ErrSecureConnWanted
     │   └─ AuthError
     │       ├─ AuthorizationError         ErrAuthorization
     │       ├─ AuthExpiredError           ErrAuthExpired
     │       ├─ AuthRevokedError           ErrAuthRevoked
     │       └─ AccountAuthExpiredError    ErrAccountAuthExpired
     ├─ ServerError                        ErrServer: any other -ERR
     │   ├─ PermissionsError               ErrPermissions: does not end the connection
     │   ├─ SubscriptionLimitError         one subscription too many: the connection lives on
     │   ├─ ConnectionLimitError           too many connections: the server ends this one
     │   ├─ ControlLineError               a line over max_control_line: ends the connection
     │   └─ InvalidSubjectError            -ERR 'Invalid Subject': does not end the connection
     ├─ ProtocolError                      ErrProtocol: bytes that are not the NATS protocol
     ├─ BadHeaderError                     ErrBadHeaderMsg
     ├─ HeadersNotSupportedError           ErrHeadersNotSupported
     ├─ MaxPayloadError                    ErrMaxPayload
     ├─ OutboundBufferError                the pending buffer is full
     ├─ ClosedError                        ErrBadSubscription: an object is used after its end
     ├─ SlowConsumerError                  messages dropped on one subscription
     ├─ RequestTimeoutError(TimeoutError)  ErrTimeout
     ├─ NoRespondersError                  ErrNoResponders
     ├─ ServiceError                       a service answered with an error: code, description
     ├─ JWTError                           a JWT that cannot be trusted or read
     ├─ CalloutRefusal                     an authorization callout's handler refuses a login
     ├─ SystemRequestError                 a server's answer in the system account is an error
     ├─ EmbeddedServerError                a nats-server that we started did not come up
     ├─ SparkUnavailableError              Java or PySpark is missing or too old
     ├─ PipelineError                      a Spark query that we ran failed
     ├─ TableError                         a commit to a Delta or Iceberg table that cannot be made
     │   ├─ CommitConflict                 another commit came first
     │   └─ SchemaEvolved                    it has new columns, with which the query begins again
     ├─ SchemaNotFoundError                a registry does not have a schema of payloads
     ├─ RegistryError                      a registry is out of reach, or does not let us in
     └─ JetStreamError                     everything JetStream answers or implies
         ├─ DocumentError                  bytes of others that are not the document they should be
         ├─ APIError                       code, err_code, description (JSResponse)
         │   ├─ JetStreamNotEnabledError
         │   ├─ JetStreamNotEnabledForAccountError
         │   ├─ StreamNotFoundError
         │   │   ├─ BucketNotFoundError    ErrBucketNotFound
         │   │   └─ ObjectStoreNotFoundError
         │   ├─ ConsumerNotFoundError
         │   ├─ MessageNotFoundError
         │   │   ├─ KeyNotFoundError       ErrKeyNotFound: also a key that was deleted
         │   │   └─ ObjectNotFoundError    also an object that was deleted
         │   ├─ WrongLastSequenceError
         │   │   └─ KeyExistsError         creating a key that has a value
         │   ├─ NotEnabledOnStreamError    publish: the stream's configuration does not allow it
         │   ├─ BatchError                 publish: the server refused a batch, or gave it up
         │   ├─ NameInUseError
         │   │   └─ ObjectExistsError      renaming or linking: the name is taken
         │   └─ …                          one for each err_code: docs/error-codes.md
         ├─ NoStreamResponseError          publish: no stream listens on the subject
         ├─ MayBeStoredError               a publisher: sent again, it might be stored twice
         ├─ PublishFailedError             a publisher's messages were not acknowledged
         ├─ NotStoredError                 a message of a batch that is certainly not stored
         ├─ NotJetStreamMessageError       metadata or ack of a plain message
         ├─ PullError                      a pull ended by the server: status, description
         │   ├─ ConsumerDeletedError
         │   └─ ConsumerIsPushError
         ├─ DirectGetError                 a direct get was refused: status, description
         ├─ ConsumerGroupNotFoundError
         ├─ LockLostError                  a lock's lease is over, or another client holds it
         ├─ CodecError                     a key or value of a bucket that its codec cannot read
         ├─ MissedHeartbeatError           a consumer went silent
         ├─ SequenceMismatchError          deliveries of a consumer did not come
         ├─ MessageAlreadyAckedError
         ├─ ObjectDamagedError             an object whose chunks are missing or not its own
         │   └─ DigestMismatchError
         ├─ BackupError                    a stream's backup or restore did not come to its end
         ├─ LedgerError                    exactly-once writing: what is stored does not fit
         └─ RangeError                     reading a range of sequences (jetspark.read, Spark)
             ├─ DataLossError              sequences of the range are gone
             ├─ StreamRecreatedError       same name, another creation time
             └─ IncompleteRangeError       the range could not be proven complete

Errors carry what a program needs as attributes; nobody has to parse a message.
Names that begin with Err are those of the same errors in nats-tcl 3.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jetspark.err_codes as err_codes
from jetspark.nats_py_names import migration_hint

_SECRETS = re.compile(r"(?<=://)[^/@\s'\"]+(?=@)|\bS[UAONCX][A-Z2-7]{20,}")
"""The user and password of a URL, or a seed, even one that was cut off."""


def safe_repr(value: object, max_chars: int = 80) -> str:
    """The repr of a caller's value for a message: without secrets, and cut at `max_chars`."""
    try:
        text = _SECRETS.sub("***", repr(value))
    except Exception:
        return f"<{type(value).__name__}>"
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


_MENTION = re.compile("\x02(\\w*)(?:=(true|false))?\x03")


def named(option: str) -> str:
    """A mention of an option in the message of an error: `f"needs {named('keys')}"`.

    `option`: its name in Python, as `on_bad_record`. The mention is marked with control characters,
    so that each surface shows the option under its own name (`JetsparkError.sentence`).
    """
    return f"\x02{option}\x03"


def switching(option: str, on: bool) -> str:
    """Advice to switch an option on or off: `f"{switching('adopt', True)} to add the rows"`.

    Each surface has its own words for it, such as "set adopt to true" or "give --adopt", with a
    capital where a sentence begins.
    """
    return f"\x02{option}={str(on).lower()}\x03"


def _describe_switch(name: str, on: bool) -> str:
    """The words of `switching` where an option has a value: in Python, Spark and files."""
    return f"set {name} to {str(on).lower()}"


class JetsparkError(Exception):
    """The root of everything that jetspark raises on purpose.

    Options that the message mentions have their names in Python; Spark, the command line and a
    pipeline file show `sentence` with theirs.
    """

    message = ""
    """The message with its mentions of options as `named` marks them."""

    def __init__(self, message: str = "", *more: object) -> None:
        self.message = message
        super().__init__(*([self.sentence(), *more] if message or more else ()))

    def sentence(
        self,
        name_of: Callable[[str], str] = str,
        describe_switch: Callable[[str, bool], str] | None = None,
    ) -> str:
        """The message with the options' names of one surface.

        `name_of`: makes them of the names in Python; `describe_switch`: how a switch is given there
        (`switching`), from its name in Python; None: by its value, true or false.
        """

        def write(mention: re.Match[str]) -> str:
            """What stands in the sentence for a mention of an option."""
            option, value = mention.groups()
            if value is None:
                return name_of(option)
            on = value == "true"
            if describe_switch is None:
                advice = _describe_switch(name_of(option), on)
            else:
                advice = describe_switch(option, on)
            begins_sentence = mention.string[: mention.start()].rstrip()[-1:] in ("", ".")
            return advice[0].upper() + advice[1:] if begins_sentence else advice

        return _MENTION.sub(write, self.message)

    def replace_message(self, message: str) -> None:
        """Set the message, which may mention options as `named` marks them."""
        self.message = message
        self.args = (self.sentence(),)

    def __reduce__(self) -> tuple[object, ...]:
        # Constructors take attributes instead of `args`, so the default would not unpickle.
        state = {**self.__dict__, "args": self.args}
        return type(self).__new__, (type(self), *self.args), state


# -- arguments and options -------------------------------------------------------------------


class ConfigError(JetsparkError, ValueError):
    """An option or argument that cannot work; the message says what to write instead.

    `problem`: the message, or with `option` the rest of it after the option's name: "must be true
    or false". `option`: name of the option in Python, as `on_bad_record`; by default the one whose
    mention begins the message. `value`: the value that is refused; the message then ends with
    ", not 'value'." `advice`: what to do, as a sentence. `about`: the option in question, in place
    of `option`, if the message does not begin with its name; a pipeline file shows its line.
    """

    def __init__(
        self,
        problem: str,
        option: str | None = None,
        value: object = None,
        advice: str | None = None,
        *,
        about: str | None = None,
    ) -> None:
        message = problem if value is None else f"{problem}, not {safe_repr(value)}."
        if option is not None:
            message = f"{named(option)}{'' if problem.startswith(':') else ' '}{message}"
        elif mention := _MENTION.match(problem):
            option = mention[1]
        self.problem, self.value, self.advice = problem, value, advice
        self.option = option or about
        super().__init__(f"{message} {advice}" if advice else message)

    @property
    def begins_with_option(self) -> bool:
        """Whether the message begins with the name of an option."""
        return _MENTION.match(self.message) is not None


class BadSubjectError(ConfigError):
    """A subject that NATS would refuse. Nothing was sent."""

    def __init__(self, subject: str, reason: str, label: str = "subject") -> None:
        super().__init__(f"Bad {label} {safe_repr(subject)}: {reason}.")
        self.subject = subject
        self.reason = reason


class BadQueueError(ConfigError):
    """A queue group name that NATS would refuse. Nothing was sent."""

    def __init__(self, queue: str, reason: str) -> None:
        super().__init__(f"Bad queue group {safe_repr(queue)}: {reason}.")
        self.queue = queue
        self.reason = reason


class BadTimeoutError(ConfigError):
    """A timeout that is not more than 0 seconds."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"A timeout must be more than 0 seconds, not {safe_repr(timeout)}.")
        self.timeout = timeout


class BadPayloadError(ConfigError, TypeError):
    """A payload that is not bytes-like. Nothing was sent."""

    def __init__(self, payload: object, advice: str) -> None:
        super().__init__(f"A payload is bytes, not {type(payload).__name__}: {advice}.")


class NKeyError(ConfigError):
    """A text that is not the expected kind of NKey, or data that a key does not fit."""


class BadNameError(ConfigError):
    """A stream, consumer or bucket name that breaks the rules of ADR-6."""

    def __init__(self, kind: str, name: str, reason: str) -> None:
        super().__init__(f"Bad {kind} name {safe_repr(name)}: {reason}.")
        self.kind = kind
        self.name = name
        self.reason = reason


class UnsupportedByServerError(ConfigError):
    """The server is too old for a feature, or too new. Nothing was done.

    `needs`: the first version with the feature ("2.11"), or the first without it ("< 2.14").
    `server`: its version, or "older" when a domain or API prefix hides it.
    """

    def __init__(self, feature: str, needs: str, server: str) -> None:
        version = needs if needs.startswith("<") else f">= {needs}"
        super().__init__(f"{feature} needs nats-server {version}; this server is {server}.")
        self.feature = feature
        self.needs = needs
        self.server = server


# -- the link to the server ------------------------------------------------------------------


class ConnectionFailure(JetsparkError):
    """The link to the server could not be made, or was lost. `server`: its URL, without secrets."""

    def __init__(self, message: str, *, server: str | None = None) -> None:
        super().__init__(message)
        self.server = server


class ConnectionClosedError(ConnectionFailure):
    """The connection is closed, or was closed while the call was waiting."""

    sent: bool = False
    """True: the request or publish was sent, and its outcome is unknown."""

    def __init__(
        self, message: str = "The connection is closed.", *, server: str | None = None
    ) -> None:
        super().__init__(message, server=server)


class NoServersError(ConnectionFailure):
    """No server could be reached. `__cause__` is the error of the last one."""


class ServerRefusedError(ConnectionFailure):
    """TCP refused: wrong port, name not found, or no server running."""


class ConnectTimeoutError(ConnectionFailure):
    """The connection was not established within `connect_timeout` seconds."""


class BrokenSocketError(ConnectionFailure):
    """The TCP connection failed."""


class StaleConnectionError(ConnectionFailure):
    """One side did not answer PINGs in time."""


class TLSError(ConnectionFailure):
    """The TLS handshake failed."""


class SecureConnectionWantedError(ConnectionFailure):
    """One side requires TLS and the other does not offer it."""


class AuthError(ConnectionFailure):
    """The server does not let this user in."""


class AuthorizationError(AuthError):
    """Wrong or missing credentials."""


class AuthExpiredError(AuthError):
    """The user's authentication has expired."""


class AuthRevokedError(AuthError):
    """The user's authentication was revoked."""


class AccountAuthExpiredError(AuthError):
    """The account's authentication has expired."""


# -- what the server or the bytes say --------------------------------------------------------


class ServerError(JetsparkError):
    """A -ERR of the server; `text` has its words."""

    def __init__(self, text: str, advice: str = "") -> None:
        super().__init__(f"The server reports: {text}.{advice}")
        self.text = text


class PermissionsError(ServerError):
    """Publishing to or subscribing to a subject is not allowed. The connection lives on.

    `operation`: "publish" or "subscription". `subject` (for a publish it may be the reply subject),
    `queue` and `sid` (the subscription's id) are the server's words.
    """

    def __init__(
        self,
        text: str,
        operation: str,
        subject: str,
        queue: str | None = None,
        sid: int | None = None,
    ) -> None:
        super().__init__(text, " `jetspark acl` prints the permissions that each role needs.")
        self.sid = sid
        self.operation = operation
        self.subject = subject
        self.queue = queue


class SubscriptionLimitError(ServerError):
    """The server allows no more subscriptions. The last one has ended; the connection lives on."""


class ConnectionLimitError(ServerError):
    """The server or the account allows no more connections; there may be room later."""


class ControlLineError(ServerError):
    """A line was longer than the server's max_control_line, which ended the connection.

    The server's limit is lower than the option `max_control_line`.
    """


class InvalidSubjectError(ServerError):
    """The server refused a subject. The connection lives on."""

    @property
    def of_publish(self) -> bool:
        """Whether the subject was published to, not subscribed to."""
        return "publish" in self.text.casefold()


class ProtocolError(JetsparkError):
    """Bytes that are not the NATS client protocol."""


class BadHeaderError(JetsparkError):
    """Message headers that cannot be parsed, or cannot be sent."""


class HeadersNotSupportedError(JetsparkError):
    """The connected server does not support message headers."""


class MaxPayloadError(JetsparkError):
    """The message is larger than the server accepts. Sizes in bytes, headers included."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The message has {size} bytes; the server accepts at most {limit}.")
        self.size = size
        self.limit = limit


class OutboundBufferError(JetsparkError):
    """The buffer of unsent bytes is full; this message was not accepted."""


class ClosedError(JetsparkError):
    """An object was used after its end: a subscription, iterator, publisher, batch, service …

    The message names it. A connection that is closed raises ConnectionClosedError.
    """


class SlowConsumerError(JetsparkError):
    """A subscription reached its pending limit; it has dropped `dropped` messages in all."""

    def __init__(self, subject: str, dropped: int) -> None:
        super().__init__(
            f"Slow consumer on {subject!r}: {dropped} message{'' if dropped == 1 else 's'} dropped "
            "so far; read faster or raise the subscription's pending limits."
        )
        self.subject = subject
        self.dropped = dropped


class RequestTimeoutError(JetsparkError, TimeoutError):
    """No reply within the timeout."""

    sent: bool = True
    """False: there was no link, so the request was not sent and will not be."""


class ConnectionLostError(ConnectionClosedError):
    """The connection was lost for good while the call was waiting; `__cause__` says why.

    Raised at once, so it is no TimeoutError: waiting again is useless. Closing on purpose raises a
    plain ConnectionClosedError.
    """

    def __init__(
        self,
        message: str = "The connection was lost, and no server is left to try.",
        *,
        server: str | None = None,
    ) -> None:
        super().__init__(message, server=server)


class NoRespondersError(JetsparkError):
    """Nobody listens on the request's subject (status 503)."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"No responders on {subject!r}.")
        self.subject = subject


class ServiceError(JetsparkError):
    """A service answered with an error, or its handler raises it to do so. `data`: the payload."""

    def __init__(self, code: int, description: str, data: bytes = b"") -> None:
        super().__init__(f"Service error {code}: {description}")
        self.code = code
        self.description = description
        self.data = data


class JWTError(JetsparkError):
    """A JWT that is malformed, forged, expired, or of another kind."""


class CalloutRefusal(JetsparkError):
    """Raised by the handler of an authorization callout to refuse a user.

    The server logs `reason`; the client does not see it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SystemRequestError(JetsparkError):
    """A server answered a request in the system account with an error."""

    def __init__(self, server: str, code: int, description: str) -> None:
        super().__init__(f"Server {server} answers: {description} (code {code}).")
        self.server = server
        self.code = code
        self.description = description


class EmbeddedServerError(JetsparkError):
    """The embedded nats-server could not be found, or did not start."""


class SparkUnavailableError(JetsparkError):
    """Java or PySpark is missing or too old."""


class PipelineError(JetsparkError):
    """A Spark query failed; `__cause__` is Spark's whole error."""

    is_mistake = False
    """Whether an option or argument was the reason: Spark's log has nothing about that."""


class TableError(JetsparkError):
    """A commit to a table would lose or repeat rows."""


class CommitConflict(TableError):
    """Another commit to the table came first; this one changed nothing."""


class SchemaEvolved(TableError):
    """The table has got columns for new fields, and the batch is not written: its query is started
    again, with the columns of the table."""


class SchemaNotFoundError(JetsparkError):
    """A registry does not have the schema of a payload. The message says which one, and where."""


class RegistryError(JetsparkError):
    """A schema registry cannot be reached, or does not let us in. The message names it."""


# -- JetStream -------------------------------------------------------------------------------


class JetStreamError(JetsparkError):
    """The root of JetStream's errors."""


class DocumentError(JetStreamError):
    """Bytes of another party are not the `document` that they should be, for this `reason`."""

    def __init__(self, document: str, reason: str) -> None:
        self.document = document
        self.reason = reason.removesuffix(".")
        super().__init__(f"Unreadable {document}: {self.reason}.")


class APIError(JetStreamError):
    """The JetStream API answered with an error: `code` (HTTP-like), `err_code`, `description`.

    Each err_code has a class of its own, such as `StreamMoveInProgressError`: `name` and "Error".
    """

    def __init__(
        self, code: int, err_code: int, description: str, message: str | None = None
    ) -> None:
        super().__init__(message or f"{description} (code {code}, err_code {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description

    @property
    def name(self) -> str | None:
        """The server's name of the error, as "StreamMoveInProgress"; None: a newer server's."""
        return err_codes.TABLE.get(self.err_code, (None,))[0]


class JetStreamNotEnabledError(APIError):
    """JetStream is not enabled on the server."""


class JetStreamNotEnabledForAccountError(APIError):
    """JetStream is not enabled for this account."""


class StreamNotFoundError(APIError):
    """No such stream."""


class ConsumerNotFoundError(APIError):
    """No such consumer."""


class MessageNotFoundError(APIError):
    """No such message in the stream."""


class WrongLastSequenceError(APIError):
    """The expected last sequence or message id does not match: another publisher was first."""


class BucketNotFoundError(StreamNotFoundError):
    """No such Key-Value bucket. `bucket`: its name."""

    def __init__(
        self, bucket: str, code: int = 404, err_code: int = err_codes.STREAM_NOT_FOUND
    ) -> None:
        super().__init__(code, err_code, "bucket not found", f'Bucket "{bucket}" not found.')
        self.bucket = bucket


class KeyNotFoundError(MessageNotFoundError):
    """No such key in the bucket, or no such revision of it.

    `operation`: "DEL" or "PURGE" when the entry `revision` deleted the key.
    """

    def __init__(
        self, bucket: str, key: str, *, revision: int | None = None, operation: str | None = None
    ) -> None:
        key_text = f'Key "{key}"'
        if operation is not None:
            text = f'{key_text} of bucket "{bucket}" was deleted (revision {revision}).'
        elif revision is not None:
            text = f'{key_text} has no revision {revision} in bucket "{bucket}".'
        else:
            text = f'{key_text} not found in bucket "{bucket}".'
        super().__init__(404, err_codes.NO_MESSAGE_FOUND, "key not found", text)
        self.bucket = bucket
        self.key = key
        self.revision = revision
        self.operation = operation


class ObjectStoreNotFoundError(StreamNotFoundError):
    """No such object store."""


class ObjectNotFoundError(MessageNotFoundError):
    """No such object in the store, or a link without a target."""


class KeyExistsError(WrongLastSequenceError):
    """The key to create already has a value, of this `revision`."""

    def __init__(self, bucket: str, key: str, revision: int) -> None:
        text = f'Key "{key}" of bucket "{bucket}" exists already (revision {revision}).'
        super().__init__(400, err_codes.STREAM_WRONG_LAST_SEQUENCE, "wrong last sequence", text)
        self.bucket = bucket
        self.key = key
        self.revision = revision


class NameInUseError(APIError):
    """A stream or consumer of that name exists with another configuration."""

    differences: Mapping[str, tuple[Any, Any]] = MappingProxyType({})
    """The server's value and the given one, by field; empty when the server named none."""
    restored: bool = False
    """Whether the stream has everything in the backup."""


class ObjectExistsError(NameInUseError):
    """An object of that name exists; renaming and linking never replace one."""


class NotEnabledOnStreamError(APIError):
    """The stream accepts such messages only if its configuration sets `option`."""

    OPTIONS: Mapping[int, str] = {
        err_codes.MESSAGE_TTL_DISABLED: "allow_msg_ttl",
        err_codes.MESSAGE_INCR_DISABLED: "allow_msg_counter",
        err_codes.ATOMIC_PUBLISH_DISABLED: "allow_atomic",
        err_codes.MESSAGE_SCHEDULES_DISABLED: "allow_msg_schedules",
        err_codes.BATCH_PUBLISH_DISABLED: "allow_batched",
    }

    def __init__(
        self, code: int, err_code: int, description: str, message: str | None = None
    ) -> None:
        self.option = self.OPTIONS[err_code]
        message = message or f"The stream's option {self.option} is off ({description})."
        super().__init__(code, err_code, description, message)


class BatchError(APIError):
    """The server refused or abandoned a batch (ADR-50)."""


_CLASSES: dict[int, type[APIError]] = {
    err_codes.CONSUMER_NOT_FOUND: ConsumerNotFoundError,
    err_codes.NO_MESSAGE_FOUND: MessageNotFoundError,
    err_codes.NOT_ENABLED: JetStreamNotEnabledError,
    err_codes.NOT_ENABLED_FOR_ACCOUNT: JetStreamNotEnabledForAccountError,
    err_codes.STREAM_NOT_FOUND: StreamNotFoundError,
    err_codes.STREAM_WRONG_LAST_SEQUENCE: WrongLastSequenceError,
}
"""The class of each err_code; those that are missing are made when they are first used."""

_BASES: Mapping[int, type[APIError]] = {
    err_codes.CONSUMER_ALREADY_EXISTS: NameInUseError,
    err_codes.CONSUMER_DOES_NOT_EXIST: ConsumerNotFoundError,
    err_codes.CONSUMER_NAME_EXIST: NameInUseError,
    err_codes.SEQUENCE_NOT_FOUND: MessageNotFoundError,
    err_codes.STREAM_NAME_EXIST: NameInUseError,
    err_codes.STREAM_NAME_EXIST_RESTORE_FAILED: NameInUseError,
    err_codes.STREAM_WRONG_LAST_MSG_ID: WrongLastSequenceError,
    err_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT: WrongLastSequenceError,
    **dict.fromkeys(NotEnabledOnStreamError.OPTIONS, NotEnabledOnStreamError),
    **dict.fromkeys(
        (
            err_codes.ATOMIC_PUBLISH_MISSING_SEQ,
            err_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH,
            err_codes.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH,
            err_codes.ATOMIC_PUBLISH_INVALID_BATCH_ID,
            err_codes.ATOMIC_PUBLISH_TOO_LARGE_BATCH,
            err_codes.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT,
            err_codes.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE,
            err_codes.BATCH_PUBLISH_INVALID_PATTERN,
            err_codes.BATCH_PUBLISH_INVALID_BATCH_ID,
            err_codes.BATCH_PUBLISH_UNKNOWN_BATCH_ID,
            err_codes.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT,
            err_codes.BATCH_PUBLISH_TOO_MANY_INFLIGHT,
        ),
        BatchError,
    ),
}


def api_error_class(err_code: int) -> type[APIError]:
    """The class of an err_code; APIError for one that a newer server has added."""
    if (known := _CLASSES.get(err_code)) is not None:
        return known
    if err_code not in err_codes.TABLE:
        return APIError
    name, description = err_codes.TABLE[err_code]
    members = {"__module__": __name__, "__doc__": f"The API's error {err_code}: {description}."}
    new = type(f"{name}Error", (_BASES.get(err_code, APIError),), members)
    return _CLASSES.setdefault(err_code, new)  # another thread may have been first


class NotStoredError(JetStreamError):
    """A message that is certainly not stored: lost, after its batch's end, or removed since."""


class NoStreamResponseError(JetStreamError):
    """No stream listens on the subject, or it has no leader. Nothing was stored."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"Not stored: no stream listens on {subject!r}, or it has no leader.")
        self.subject = subject


class MayBeStoredError(JetStreamError):
    """A publisher's message may be stored, and its stream may not recognise it when sent again.

    `subject` and `msg_id`: the message's. `stream` and `duplicate_window` (seconds): the stream's;
    None: not known.
    """

    def __init__(
        self,
        subject: str,
        msg_id: str | None,
        stream: str | None,
        duplicate_window: float | None,
        reason: str,
    ) -> None:
        stream_label = "the stream" if stream is None else f"stream {stream!r}"
        super().__init__(
            f"The message on {subject!r} may be stored: no ack came, and it is not sent again, as "
            f"{stream_label} may not recognise its id ({reason})."
        )
        self.subject = subject
        self.msg_id = msg_id
        self.stream = stream
        self.duplicate_window = duplicate_window


class PublishFailedError(JetStreamError):
    """Messages of a publisher were not acknowledged.

    `failures`: a `jetspark.jetstream.PublishFailure` each, by index.
    """

    def __init__(self, failures: list[Any]) -> None:
        self.failures = sorted(failures, key=lambda failure: failure.index)
        first = self.failures[0]
        unknown = sum(not _is_refusal(failure.error) for failure in failures)
        super().__init__(
            f"{len(failures)} message{'s were' if len(failures) > 1 else ' was'} not acknowledged"
            f"{f' ({unknown} may be stored)' if unknown else ''}; the first has index "
            f"{first.index} and is for {first.subject!r}: {first.error}"
        )


def _is_refusal(error: JetsparkError) -> bool:
    """True for an error that says that a message is not stored."""
    if isinstance(error, PermissionsError):  # one for the acks' inbox says nothing of the message
        return error.operation == "publish"
    return isinstance(error, APIError | NoStreamResponseError | NotStoredError)


class NotJetStreamMessageError(JetStreamError):
    """The message did not come from a JetStream consumer."""


class PullError(JetStreamError):
    """The server ended a pull; `status` and `description` are those of its status line."""

    def __init__(self, status: int, description: str) -> None:
        super().__init__(f"The pull was ended by the server: {status} {description}".rstrip() + ".")
        self.status = status
        self.description = description


class ConsumerDeletedError(PullError):
    """The consumer was deleted while a pull was waiting."""


class ConsumerIsPushError(PullError):
    """A pull from a push consumer."""


class DirectGetError(JetStreamError):
    """The server refused a direct get; `status` and `description` are those of its status line.

    503: the stream does not allow direct gets. 413: too many subjects.
    """

    def __init__(self, status: int, description: str, message: str | None = None) -> None:
        super().__init__(message or f"The direct get was refused: {status} {description}.")
        self.status = status
        self.description = description


class ConsumerGroupNotFoundError(JetStreamError):
    """The `stream` has no partitioned consumer group `group`."""

    def __init__(self, stream: str, group: str) -> None:
        super().__init__(f'Stream "{stream}" has no consumer group "{group}".')
        self.stream = stream
        self.group = group


class LockLostError(JetStreamError):
    """The lock that was held with `token` is lost: another client may hold it."""

    def __init__(self, bucket: str, key: str, token: int, reason: str) -> None:
        super().__init__(f'Lock "{key}" of bucket "{bucket}" was lost (token {token}): {reason}')
        self.bucket = bucket
        self.key = key
        self.token = token
        self.reason = reason


class CodecError(JetStreamError):
    """A codec cannot write or read a key, a value or a payload."""


class MissedHeartbeatError(JetStreamError):
    """No message and no heartbeat arrived for twice the heartbeat interval."""


class SequenceMismatchError(JetStreamError):
    """Deliveries of a consumer are missing. Without acks they are lost for good."""


class MessageAlreadyAckedError(JetStreamError):
    """The message was acknowledged before."""


class ObjectDamagedError(JetStreamError):
    """Chunks of an object are missing or replaced."""


class DigestMismatchError(ObjectDamagedError):
    """The digest of an object's chunks is not the one that was stored."""


class BackupError(JetStreamError):
    """A stream's backup or restore failed, or a backup on disk is damaged."""


class LedgerError(JetStreamError):
    """Writing exactly once had to stop, because it could lose or repeat rows.

    The ledger or the target's markers were purged, expired or restored from a backup, or another
    run of the query is ahead.
    """


class RangeError(JetStreamError):
    """Reading a range of a stream's sequences failed. `stream` is its name."""

    def __init__(self, stream: str, message: str) -> None:
        super().__init__(message)
        self.stream = stream


class DataLossError(RangeError):
    """Sequences `first` to `last`, inclusive, are no longer stored."""

    def __init__(self, stream: str, first: int, last: int, message: str) -> None:
        super().__init__(stream, message)
        self.first = first
        self.last = last


class StreamRecreatedError(RangeError):
    """The stream was recreated or restored: its sequences now belong to other messages.

    `restored`: whether it was from a backup (it then has messages older than itself); None: not
    known.
    """

    def __init__(
        self,
        stream: str,
        expected: str,
        actual: str,
        restored: bool | None = None,
        advice: str = "",
    ) -> None:
        causes = {None: "recreated or restored", True: "restored from a backup", False: "recreated"}
        cause = causes[restored]
        super().__init__(
            stream,
            f"Stream {stream!r} was created at {expected} when this read began and at {actual} "
            f"now: it was {cause}, so its sequences mean other messages. {advice}".strip(),
        )
        self.expected = expected
        self.actual = actual
        self.restored = restored


class IncompleteRangeError(RangeError):
    """The range could not be proven complete within the timeout."""


def user_error(source: str, error: BaseException) -> JetsparkError:
    """The report of an exception that user code, such as a callback, raised."""
    report = JetsparkError(f"{source} raised {safe_repr(error, 500)}.")
    report.__cause__ = error
    return report


if TYPE_CHECKING:
    from jetspark.api_errors import *  # noqa: F403 - the classes of `api_error_class`
else:

    def __getattr__(name: str) -> Any:
        for err_code, (error_name, _) in err_codes.TABLE.items():
            if name == f"{error_name}Error":
                return api_error_class(err_code)
        hint = migration_hint("errors", name)
        raise AttributeError(hint or f"module {__name__!r} has no attribute {name!r}")

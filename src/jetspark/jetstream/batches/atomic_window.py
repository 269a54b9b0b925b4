"""The window of an atomic batch: its messages until the server has stored all or none of them.

Contract. No I/O, no event loop, no clock. Messages are numbered from 1. The newest one is held
back, since the last one has the commit header: `reserve` holds it, and `release` returns it to be
sent before the next one is reserved. The batch ends once: by `acked`, or by the first `failed`;
later calls change nothing.

Threads. `reserve`, `release` and `commit` are for senders, one at a time, in any thread; `acked`
and `failed` may be called in any thread at any time, and a lock makes the first one count. The rest
is for the event loop's thread; attributes may be read anywhere.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from jetspark.errors import BrokenSocketError, ConfigError, RequestTimeoutError
from jetspark.wire.batch_headers import COMMIT, COMMIT_BEFORE
from jetspark.wire.headers import VERSION

if TYPE_CHECKING:
    from jetspark.errors import JetsparkError
    from jetspark.jetstream.documents import PubAck

NO_HEADERS: Final = VERSION + b"\r\n"


class BatchMessage(msgspec.Struct, frozen=True, gc=False):
    """One message, checked. `head`: its header block without the end."""

    subject: str
    payload: bytes
    head: bytes


class AtomicWindow:
    """What was added, what the server keeps, and how it ended. Closed at first."""

    __slots__ = (
        "_lock",
        "_open",
        "ack",
        "committing",
        "error",
        "held",
        "kept",
        "size",
        "subject",
        "subjects",
    )

    def __init__(self) -> None:
        self.size = 0
        """Messages added so far."""
        self.held: BatchMessage | None = None
        """The newest message, while it was not sent."""
        self.kept = False
        """Whether the server has said that it keeps the first message."""
        self.committing = False
        """Whether the commit was sent: all or nothing may be stored."""
        self.error: JetsparkError | None = None
        """Why nothing is stored, or why that is unknown."""
        self.ack: PubAck | None = None
        """The answer to the commit."""
        self.subject = ""
        """Of the last message that was given out."""
        self.subjects: set[str] = set()
        """Of all that were given out."""
        self._open = False
        self._lock = Lock()

    def check_open(self) -> None:
        """Raises why no message can be added: the error of the batch, or ConfigError."""
        if self.error is not None:
            raise self.error
        if not self._open:
            raise ConfigError("The batch is not open: use it inside its with block.")
        if self.committing:
            raise ConfigError("The batch was committed already.")

    # -- whoever adds ----------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether the first message is held: it is sent, and answered, before there is a second."""
        return self.held is not None and not self.kept

    def release(self) -> tuple[int, BatchMessage] | None:
        """The message that is held, to be sent now, and its number. None: there is none."""
        if (held := self.held) is None:
            return None
        self.held = None
        subject = self.subject = held.subject
        self.subjects.add(subject)
        return self.size, held

    def reserve(self, message: BatchMessage) -> int:
        """One more message: its number. None may be held."""
        assert self.held is None  # noqa: S101
        self.held = message
        self.size += 1
        return self.size

    def commit(self) -> tuple[int, BatchMessage, bytes]:
        """What to commit with: number, message and mark. Raises ConfigError for an empty batch."""
        if not self.size:
            raise ConfigError("The batch is empty.")
        self.committing = True
        if (last := self.release()) is not None:
            return *last, COMMIT
        return self.size + 1, BatchMessage(self.subject, b"", NO_HEADERS), COMMIT_BEFORE

    # -- any thread ------------------------------------------------------------------------------

    def acked(self, ack: PubAck) -> None:
        """All is stored."""
        with self._lock:
            if self.error is None:
                self.ack = ack

    def failed(self, error: JetsparkError) -> bool:
        """A refusal, or an end. True: it is the first one, and the reason for all that follow."""
        with self._lock:
            if self.error is not None or self.ack is not None:
                return False
            self.error = error
            return True

    # -- the event loop's thread -----------------------------------------------------------------

    def open(self) -> None:
        """Take messages from now on."""
        self._open = True

    def close(self) -> bool:
        """Take no more. True: the server keeps messages that will not be committed."""
        self._open = False
        return self.kept and not self.committing

    def lost(self) -> BrokenSocketError:
        """What the loss of the link means."""
        if self.committing:
            message = "The connection was lost at the commit: the batch may be stored or not."
        else:
            message = "The connection was lost, and the batch with it: nothing of it is stored."
        return BrokenSocketError(message)

    def expired(self, timeout: float) -> RequestTimeoutError:
        """What it means that an answer did not come within `timeout` seconds."""
        if self.committing:
            what = "the commit of the batch, which may be stored or not"
        else:
            what = "a message of the batch, which is not stored"
        return RequestTimeoutError(f"No answer within {timeout:g} s to {what}.")

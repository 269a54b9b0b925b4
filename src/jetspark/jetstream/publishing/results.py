"""The outcomes of a `Publisher`'s messages."""

from __future__ import annotations

from copy import copy

from jetspark.errors import (
    BrokenSocketError,
    ConnectionClosedError,
    JetsparkError,
    PublishFailedError,
    RequestTimeoutError,
)


class PublishFailure:
    """A message that was not acknowledged: `index` (0 for the first sent), `subject`, `error`."""

    __slots__ = ("error", "index", "subject")

    def __init__(self, index: int, subject: str, error: JetsparkError) -> None:
        self.index = index
        self.subject = subject
        self.error = error

    def __repr__(self) -> str:
        return f"PublishFailure({self.index}, {self.subject!r}, {self.error!r})"


def tell_failures(unseen: list[PublishFailure], error: BaseException | None) -> None:
    """The unread failures at the end of a block that may have raised `error`."""
    if not unseen:
        return
    failure = PublishFailedError(unseen)
    if error is None:
        raise failure
    # The block's own error goes on; what we know goes with it.
    error.add_note(str(failure))


def no_ack_in_time(message: str, subject: str, timeout: float) -> RequestTimeoutError:
    """The stream did not answer. `message`: "message 3"."""
    return RequestTimeoutError(
        f"No ack for {message} on {subject!r} within {timeout:g} s: "
        "it is not known whether it was stored."
    )


def closed_before_ack(error: ConnectionClosedError, subject: str) -> ConnectionClosedError:
    """The same, of a publish that was sent."""
    own = copy(error)
    own.args = (
        f"{error} No ack for the message on {subject!r} had come: "
        "it is not known whether it was stored.",
    )
    return own


def link_lost(index: int, subject: str) -> BrokenSocketError:
    """The link went down between the message and its ack."""
    return BrokenSocketError(
        "The connection was lost before the ack came: "
        f"it is not known whether message {index} on {subject!r} was stored."
    )


def no_more_acks(cause: JetsparkError | None) -> JetsparkError:
    """The end of the subscription for acks: that of the connection, or the server refused it.

    One error for each message: an instance raised in many tasks would mix tracebacks.
    """
    if cause is not None and not isinstance(cause, ConnectionClosedError):
        own = copy(cause)
        own.args = (f"No ack can be received, so nobody knows what was stored: {cause}",)
        return own
    error = ConnectionClosedError("The connection was closed before the ack came.")
    error.__cause__ = cause
    return error

"""Each error of nats-tcl 3.0 has a class of its own here, drawn in the tree."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from jetspark import errors

REFERENCE = """
    ErrConnectionClosed ErrNoServers ErrInvalidArg ErrBadSubject ErrBadQueueName ErrBadTimeout
    ErrMaxPayload ErrBadSubscription ErrTimeout ErrNoResponders ErrHeadersNotSupported
    ErrBrokenSocket ErrTLS ErrStaleConnection ErrConnectionRefused ErrSecureConnWanted
    ErrConnectionTimeout ErrBadHeaderMsg ErrServer ErrPermissions ErrAuthorization ErrAuthExpired
    ErrAuthRevoked ErrAccountAuthExpired ErrProtocol
"""

DRAWN = re.findall(r"^( +[│ ]*)[├└]─ (\w+)(?:\(\w+\))? *(\w*)", errors.__doc__ or "", re.MULTILINE)
CLASSES = {
    name: cls
    for name, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.JetsparkError)
}


def test_the_tree_draws_every_class_below_its_base() -> None:
    assert {name for _, name, _ in DRAWN} | {"JetsparkError"} == set(CLASSES)
    above: list[tuple[int, str]] = [(0, "JetsparkError")]
    for indent, name, _ in DRAWN:
        while above[-1][0] >= len(indent):
            above.pop()
        assert above[-1][1] in {base.__name__ for base in CLASSES[name].__bases__}, name
        above.append((len(indent), name))


@pytest.mark.parametrize("name", REFERENCE.split())
def test_every_nats_tcl_error_has_its_own_class(name: str) -> None:
    assert len([cls for _, cls, first_word in DRAWN if first_word == name]) == 1


def test_errors_have_attributes_besides_their_messages() -> None:
    queue = errors.BadQueueError("two words", "why")
    assert (queue.queue, queue.reason) == ("two words", "why")
    timeout = errors.BadTimeoutError(-1)
    assert timeout.timeout == -1
    for error in (queue, timeout, errors.ConnectionLostError(server="nats://a:1")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (
            type(error),
            str(error),
            error.__dict__,
        )

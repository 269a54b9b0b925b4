"""The tree of a traced message, joined from reports as servers send them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jetspark.errors import JetsparkError
from jetspark.tracing import tree

TS = "2024-02-22T13:18:48.400595984Z"
IN = {"type": "in", "ts": TS, "kind": 0, "cid": 7, "name": "me", "acc": "A", "subj": "x"}


def out(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"type": "eg", "ts": TS, "kind": kind, "cid": 8, "name": name, **more}


def report(name: str, hop: str, *events: dict[str, Any]) -> bytes:
    headers = {"Nats-Trace-Hop": [hop]} if hop else {"Nats-Trace-Dest": ["i"]}
    server = {"name": name, "id": name * 3, "ver": "2.11.0", "cluster": "lon"}
    return json.dumps({"server": server, "request": {"header": headers}, "events": events}).encode()


FIRST = report("n1", "", IN, out(1, "n2", hop="1"), out(2, "gate", hop="2"), out(0, "billing"))
SECOND = report("n2", "1", IN | {"kind": 1}, out(4, "leaf", hop="1.1"))
LEAF = report("leaf", "1.1", IN | {"kind": 4}, {"type": "js", "ts": TS, "stream": "S"})
GATE = report("gate", "2", IN | {"kind": 2})


def collect(*reports: bytes) -> tree.Reports:
    found = tree.Reports()
    for one in reports:
        found.add(tree.parse_report(one))
    return found


def test_reports_are_joined_by_their_hops_in_whatever_order_they_come() -> None:
    reports = collect(LEAF, GATE, SECOND, FIRST)
    assert reports.missing() == ()
    trace = reports.joined("x", delivered=False)
    assert trace.complete
    assert trace.root is not None
    assert [server.name for server in trace.root.walk()] == ["n1", "n2", "leaf", "gate"]
    route, gateway, client = trace.root.egresses
    assert (route.connection, gateway.connection, client.connection) == (
        *("route", "gateway", "client"),
    )
    assert trace.root.after(client) is None
    second = trace.root.after(route)
    assert second is not None
    assert second.ingress is not None
    assert second.ingress.connection == "route"
    assert [one.stream for one in trace.streams] == ["S"]
    assert trace.clients == (client,)


@pytest.mark.parametrize(
    ("events", "nobody"),
    [
        ((), True),
        (({"type": "sm", "ts": TS, "to": "y"},), True),
        ((out(0, "billing"),), False),
        ((out(3, "internal"),), False),
        ((out(4, "old", error="does not trace"),), False),
        (({"type": "js", "ts": TS, "stream": "S"},), False),
        (({"type": "si", "ts": TS, "acc": "B", "from": "x", "to": "y"},), False),
        (({"type": "se", "ts": TS, "acc": "B", "to": "y"},), False),
        (({"type": "zz", "ts": TS},), False),
    ],
)
def test_nobody_there_is_told_only_where_every_way_is_known(
    events: tuple[dict[str, Any], ...], nobody: bool
) -> None:
    route = out(1, "n2", hop="1")
    whole = collect(report("n1", "", IN, route), report("n2", "1", IN, *events))
    trace = whole.joined("x", delivered=False)
    assert trace.no_interest is nobody
    sentence = "complete: nobody subscribes to it, and no stream stores it"
    assert str(trace).endswith(sentence) is nobody
    assert not collect(report("n1", "", IN, route)).joined("x", delivered=False).no_interest


def test_a_report_that_did_not_come_is_named_and_what_is_behind_it_kept() -> None:
    trace = collect(FIRST, LEAF).joined("x", delivered=True)
    assert not trace.complete
    assert trace.missing == (
        tree.MissingServer("1", "n2", "n1"),
        tree.MissingServer("2", "gate", "n1"),
    )
    assert [server.name for server in trace.detached] == ["leaf"]
    assert [server.name for server in trace.servers] == ["n1", "leaf"]
    assert "INCOMPLETE: n2, behind n1, did not report; gate, behind n1" in str(trace)
    lost = collect(SECOND, LEAF).joined("x", delivered=True)
    assert lost.root is None
    assert [server.name for server in lost.detached] == ["n2"]
    assert "the server of this connection did not report" in str(lost)


def test_a_server_that_cannot_trace_is_not_waited_for() -> None:
    error = "Not delivered because remote does not support message tracing"
    reports = collect(report("n1", "", IN, out(4, "old", hop="1", error=error)))
    assert reports.missing() == ()
    trace = reports.joined("x", delivered=False)
    assert [one.error for one in trace.errors] == [error]
    assert f'✗ out: leaf node 8 "old": {error}' in str(trace)


def test_tree_is_drawn() -> None:
    assert str(collect(FIRST, SECOND, LEAF, GATE).joined("x", delivered=False)) == (
        "x (only traced, not delivered)\n"
        "├─ n1 (cluster lon, nats-server 2.11.0)\n"
        '│  ├─ in: client 7 "me", account A, as x\n'
        '│  ├─ out: route 8 "n2"\n'
        "│  │  └─ n2 (cluster lon, nats-server 2.11.0)\n"
        '│  │     ├─ in: route 7 "me", account A, as x\n'
        '│  │     └─ out: leaf node 8 "leaf"\n'
        "│  │        └─ leaf (cluster lon, nats-server 2.11.0)\n"
        '│  │           ├─ in: leaf node 7 "me", account A, as x\n'
        "│  │           └─ stream S\n"
        '│  ├─ out: gateway 8 "gate"\n'
        "│  │  └─ gate (cluster lon, nats-server 2.11.0)\n"
        '│  │     └─ in: gateway 7 "me", account A, as x\n'
        '│  └─ out: client 8 "billing"\n'
        "└─ 4 servers, 1 stream, 1 client; complete"
    )


def test_names_cannot_command_the_terminal() -> None:
    trace = collect(report("n1", "", IN | {"name": "\x1b[2J\r\n"})).joined("x", delivered=False)
    assert "\\x1b[2J\\r\\n" in str(trace)


def test_types_and_fields_of_newer_servers_are_kept() -> None:
    new = {"type": "zz", "ts": TS, "colour": "red"}
    read = tree.parse_report(report("n1", "", IN | {"new": 1}, out(99, "?"), new))
    ingress, egress, other = read.events
    assert isinstance(ingress, tree.TraceIngress)
    assert ingress.raw["new"] == 1
    assert ingress.at.microsecond == 400596  # rounded
    assert isinstance(egress, tree.TraceEgress)
    assert egress.connection == "connection 99"
    assert (type(other), other.type, other.raw) == (tree.TraceEvent, "zz", new)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"\xff", b"{}", b'{"server": 1}', b'{"server": {"name": "n"}}'),
        b'{"server": {"name": "n", "id": "i"}, "events": [{"type": 1}]}',
        b'{"server": {"name": "n", "id": "i"}, "events": [{"ts": "' + TS.encode() + b'"}]}',
        b'{"server": {"name": "n", "id": "i"}, "events": 1}',
        b'{"server": {"name": "n", "id": "i"}, "request": {"header": [1]}}',
    ],
)
def test_what_is_no_report_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(JetsparkError, match="cannot be read"):
        tree.parse_report(data)

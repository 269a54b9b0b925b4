"""Mutated server streams, for the parser and, behind a true INFO, for a client over a real socket.

The parser: the events and the error are the same in one piece and in chunks; nothing but
ProtocolError; what is kept is never more than what came. Everything that is decoded later
(headers, status, INFO, metadata, the trace) raises its own typed error or none. The client:
connects or raises a JetsparkError; what it delivers is what the parser makes of the bytes; it ends
when the peer does, within `WITHIN` seconds, and no task is left.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from tests.support import campaign

from jetspark import Client, JetsparkError
from jetspark.connection.options import make_options
from jetspark.connection.server_errors import error_of
from jetspark.errors import BadHeaderError, NotJetStreamMessageError, ProtocolError
from jetspark.wire.control import PONG, Err, Info
from jetspark.wire.documents import parse_info
from jetspark.wire.headers import parse_headers
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.parser import Frame, Parser, one_by_one
from jetspark.wire.reply_subject import parse_reply_subject
from jetspark.wire.status import status_of
from jetspark.wire.trace import received_line

WITHIN = 10.0  # seconds
EVERY = 50

INFO = b'INFO {"server_id":"S","version":"2.99.0","headers":true,"max_payload":1048576}\r\n'
SEEDS = [
    INFO,
    b'INFO {"connect_urls":["127.0.0.1:1","[::1]:2"],"ldm":false,"tls_required":false}\r\n',
    b"PING\r\n",
    b"PONG\r\n",
    b"+OK\r\n",
    b"-ERR 'Permissions Violation for Subscription to \"a\"'\r\n",
    b"-ERR 'Slow Consumer'\r\n",
    b"MSG a 1 5\r\nhello\r\n",
    b"MSG a 1 0\r\n\r\n",
    b"MSG a.b.c 1 _INBOX.x.1 12\r\nPING\r\nMSG a \r\n",
    b"MSG a 1 $JS.ACK.S.c.1.2.3.1700000000000000000.4 2\r\n{}\r\n",
    b"MSG a 1 $JS.ACK._.H.S.c.1.2.3.1700000000000000000.4.r 2\r\n{}\r\n",
    b"HMSG a 1 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG a 1 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
    b"HMSG a 1 30 33\r\nNATS/1.0\r\nk: v\xc3\xa4\r\nk: w:x\r\n\r\nabc\r\n",
]
_TOKENS = [
    b"\r\n", b"\r", b"\n", b" ", b"\t", b"\0", b"0", b"-1", b"+1", b"1_0", b"99999999999999999999",
    b"134217729", b"9" * 5000, b"MSG", b"HMSG", b"NATS/1.0", b"'", b'"', b"{", b"[" * 3000,
    b"1e999", b"\xff", b"\xc3", "é".encode(), b"$JS.ACK.", b":", b"null", b"true",
]  # fmt: skip


def stream(rng: random.Random) -> bytes:
    """A few frames of a server, most of the time with something wrong about them."""
    data = bytearray(b"".join(rng.choices(SEEDS, k=rng.randint(1, 6))))
    for _ in range(rng.choice((0, 1, 1, 2, 4, 8))):
        at = rng.randint(0, len(data))
        to = min(len(data), at + rng.choice((1, 1, 2, 8, 40)))
        kind = rng.random()
        if kind < 0.3:
            data[at:to] = rng.randbytes(to - at)
        elif kind < 0.5:
            del data[at:to]
        elif kind < 0.7:
            data[at:at] = rng.choice(_TOKENS)
        elif kind < 0.85:
            data[at:to] = rng.choice(_TOKENS)
        elif kind < 0.95:
            data[at:at] = data[at:to]
        else:
            del data[at:]
    return bytes(data)


def chunks(data: bytes, rng: random.Random) -> list[bytes]:
    """The same bytes, cut at random places."""
    if rng.random() < 0.1:
        return [data[i : i + 1] for i in range(len(data))]
    edges = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(1, 4)))
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True)]


def parse(data: bytes, rng: random.Random) -> tuple[list[Frame], ProtocolError | None]:
    """What the parser says; AssertionError when that depends on how the bytes come."""
    whole = Parser()
    events = list(one_by_one(whole.feed(data)))
    parts = Parser()
    again = [event for chunk in chunks(data, rng) for event in one_by_one(parts.feed(chunk))]
    assert again == events, data
    assert type(whole.error) is type(parts.error), data
    assert whole.error is None or type(whole.error) is ProtocolError
    for parser in (whole, parts):
        assert parser.pending <= len(data)
    return events, whole.error


def decode(event: Frame) -> None:
    """All that is read of an event later on raises typed errors only."""
    received_line(event)
    if isinstance(event, MessageFrame):
        reply, block = event.reply, event.headers
        if block is not None:
            status_of(block)
            try:
                parse_headers(block)
            except BadHeaderError:
                pass
        try:
            metadata = parse_reply_subject(reply)
            metadata.timestamp  # noqa: B018
        except NotJetStreamMessageError:
            pass
    elif isinstance(event, Info):
        try:
            parse_info(event.document)
        except ProtocolError:
            pass
    elif isinstance(event, Err):
        error_of(event.text, "nats://peer")


@dataclass
class Figures(campaign.Figures):
    events: int = 0
    streams: Counter[str] = field(default_factory=Counter)
    clients: Counter[str] = field(default_factory=Counter)


def _fuzz_parser(runs: int, rng: random.Random, figures: Figures) -> None:
    for _ in range(runs):
        events, error = parse(stream(rng), rng)
        for event in events:
            decode(event)
        figures.streams["refused" if error else "accepted"] += 1
        figures.events += len(events)
        figures.count_run()


# -- a client on the other side ------------------------------------------------------------------


def expected(data: bytes) -> list[MessageFrame]:
    """The messages for the client's subscription: a server sends none before its first PONG."""
    events = list(one_by_one(Parser().feed(data)))
    behind = events[events.index(PONG) :] if PONG in events else []
    return [event for event in behind if isinstance(event, MessageFrame) and event.sid == 1]


async def one_client(url: str) -> tuple[str, list[MessageFrame]]:
    """How a client fares: "connected" or the error's name, and what was delivered."""
    client = Client(make_options(url, reconnect=False, connect_timeout=WITHIN))
    got: list[MessageFrame] = []
    try:
        client_ended = asyncio.get_running_loop().create_future()
        connecting = asyncio.create_task(client.connect())
        await asyncio.sleep(0)
        client.listen("a", got.append, on_end=lambda _: client_ended.set_result(None))
        try:
            await connecting
        except JetsparkError as error:
            return type(error).__name__, got
        # The peer hangs up behind its bytes.
        await client_ended
        return "connected", got
    finally:
        await client.close()


async def _fuzz_client(count: int, rng: random.Random, figures: Figures) -> None:
    """So many streams through a socket each. The peer hangs up at once."""
    data = b""

    peers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peers.add(task)
        task.add_done_callback(peers.discard)
        try:
            for chunk in chunks(data, rng):
                if writer.transport.is_closing():
                    break  # the client has seen enough
                writer.write(chunk)
                await asyncio.sleep(0)
            writer.write_eof()
            while await reader.read(65536):
                pass
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    before = asyncio.all_tasks()
    for _ in range(count):
        mutated = stream(rng)
        data = mutated if rng.random() < 0.3 else INFO + b"PONG\r\n" + mutated
        how, got = await asyncio.wait_for(one_client(url), WITHIN)
        figures.clients[how] += 1
        # What ends the link (-ERR, bad bytes) cuts the list; it is never anything else.
        assert got == expected(data)[: len(got)], data
        if how == "connected" and b"-ERR" not in data.upper():
            assert got == expected(data), data
    if peers:
        await asyncio.wait(set(peers), timeout=WITHIN)
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()


async def run(runs: int = 1_000_000, seed: int = 0) -> Figures:
    """A run is a stream for the parser; then come clients, a fiftieth as many.

    Raises AssertionError.
    """
    rng, figures = random.Random(seed), Figures()
    _fuzz_parser(runs, rng, figures)
    await _fuzz_client(runs // EVERY, rng, figures)
    return figures

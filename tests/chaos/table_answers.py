"""Lost answers of catalogs and object stores.

Each run is one change of a table during which one call of what is below it goes wrong: the call was
carried out and its answer is lost, or is an error; it was not carried out; it was carried out
twice, as by a retry on the way; or it is slow. Then the change is made again without a fault.
Another reader finds in between what was there before or the change, whole; a change that was
reported as made is there; and at the end each batch is there once.

PLACES: a REST catalog behind a proxy; a SQL catalog; a SQL catalog with files in S3 (moto) behind a
proxy; a folder; Delta in S3 behind a proxy, and in a folder.
"""

from __future__ import annotations

import errno
import http.client
import multiprocessing
import os
import random
import socket
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.table import TableMerger, TableOptimizer
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from tests.support import campaign
from tests.support.numbers_table import SCHEMA, write
from tests.support.object_store import object_store
from tests.support.ports import free_port
from tests.support.rest_catalog import rest_catalog

from jetspark.errors import JetsparkError
from jetspark.tables import batches
from jetspark.tables.batches import CommitAction, append, commit_batch, commit_files, overwrite
from jetspark.tables.delta.maintenance import REWRITE_CLAIM
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.iceberg.folder import FolderCatalog
from jetspark.tables.new_files import NewFile
from jetspark.tables.table import Table, TableName
from jetspark.tables.upserts import Upsert

FAULTS = ("lost", "500 lost", "cut", "500", "503", "twice", "slow")
_SLOW = 0.2
_PROCESSES = multiprocessing.get_context("spawn")
_TABLES = 8
"""Changes of one table, until there is a new one."""
_Rows = Counter[tuple[int, str]]


class Faults:
    """Which call goes wrong, and how; shared with the processes of proxies."""

    def __init__(self) -> None:
        self._shared = _PROCESSES.Array("i", 4)
        """Calls so far, the fault, the first call and the one after the last that it strikes."""

    def plan(self, kind: str, at: range) -> None:
        """From now on; calls are counted from 0."""
        with self._shared.get_lock():
            self._shared[:] = [0, FAULTS.index(kind), at.start, at.stop]

    @property
    def calls(self) -> int:
        """Since the plan."""
        return int(self._shared[0])

    def next(self) -> str:
        """What happens to this call; empty: nothing."""
        with self._shared.get_lock():
            number, kind, start, end = self._shared[:]
            self._shared[0] = number + 1
        return FAULTS[kind] if start <= number < end else ""

    def around(self, owner: Any, name: str, error: Callable[[], Exception]) -> Any:
        """A patch of a method or function that makes calls go wrong in this process."""
        whole = getattr(owner, name)

        def instead(*arguments: Any, **named: Any) -> Any:
            kind = self.next()
            if kind == "slow":
                time.sleep(_SLOW)
            if kind in ("cut", "500", "503"):
                raise error()
            done = whole(*arguments, **named)
            if kind in ("lost", "500 lost"):
                raise error()
            return done

        return mock.patch.object(owner, name, instead)


@contextmanager
def proxied(url: str, faults: Faults) -> Iterator[str]:
    """The URL of a server before another one, in a process of its own: deltalake waits for some
    answers with Python's lock."""
    port = free_port()
    process = _PROCESSES.Process(target=_serve, args=(url, port, faults), daemon=True)
    process.start()
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            assert process.is_alive()
            time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.join()


def _serve(url: str, port: int, faults: Faults) -> None:
    target = url.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self._body()
            left_out = {"expect", "connection", "transfer-encoding"}
            asked = {k: value for k, value in self.headers.items() if k.lower() not in left_out}
            kind = faults.next()
            if kind == "slow":
                time.sleep(_SLOW)
            if kind == "cut":
                self.close_connection = True
                return
            if kind in ("500", "503"):
                self._send(int(kind), [], b"")
                return
            for _ in range(2 if kind == "twice" else 1):
                connection = http.client.HTTPConnection(target, timeout=60)
                connection.request(self.command, self.path, body, asked)
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
            if kind == "lost":
                self.close_connection = True
            elif kind == "500 lost":
                self._send(500, [], b"")
            else:
                self._send(answer.status, answer.getheaders(), content)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found

        def _send(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response_only(status)
            left_out = {"transfer-encoding", "connection"}
            if self.command != "HEAD":
                left_out.add("content-length")
                self.send_header("Content-Length", str(len(content)))
            elif not headers:
                self.send_header("Content-Length", "0")
            for name, value in headers:
                if name.lower() not in left_out:
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                with suppress(ConnectionError):  # the client did not wait
                    self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.serve_forever()


# -- places --------------------------------------------------------------------------------------


@dataclass
class Place:
    """Where tables are, and how others read them."""

    format: Format
    faults: Faults
    name: Callable[[int], TableName]
    read: Callable[[int], pa.Table]
    patches: Callable[[], list[Any]] = list
    """Within a run, beside the proxies."""


def _sql(root: Path, **more: str) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{root}/c.db", "warehouse": f"file://{root}", **more}


def _of_catalog(properties: dict[str, str]) -> Callable[[int], TableName]:
    return lambda number: TableName(
        catalog="mine", identifier=f"lake.t{number}", properties=properties
    )


def _reader(properties: dict[str, str]) -> Callable[[int], pa.Table]:
    catalog = load_catalog("mine", **properties)
    catalog.create_namespace_if_not_exists("lake")
    return lambda number: catalog.load_table(f"lake.t{number}").scan().to_arrow()


def rest(stack: ExitStack, root: Path, _: str, faults: Faults) -> Place:
    tables = SqlCatalog("mine", **_sql(root))
    url = stack.enter_context(rest_catalog(tables))
    properties = {"type": "rest", "uri": stack.enter_context(proxied(url, faults))}
    return Place(Format.ICEBERG, faults, _of_catalog(properties), _reader(_sql(root)))


def sql(_: ExitStack, root: Path, __: str, faults: Faults) -> Place:
    def gone() -> Exception:
        return OperationalError("COMMIT", {}, OSError("the server closed the connection"))

    return Place(
        Format.ICEBERG,
        faults,
        _of_catalog(_sql(root)),
        _reader(_sql(root)),
        lambda: [faults.around(Session, "commit", gone)],
    )


def sql_on_s3(stack: ExitStack, root: Path, store: str, faults: Faults) -> Place:
    keys = {
        "s3.region": "us-east-1", "s3.access-key-id": "a", "s3.secret-access-key": "b",
        "s3.request-timeout": "5", "s3.connect-timeout": "5",
    }  # fmt: skip
    direct = _sql(root, **keys, **{"s3.endpoint": store, "warehouse": f"s3://lake/{root.name}"})
    behind = {**direct, "s3.endpoint": stack.enter_context(proxied(store, faults))}
    return Place(Format.ICEBERG, faults, _of_catalog(behind), _reader(direct))


def folder(_: ExitStack, root: Path, __: str, faults: Faults) -> Place:
    def full() -> Exception:
        return OSError(errno.ENOSPC, "No space left on device")

    return Place(
        Format.ICEBERG,
        faults,
        lambda number: TableName(path=str(root / f"t{number}")),
        lambda number: FolderCatalog(root / f"t{number}").load_table("folder.t").scan().to_arrow(),
        lambda: [
            faults.around(os, "link", full),
            faults.around(Path, "write_text", full),
            faults.around(Path, "replace", full),
        ],
    )


def delta_on_s3(stack: ExitStack, root: Path, store: str, faults: Faults) -> Place:
    direct = {
        "AWS_ENDPOINT_URL": store, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        "max_retries": "3", "backoff_config.init_backoff": "20ms",
        "backoff_config.max_backoff": "50ms",
    }  # fmt: skip
    behind = {**direct, "AWS_ENDPOINT_URL": stack.enter_context(proxied(store, faults))}
    return Place(
        Format.DELTA,
        faults,
        lambda number: TableName(path=f"s3://lake/{root.name}/t{number}", properties=behind),
        lambda number: DeltaTable(
            f"s3://lake/{root.name}/t{number}", storage_options=direct
        ).to_pyarrow_table(),
    )


def delta_folder(_: ExitStack, root: Path, __: str, faults: Faults) -> Place:
    def lost() -> Exception:
        return DeltaError("Generic LocalFileSystem error: No space left on device")

    return Place(
        Format.DELTA,
        faults,
        lambda number: TableName(path=str(root / f"t{number}")),
        lambda number: DeltaTable(root / f"t{number}").to_pyarrow_table(),
        lambda: [
            faults.around(DeltaTable, "create_write_transaction", lost),
            faults.around(TableMerger, "execute", lost),
            faults.around(TableOptimizer, "compact", lost),
        ],
    )


PLACES = {one.__name__: one for one in (rest, sql, sql_on_s3, folder, delta_on_s3, delta_folder)}

# -- runs ----------------------------------------------------------------------------------------


@dataclass
class Figures(campaign.Figures):
    struck: Counter[str] = field(default_factory=Counter)
    """Faults that happened."""
    reported_as_made: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Of the changes, by type."""


class Lake:
    """The tables of a place, one after the other."""

    CHANGES = ("append", "upsert", "replace", "write", "column", "compact", "vacuum")

    def __init__(self, place: Place, chosen: random.Random, figures: Figures) -> None:
        self.place = place
        self.chosen = chosen
        self.figures = figures
        self.number = 0
        self._longest: defaultdict[str, int] = defaultdict(lambda: 4)
        self._begin()

    def _begin(self) -> None:
        self.number += 1
        self.turn = 0
        self.batch = 0
        self.columns = 0
        self.rows: _Rows = Counter()
        self._name = self.place.name(self.number)
        self.place.faults.plan("slow", range(0))

    def read(self) -> _Rows:
        found = self.place.read(self.number).select(["n", "kind"]).to_pylist()
        return Counter((one["n"], one["kind"]) for one in found)

    def run(self) -> None:
        if self.turn >= _TABLES:
            self._begin()
        kind = self.chosen.choice(self.CHANGES) if self.turn else "create"
        fault = self.chosen.choice(FAULTS)
        start = self.chosen.randrange(self._longest[kind])
        at = range(start, start + self.chosen.choice([1, 1, 1, 3]))
        said = f"table {self.number}, {kind}, {fault} at {at}"
        self.figures.count_run()
        try:
            self._change(kind, fault, at)
        except Exception as error:
            self.figures.wrong.append(f"{said}: {type(error).__name__} {error}")
            self._begin()

    def _change(self, kind: str, fault: str, at: range) -> None:
        start = self.chosen.choice([0, 10 * self.turn])
        changes: dict[str, CommitAction] = {"upsert": Upsert(("n",)), "replace": overwrite}
        change = changes.get(kind, append)
        texts = dict.fromkeys(range(start, start + 10), f"{kind} {self.turn}")
        if kind in ("append", "write", "create"):
            texts = {1000 * (self.turn + 1) + n: text for n, text in texts.items()}
        wanted: _Rows = Counter(texts.items())
        if kind == "upsert":
            wanted += Counter({row: one for row, one in self.rows.items() if row[0] not in texts})
        elif kind in ("append", "write"):
            wanted += self.rows
        elif kind in ("column", "compact", "vacuum"):
            wanted = self.rows

        def attempt() -> bool:
            """Whether the change is there now; False: another attempt has made it."""
            if kind == "create":
                table = open_or_create_table(self.place.format, self._name, SCHEMA, ())
            else:
                table = open_table(self.place.format, self._name)
            if kind == "compact":
                table.compact(10**8)
            elif kind == "vacuum":
                table.vacuum(timedelta(hours=1), dry_run=False)
            elif kind == "column":
                name = f"more{self.columns}"
                if name not in table.schema.names:
                    table.add_columns([pa.field(name, pa.string())])
            elif kind == "write":
                commit_files(table, _files(table, texts, apart=False))
            else:
                files = _files(table, texts, apart=kind == "upsert")
                return commit_batch(table, "q", self.batch, files, change=change)
            return True

        faults = self.place.faults
        reported = True
        try:
            with ExitStack() as patched:
                for one in self.place.patches():
                    patched.enter_context(one)
                patched.enter_context(mock.patch.object(batches, "CONFLICT_TIMEOUT_SECONDS", 2.0))
                faults.plan(fault, at)
                attempt()
        except Exception as error:
            reported = False
            self.figures.errors[f"{kind}: {type(error).__name__}"] += 1
            if isinstance(error, JetsparkError) and "\n" in str(error):
                raise ValueError(f"no sentence: {error}") from error
        finally:
            calls = faults.calls
            faults.plan("slow", range(0))
        if calls > at.start:
            self.figures.struck[fault] += 1
        self._longest[kind] = max(self._longest[kind], calls)
        self.figures.reported_as_made += reported
        before = self.rows
        if reported or kind != "create":
            found = self.read()
            assert found == wanted or (found == before and not reported), (
                f"{'made' if reported else 'not made'}, but {_difference(found, wanted)}"
            )
        if kind == "write":
            self.rows = self.read()  # it may be there although it was not reported
        else:
            if self.place.format is Format.DELTA and kind in ("compact", "replace"):
                # A claim whose answer was lost runs out by itself, in minutes.
                open_table(self.place.format, self._name).append((), {REWRITE_CLAIM: 0})
            attempt()
            found = self.read()
            assert found == wanted, f"in the end {_difference(found, wanted)}"
            self.rows = wanted
        self.columns += kind == "column"
        self.batch += kind in ("create", "append", "upsert", "replace")
        self.turn += 1


def _difference(found: _Rows, wanted: _Rows) -> str:
    return f"{found.total()} rows, {(wanted - found).total()} lack, {(found - wanted).total()} more"


def _files(table: Table, texts: dict[int, str], *, apart: bool) -> list[NewFile]:
    numbers = list(texts)
    batches = [
        pa.record_batch([half, [texts[n] for n in half]], schema=SCHEMA)
        for half in (numbers[:5], numbers[5:])
    ]
    return write(table, pa.Table.from_batches(batches), apart=apart)


def run(runs: int = 300, seed: int = 1, place: Annotated[str, PLACES] = "rest") -> Figures:
    """A run is a change."""
    figures = Figures()
    with ExitStack() as stack:
        store = stack.enter_context(object_store("lake")) if place.endswith("s3") else ""
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jetspark-answers-")))
        dice = random.Random(f"{seed}-{place}")
        lake = Lake(PLACES[place](stack, root, store, Faults()), dice, figures)
        for _ in range(runs):
            lake.run()
    return figures

"""An Iceberg REST catalog on this machine, which keeps its tables in PyIceberg's SQL catalog."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

_STATUS: dict[type[Exception], int] = {
    NoSuchTableError: 404, CommitFailedException: 409, TableAlreadyExistsError: 409,
}  # fmt: skip


@contextmanager
def rest_catalog(tables: SqlCatalog) -> Iterator[str]:
    """Its URL."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(lambda parts, _: _loaded(tables, parts))

        def do_POST(self) -> None:
            self._answer(lambda parts, body: _changed(tables, parts, body))

        def _answer(self, work: Any) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = [unquote(one) for one in self.path.partition("?")[0].strip("/").split("/")]
            try:
                with lock:
                    status, document = 200, work(parts[1:], body)
            except Exception as error:
                status = _STATUS.get(type(error), 400)
                said = {"message": str(error), "type": type(error).__name__, "code": status}
                document = json.dumps({"error": said})
            content = document.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _loaded(tables: SqlCatalog, parts: list[str]) -> str:
    if parts == ["config"]:
        return json.dumps({"defaults": {}, "overrides": {}})
    table = tables.load_table((parts[1], parts[3]))
    return _document(table.metadata, table.metadata_location)


def _changed(tables: SqlCatalog, parts: list[str], body: bytes) -> str:
    if len(parts) == 3:  # of a transaction that creates a table: nothing is stored yet
        left_out = {"location": None, "partition-spec": None, "write-order": None}
        asked = CreateTableRequest.model_validate({**left_out, **json.loads(body)})
        staged = tables._create_staged_table(
            (parts[1], asked.name),
            asked.table_schema,
            asked.location,
            asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            asked.write_order or UNSORTED_SORT_ORDER,
            asked.properties,
        )
        return _document(staged.metadata, staged.metadata_location)
    commit = CommitTableRequest.model_validate_json(body)
    table: Any = SimpleNamespace(name=lambda: (parts[1], parts[3]))
    done = tables.commit_table(table, commit.requirements, commit.updates)
    return _document(done.metadata, done.metadata_location)


def _document(metadata: TableMetadata, place: str) -> str:
    document = {"metadata-location": place, "metadata": json.loads(metadata.model_dump_json())}
    return json.dumps({**document, "config": {}})

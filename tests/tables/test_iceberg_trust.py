"""What Iceberg tables and REST catalogs may not decide: code, and how storage is reached."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from jetspark.errors import ConfigError, JetsparkError
from jetspark.tables.batches import commit_files
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, find_table, open_or_create_table, open_table
from jetspark.tables.iceberg.storage import confined_files
from jetspark.tables.iceberg.trust import CODE_PROPERTIES
from jetspark.tables.table import TableName

pytestmark = pytest.mark.tables
SCHEMA = pa.schema([("n", pa.int64())])
MODULE = "code_of_somebody"
EVIL = f"{MODULE}.Code"
OF_TABLES = (
    "py-io-impl", "write.py-location-provider.impl", "py-catalog-impl", "s3.retry-strategy-impl",
    "auth",
)  # fmt: skip


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether the module was imported."""
    (tmp_path / f"{MODULE}.py").write_text("Code = dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop(MODULE, None)
    return lambda: MODULE in sys.modules


def edit(file: Path, **changed: Any) -> None:
    """Change parts of a table's metadata."""
    content = json.loads(file.read_text())
    properties = content["properties"] | changed.pop("properties", {})
    file.write_text(json.dumps(content | {"properties": properties} | changed))


def in_folder(folder: Path, properties: Mapping[str, str]) -> TableName:
    """A table in a folder, with these properties."""
    name = TableName(path=str(folder / "table"))
    open_or_create_table(Format.ICEBERG, name, SCHEMA, ())
    edit(folder / "table" / "metadata" / "v1.metadata.json", properties=properties)
    return name


def in_sql(folder: Path, properties: Mapping[str, str]) -> TableName:
    """One of a SQL catalog."""
    own = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
    catalog = load_catalog("mine", **own)
    catalog.create_namespace("a")
    table = catalog.create_table("a.b", SCHEMA)
    edit(Path(table.metadata_location.removeprefix("file://")), properties=properties)
    return TableName(catalog="mine", identifier="a.b", properties=own)


def use(name: TableName) -> None:
    """Open the table, and add a row."""
    table = open_table(Format.ICEBERG, name)
    rows = pa.table({"n": [1]}, SCHEMA).to_batches()
    files = write_files(table.layout(10**6, "zstd"), table.storage, "part-00000", rows)
    commit_files(table, files)


@pytest.mark.parametrize("made", [in_folder, in_sql])
@pytest.mark.parametrize("name", OF_TABLES)
def test_no_code_is_loaded(tmp_path: Path, ran: Callable[[], bool], made: Any, name: str) -> None:
    table = made(tmp_path, {name: EVIL})
    with pytest.raises(ConfigError, match=re.escape(name)):
        use(table)
    assert not ran()


def test_code_of_the_users_own_words_is_loaded(tmp_path: Path, ran: Callable[[], bool]) -> None:
    table = in_sql(tmp_path, {"py-io-impl": f"{MODULE}.Files"})
    (tmp_path / f"{MODULE}.py").write_text(
        "from pyiceberg.io.pyarrow import PyArrowFileIO\nclass Files(PyArrowFileIO): pass\n"
    )
    own = {**table.properties, "py-io-impl": f"{MODULE}.Files"}
    use(TableName(catalog="mine", identifier="a.b", properties=own))
    assert ran()


@pytest.mark.parametrize("made", [in_folder, in_sql])
@pytest.mark.parametrize("name", ["s3.endpoint", "s3.signer.uri", "adls.account-host", "uri"])
def test_a_table_does_not_say_how_storage_is_reached(tmp_path: Path, made: Any, name: str) -> None:
    table = made(tmp_path, {name: "http://127.0.0.1:4"})
    with pytest.raises(ConfigError, match="how storage is reached"):
        use(table)


@contextmanager
def catalog_that_answers(
    folder: Path, config: Mapping[str, Any], of_table: Mapping[str, Any], own: Mapping[str, str]
) -> Iterator[TableName]:
    """A REST catalog with one table. `config`: what it overrides; `of_table`: the configuration
    that it gives for a table; `own`: the table's properties."""
    metadata = new_table_metadata(
        Schema(NestedField(1, "n", LongType())), UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER, f"file://{folder}/t", dict(own),
    )  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer: dict[str, Any] = {"defaults": {}, "overrides": dict(config)}
            if "/config" not in self.path:
                answer = {
                    "metadata-location": f"file://{folder}/t/metadata/v1.metadata.json",
                    "metadata": json.loads(metadata.model_dump_json(by_alias=True)),
                    "config": dict(of_table),
                }
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        uri = f"http://127.0.0.1:{server.server_port}"
        yield TableName(catalog="c", identifier="a.b", properties={"type": "rest", "uri": uri})
        server.shutdown()
        thread.join()


BY_CATALOG: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ({"auth": {"type": "custom", "impl": EVIL, "custom": {}}}, {}, {}),
    ({"py-io-impl": EVIL}, {}, {}),
    ({}, {"py-io-impl": EVIL}, {}),
    ({}, {"s3.retry-strategy-impl": EVIL}, {}),
    ({}, {}, {"py-io-impl": EVIL}),
    ({}, {}, {"write.py-location-provider.impl": EVIL}),
    ({}, {}, {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}),
    ({}, {}, {"s3.endpoint": "http://127.0.0.1:4"}),
]


@pytest.mark.parametrize("answers", BY_CATALOG, ids=str)
def test_no_code_is_loaded_from_the_answers_of_a_catalog(
    tmp_path: Path, ran: Callable[[], bool], answers: Any
) -> None:
    with catalog_that_answers(tmp_path, *answers) as name, pytest.raises(JetsparkError) as caught:
        find_table(Format.ICEBERG, name)
    assert isinstance(caught.value, ConfigError)
    assert not ran()


def test_a_catalog_may_give_credentials_and_choose_a_class_of_the_library(tmp_path: Path) -> None:
    of_table = {"s3.endpoint": "http://127.0.0.1:4", "s3.access-key-id": "a"}
    of_table |= {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", "io-impl": "org.of.Java"}
    with catalog_that_answers(tmp_path, {}, of_table, {"s3.access-key-id": "a"}) as name:
        assert find_table(Format.ICEBERG, name) is not None


def test_every_place_where_the_library_imports_by_a_name_is_known() -> None:
    """A new one has to be looked at: is its name one that a table, or a catalog, can say?"""
    root = Path(pyiceberg.__file__).parent
    places = {
        file.relative_to(root).as_posix()
        for file in root.rglob("*.py")
        if re.search(r"import_module\(|__import__\(", file.read_text("utf-8"))
    }
    known = {"catalog/rest/auth.py", "catalog/__init__.py", "io/pyarrow.py", "io/__init__.py"}
    assert places == known | {"table/locations.py", "transforms.py"}
    assert set(OF_TABLES) == CODE_PROPERTIES


@pytest.mark.parametrize("where", ["", "/w/a/other", "/w/a", "/w/a/b/data", "/w/a/\tb", "/w/a/b?"])
def test_a_table_is_where_its_metadata_is(tmp_path: Path, where: str) -> None:
    """Otherwise it could say that all of a warehouse, or another table, is its own."""
    table = in_sql(tmp_path, {})
    use(table)
    newest = load_catalog("mine", **table.properties).load_table("a.b").metadata_location
    edit(Path(newest.removeprefix("file://")), location=f"file://{tmp_path}{where}")
    before = sorted(tmp_path.rglob("*.*"))
    with pytest.raises(ConfigError, match="location"):
        use(table)
    assert sorted(tmp_path.rglob("*.*")) == before


def test_a_table_in_a_folder_is_not_behind_its_own_link(tmp_path: Path) -> None:
    """A link could lead elsewhere a moment later."""
    table = in_folder(tmp_path, {})
    (tmp_path / "table" / "link").symlink_to(tmp_path / "table")
    metadata = tmp_path / "table" / "metadata" / "v1.metadata.json"
    edit(metadata, location=f"file://{tmp_path}/table/link")
    with pytest.raises(ConfigError, match="moved or copied"):
        use(table)


def test_every_use_of_a_file_by_the_library_is_judged(tmp_path: Path) -> None:
    files = confined_files({}, f"file://{tmp_path}/t")
    (tmp_path / "secret").write_text("somebody's")
    for step in ("..", ".\t.", ".\n.", "%2e%2e/.."):
        name = f"file://{tmp_path}/t/{step}/secret"
        for act in (files.new_input, files.new_output, files.delete):
            with pytest.raises(ConfigError, match="not in its folder"):
                act(name)
    assert (tmp_path / "secret").read_text() == "somebody's"


def test_no_configuration_of_the_current_folder_is_taken(
    tmp_path: Path, ran: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg would take it, and call what it names, wherever a command happens to be run."""
    table = in_sql(tmp_path, {})
    here = tmp_path / "here"
    here.mkdir()
    (here / ".pyiceberg.yaml").write_text(f"catalog:\n  mine:\n    py-catalog-impl: {EVIL}\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"current folder.*PYICEBERG_HOME=.*here"):
        use(table)
    with pytest.raises(ConfigError, match="current folder"):
        use(TableName(path=str(tmp_path / "new")))
    assert not ran()
    monkeypatch.setenv("PYICEBERG_HOME", str(here))
    use(table)  # the user's own word

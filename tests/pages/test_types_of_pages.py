"""Type checkers accept what the pages and examples show, and see what users misspell."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.pages.test_pages import ROOT, RUN

# A prompt takes functions without types, and another value of another type for a name.
PROMPT = """\
# mypy: allow-untyped-defs, allow-untyped-calls, allow-redefinition-new, local-partial-types
async def page() -> None:
"""
WRONG = {"docs/from-nats-py.md": "shows what the errors say about names of nats-py"}

# What stands behind "# " is the error that mypy must report on that line.
PROGRAM = """
from datetime import timedelta

import jetspark
import jetspark.blocking
import jetspark.blocking.kv
from jetspark import Message
from jetspark import Mesage  # attr-defined
from jetspark.documents import Source

def told(error: jetspark.errors.JetsparkError) -> None: ...

async def told_later(value: object) -> None: ...

async def program(message: Message, deny: dict[str, bool]) -> None:
    jetspark.conect()  # attr-defined
    jetspark.kvv  # attr-defined
    jetspark.connect(nam="x")  # call-arg
    jetspark.connect(connect_timeout="1s")  # arg-type
    jetspark.connect(first_connect="later")  # arg-type
    wait = timedelta(seconds=1)
    async with jetspark.connect("nats://a", context=None, connect_timeout=wait) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects="a", max_age=60, sources=[Source(name="T")])
        await js.create_stream({"name": "S"}, sources=[{"name": "T"}], placement={"cluster": "C"})
        await js.create_stream(nam="S")  # call-arg
        await js.stream("S").update(max_age="1h")  # arg-type
        await js.create_or_update_stream(name="S", num_replicas=None, storage="memory")
        await js.restore_stream("folder", num_replicas="3")  # arg-type
        await js.stream("S").create_consumer(name="c", ack_wait=1.5, backoff=[1, wait])
        await js.stream("S").create_consumer(durable="c")  # call-arg
        await js.stream("S").create_push_consumer(deliver_subject=1)  # arg-type
        await js.create_or_update_dead_letters("D", "S", max_age=wait, storage="memory")
        await js.create_or_update_dead_letters("D", "S", retention="limits")  # call-arg
        bucket: jetspark.kv.Bucket = await js.create_bucket("B", history=3, ttl=60)
        await bucket.put("a", b"1")
        await js.create_bucket("B", max_age=60)  # call-arg
        await js.create_bucket_aggregate("B", [], mirror_name="C")  # call-arg
        await js.create_object_store("O", max_bytes=1, metadata={"a": "b"})
        await js.create_object_store("O", history=3)  # call-arg

def blocking() -> None:
    jetspark.blocking.connect(nam="x")  # call-arg
    with jetspark.blocking.connect("nats://a", name="x", error_callback=told) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["a"], max_age=60)
        js.create_stream(nam="S")  # call-arg
        js.stream("S").create_consumer(durable="c")  # call-arg
        js.create_bucket("B", max_age=60)  # call-arg
        js.create_object_store("O", history=3)  # call-arg
        names: list[str] = js.stream_names().all()
        held: jetspark.blocking.kv.Bucket = js.bucket(names[0])
        held.get(1)  # arg-type
        js.bucket(names[0]).gett("a")  # attr-defined
        js.timeout = 3.0  # assignment
        js.publish_msg(js.timeout)  # arg-type
        js.events(callback=told_later)  # arg-type
        js.backup_stream("S", "folder", progress=told_later)  # arg-type
        js.restore_stream("folder", progress=told_later)  # arg-type
        held.watch(callback=told_later)  # arg-type
        held.live(on_change=told_later)  # arg-type
        held.election("key", callback=told_later)  # arg-type
        nc.services().latencies("a", callback=told_later)  # arg-type
        js.events(callback=print)
"""


def _write_programs(folder: Path) -> None:
    """PROGRAM, and what is right: the examples and the programs that users typically write."""
    (folder / "program.py").write_text(PROGRAM)
    for file in [*ROOT.glob("examples/*.py"), ROOT / "tests" / "pages" / "typical_programs.py"]:
        shutil.copy(file, folder)


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of the pages and of PROGRAM, checked at once, since mypy takes half a minute for the package.

    With the settings of the project, for which it has a cache if it has checked that before.
    """
    folder = tmp_path_factory.mktemp("types")
    _write_programs(folder)
    for name, blocks in RUN.items():
        typed = [textwrap.indent(block.text, "    ") for block in blocks if block.is_typed]
        if typed and name not in WRONG:
            module = name.removesuffix(".md").replace("/", "_").replace("-", "_")
            (folder / f"{module}.py").write_text(PROMPT + "\n".join(typed))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if ": error: " in line]


def test_mypy_accepts_the_snippets_of_each_page(errors: list[str]) -> None:
    assert [line for line in errors if "/program.py:" not in line] == []


def test_mypy_reports_each_misspelt_name_and_nothing_else(errors: list[str]) -> None:
    found = [line for line in errors if "/program.py:" in line]
    told = {int(line.split(":")[1]): line.rpartition("[")[2].rstrip("]") for line in found}
    lines = enumerate(PROGRAM.splitlines(), 1)
    wanted = {number: line.rpartition("  # ")[2] for number, line in lines if "  # " in line}
    assert told == wanted, found
    assert len(found) == len(wanted), found


def test_pyright_in_strict_mode_says_the_same(tmp_path: Path) -> None:
    _write_programs(tmp_path)
    settings = {
        "include": ["."],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / "src")],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    told = {
        (Path(error["file"]).name, error["range"]["start"]["line"] + 1): error["message"]
        for error in json.loads(done.stdout)["generalDiagnostics"]
    }
    lines = enumerate(PROGRAM.splitlines(), 1)
    wanted = {("program.py", number) for number, line in lines if "  # " in line}
    assert told.keys() == wanted, told

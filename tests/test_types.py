"""Type checkers see what users misspell: names of jetspark, and options of its calls."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jetspark.connection.options import _TIMES, ConnectionOptions, ConnectOptions
from jetspark.documents.consumers import ConsumerConfig, ConsumerOptions
from jetspark.documents.streams import StreamConfig, StreamOptions
from jetspark.kv.config import BucketConfig, BucketOptions
from jetspark.objects.info import ObjectStoreConfig, ObjectStoreOptions

# What stands behind "# " is the error that mypy must report on that line.
PROGRAM = """
from datetime import timedelta

import jetspark
import jetspark.blocking
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
        await js.update_stream(name="S", max_age="1h")  # arg-type
        await js.create_or_update_stream(name="S", num_replicas=None, storage="memory")
        await js.restore_stream("folder", num_replicas="3")  # arg-type
        await js.create_template("T", max_streams=1, max_msg=1)  # call-arg
        await js.create_consumer("S", name="c", ack_wait=1.5, backoff=[1, wait])
        await js.create_consumer("S", durable="c")  # call-arg
        await js.create_push_consumer("S", deliver_subject=1)  # arg-type
        await js.create_dead_letters("D", "S", max_age=wait, storage="memory")
        await js.create_dead_letters("D", "S", retention="limits")  # call-arg
        bucket: jetspark.kv.Bucket = await js.create_bucket("B", history=3, ttl=60)
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
        js.create_consumer("S", durable="c")  # call-arg
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


@pytest.mark.full
def test_mypy_reports_each_misspelt_name_and_nothing_else(tmp_path: Path) -> None:
    lines = PROGRAM.splitlines()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    # With the settings of the project, for which mypy has a cache if it has checked that before.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", program],
        cwd=Path(__file__).parent.parent,
        env=os.environ | {"MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    told = {int(line.split(":")[1]): line.rpartition("[")[2].rstrip("]") for line in found}
    wanted = {
        number: line.rpartition("  # ")[2] for number, line in enumerate(lines, 1) if "  # " in line
    }
    assert told == wanted, done.stdout + done.stderr
    assert len(found) == len(wanted), done.stdout


def fields_of(cls: type[Any]) -> dict[str, str]:
    """The fields of a class and of its bases, as they stand in the source."""
    return {
        name: str(getattr(said, "__forward_arg__", said))
        for base in reversed(cls.__mro__)
        for name, said in inspect.get_annotations(base).items()
    }


def as_option(annotation: str) -> str:
    """The type of a document's field as an option: times may be seconds, documents mappings."""
    kind = re.sub(r"Annotated\[(\w+), \w+\]", r"\1", annotation.removesuffix(" | None"))
    if kind in PLAIN:
        return PLAIN[kind]
    several = re.fullmatch(r"list\[(\w+)\]", kind)
    one = f"{several[1] if several else kind} | Mapping[str, Any]"
    return f"Iterable[{one}] | None" if several else f"{one} | None"


PLAIN = {
    **{kind: f"{kind} | None" for kind in ("str", "int", "bool")},
    "Span": "Seconds | None",
    "Moment": "datetime | None",
    "list[Span]": "Sequence[Seconds] | None",
    "list[str]": "str | Iterable[str] | None",
    "dict[str, str]": "Mapping[str, str] | None",
    "dict[str, Any]": "dict[str, Any]",
}


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (StreamOptions, StreamConfig),
        (ConsumerOptions, ConsumerConfig),
        (BucketOptions, BucketConfig),
        (ObjectStoreOptions, ObjectStoreConfig),
    ],
)
def test_options_are_the_fields_of_a_configuration(options: type[Any], config: type[Any]) -> None:
    fields = {name: as_option(said) for name, said in fields_of(config).items()}
    assert fields_of(options) == fields


def test_options_of_connect_are_those_of_a_connection() -> None:
    fields = fields_of(ConnectOptions)
    del fields["servers"]  # the first argument
    times = dict.fromkeys(_TIMES, "Seconds")
    assert fields_of(ConnectionOptions) == {**fields, **times, "context": "str | None"}

"""`jetspark schema` and `jetspark registry`."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.cli.conftest import Run
from tests.registry.conftest import avro

from jetspark.cli import app
from jetspark.server import NatsServer


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The URL of a server with a registry."""
    with (
        NatsServer(name="registry") as server,
        subprocess.Popen(
            [sys.executable, "-m", "jetspark", "registry", "serve", "--server", server.url],
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line == f"Serving the schemas of bucket schemas on {server.url}; Ctrl-C ends.\n"
        yield server.url
        process.terminate()
        assert process.communicate()[1] == ""
        assert process.returncode == 0


@pytest.fixture
def schema(run: Run, registry: str) -> Any:
    def run_schema(*arguments: object) -> tuple[int, str, str]:
        return run("schema", *map(str, arguments), server=registry)

    return run_schema


@pytest.mark.full
def test_a_file_becomes_versions(schema: Any, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(avro("id int"))
    assert schema("add", "shop.Order", file, "--policy", "full", "--description", "Orders") == (
        *(0, "shop.Order in avro: version 1, revision 1\n", ""),
    )
    file.write_text(avro("id int", "note string?"))
    assert schema("check", "shop.Order", file) == (
        *(0, f"{file} is compatible (full) with shop.Order version 1\n", ""),
    )
    assert json.loads(schema("add", "shop.Order", file, "--json")[1]) == {
        "version": 2,
        "revision": 1,
    }
    file.write_text(avro("id int", "other string"))
    code, said, _ = schema("check", "shop.Order", file)
    assert code == app.FAILED
    first, *why = said.splitlines()
    assert first == f"{file} is not compatible (full) with shop.Order version 2"
    assert why == ["/fields/1: reader field missing default value (other)"]
    code, said, _ = schema("check", "shop.Order", file, "--policy", "forward", "--json")
    assert (code, json.loads(said)) == (
        *(0, {"compatible": True, "policy": "forward", "version": 2, "reasons": []}),
    )
    code, _, error = schema("add", "shop.Order", file)
    assert code == app.FAILED
    assert "Not compatible (full) with avro shop.Order version 2 revision 1" in error
    code, _, error = schema("add", "shop.Order", file, "--policy", "none")
    assert error == "The policy of shop.Order is full, and cannot change.\n"

    rows = [row.split()[:5] for row in schema("ls", "shop.*")[1].splitlines()]
    assert rows == [
        ["schema", "format", "version", "revision", "policy"],
        ["shop.Order", "avro", "1", "1", "full"],
        ["shop.Order", "avro", "2", "1", "full"],
    ]
    documents = json.loads(schema("ls", "shop.*", "--json")[1])
    assert [one["version"] for one in documents] == [1, 2]

    shown = schema("show", "shop.Order")[1]
    assert "version      2\n" in shown
    assert "description  Orders\n" in shown
    assert '    "name": "note",\n' in shown.replace("      ", "    ")
    assert json.loads(schema("show", "shop.Order", "1", "--json")[1])["version"] == 1
    assert schema("show", "shop.Order", "1", "--raw")[1] == avro("id int")

    shown = schema("diff", "shop.Order")[1]
    assert shown.startswith("--- shop.Order version 1\n+++ shop.Order version 2\n")
    assert '+      "name": "note",\n' in shown
    assert "shop.Order version 2 reads what shop.Order version 1 wrote\n" in shown
    assert "shop.Order version 1 reads what shop.Order version 2 wrote\n" in shown
    document = json.loads(schema("diff", "shop.Order", "2", "1", "--json")[1])
    assert (document["before"], document["after"], document["backwards"]) == (2, 1, [])

    code, _, error = schema("rm", "shop.Order", "1")
    assert error.startswith("Remove version 1 of shop.Order in avro? There is no terminal")
    removed = json.loads(schema("rm", "shop.Order", "1", "--force", "--json")[1])
    assert removed == {"removed": "shop.Order", "format": "avro", "version": 1}
    code, _, error = schema("diff", "shop.Order")
    assert error == "shop.Order has no version before 2.\n"
    assert schema("rm", "shop.Order", "-f")[1] == "Removed all versions of shop.Order in avro.\n"
    code, _, error = schema("show", "shop.Order")
    assert error == "The registry answers: There is no schema shop.Order.\n"


def test_a_descriptor_set_is_stored_in_base64_and_shown_as_text(
    schema: Any, tmp_path: Path
) -> None:
    file = tmp_path / "item.binpb"
    data = FileDescriptorSet(file=[FileDescriptorProto(name="item.proto")]).SerializeToString()
    data = FileDescriptorSet.FromString(data)
    data.file[0].message_type.add(name="Item")
    file.write_bytes(data.SerializeToString())
    assert schema("add", "Item", file)[:2] == (0, "Item in protobuf: version 1, revision 1\n")
    raw = schema("show", "Item", "--raw")[1]
    assert raw.encode() == file.read_bytes()
    document = json.loads(schema("show", "Item", "--json")[1])
    assert base64.b64decode(document["definition"]) == file.read_bytes()
    assert '  name: "item.proto"\n' in schema("show", "Item")[1]
    source = tmp_path / "item.proto"
    source.write_text('syntax = "proto3";\nmessage Item { int32 n = 1; }\n')
    assert schema("add", "Item", source)[:2] == (0, "Item in protobuf: version 2, revision 1\n")
    assert schema("show", "Item")[1].endswith("\nmessage Item { int32 n = 1; }\n")
    assert schema("show", "Item", "--raw")[1] == source.read_text()


def test_a_file_that_is_refused_is_named(schema: Any, tmp_path: Path) -> None:
    file = tmp_path / "no.binpb"
    file.write_bytes(bytes(range(255, 200, -1)))
    for command in ("add", "check"):
        if command == "check":
            source = tmp_path / "refused.proto"
            source.write_text('syntax = "proto3"; message M {}')
            assert schema("add", "refused", source)[0] == 0
        code, _, error = schema(command, "refused", file)
        assert code == app.FAILED
        assert error.startswith(f"{file}: The Protobuf schema is neither a FileDescriptorSet")
        assert "`protoc --include_imports --descriptor_set_out=order.binpb order.proto`" in error
    file = tmp_path / "wrong.avsc"
    file.write_text(avro("id int?"))
    code, _, error = schema("add", "refused.other", file)
    assert error == f'{file}: It is no Avro schema: the default "" of Order.id is no int.\n'
    file.write_text(avro("id int"))
    assert schema("add", "refused.avro", file)[0] == 0
    file.write_text(avro("id string"))
    code, _, error = schema("add", "refused.avro", file)
    assert error.startswith(f"{file}: Not compatible (backwards) with avro refused.avro version 1")


def test_of_a_name_in_several_formats_one_is_said(schema: Any, tmp_path: Path) -> None:
    file, other = tmp_path / "a.avsc", tmp_path / "a.json"
    file.write_text(avro("id int"))
    other.write_text('{"type": "object"}')
    assert schema("add", "twice", file)[0] == 0
    sentence = "twice is in avro: to have it in jsonschema, too, say --format jsonschema.\n"
    assert schema("add", "twice", other) == (app.FAILED, "", sentence)
    assert schema("add", "twice", other, "--format", "jsonschema")[0] == 0
    sentence = "The schema twice is in avro and jsonschema: say --format.\n"
    for arguments in (["rm", "twice", "-f"], ["show", "twice"], ["diff", "twice"]):
        assert schema(*arguments) == (app.FAILED, "", sentence)
    sentence = "The schema twice version 1 is in avro and jsonschema: say --format.\n"
    assert schema("rm", "twice", 1, "-f") == (app.FAILED, "", sentence)
    assert schema("show", "twice", "--format", "avro", "--raw")[1] == file.read_text()
    assert len(schema("ls", "twice")[1].splitlines()) == 3
    removed = schema("rm", "twice", "--format", "avro", "-f")
    assert removed[1] == "Removed all versions of twice in avro.\n"
    assert "jsonschema" in schema("show", "twice")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["add", "a", "missing.avsc"], "missing.avsc cannot be read: No such file or directory."),
        (["add", "a", "x.txt"], "What is x.txt? Say --format, one of avro, protobuf, jsonschema."),
        (["add", "a", __file__, "--format", "xml"], f"What is {__file__}? Say --format"),
        (["check", "a", __file__, "--format", "avro", "--policy", "x"], "--policy is one of none"),
        (["show", "a", "--json", "--raw"], "Give --json or --raw, not both."),
        (["ls", "a..b"], "filter: "),
    ],
)
def test_what_cannot_be_is_one_sentence(schema: Any, arguments: list[str], sentence: str) -> None:
    code, _, error = schema(*arguments)
    assert code == app.FAILED
    assert error.startswith(sentence)


def test_without_a_registry_it_says_how_to_start_one(run: Run) -> None:
    code, _, error = run("schema", "ls")
    assert code == app.FAILED
    assert "`jetspark registry serve` starts one" in error

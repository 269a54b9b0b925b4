"""What others wrote does not reach the terminal as control characters, in any command."""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text
from tests.cli.conftest import Run

from jetspark import blocking, cli
from jetspark.cli import app, console
from jetspark.cli.listings import show_facts, show_table
from jetspark.cli.log import printing_log
from jetspark.server import NatsServer

Capture = pytest.CaptureFixture[str]

EVIL = "\x1b]0;owned\x07\x9b31mred\x1b[2J\x7f\u202e"


def harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text)


def test_nothing_is_printed_by_another_way() -> None:
    package = Path(cli.__file__).parent
    found = set()
    for path in package.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            ends = ("file.write", "stdout.write", "stderr.write")
            if called in ("print", "Console", "rich.print") or called.endswith(ends):
                found.add(path.name)
    # The last one writes a script for a shell, of our own words.
    assert found == {"console.py", "completion.py"}


def test_every_way_to_print_escapes(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest's own would take the log
    console.say(EVIL, Text(EVIL))
    console.fail(EVIL)
    console.err.print(EVIL, markup=False)
    console.say_json({EVIL: EVIL})
    console.say_json({EVIL: EVIL}, indent=True)
    show_table("a", rows=[[EVIL]])
    show_facts({"a": EVIL})
    table = Table(EVIL)
    table.add_row(EVIL)
    console.out.print(table)
    with printing_log():
        logging.getLogger("jetspark").warning("-ERR %s", EVIL)
    captured = capsys.readouterr()
    assert harmless(captured.out), captured.out
    assert harmless(captured.err), captured.err
    assert "\\x1b" in captured.out
    assert "-ERR" in captured.err
    console.say_json({"a": f"{EVIL}\ud800 ü"})  # the same characters
    assert json.loads(capsys.readouterr().out) == {"a": f"{EVIL}\ud800 ü"}


def test_no_command_passes_on_escapes(nats_server: NatsServer, tmp_path: Path, run: Run) -> None:
    """Foreign fields of every listing and information, and errors of services and servers."""
    subject = f"a.{EVIL}"
    with blocking.connect(nats_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s.>"], description=EVIL, metadata={EVIL: EVIL})
        js.stream("S").create_consumer(durable_name="c", description=EVIL, metadata={EVIL: EVIL})
        js.publish("s.1", EVIL.encode(), headers={"X": "\x1b[2J\x9b"})
        js.create_or_update_dead_letters("D", "S", description=EVIL)
        js.publish("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.c", EVIL.encode())
        js.dead_letters("D").move()
        js.backup_stream("S", tmp_path / "b")
        document = json.loads((tmp_path / "b" / "backup.json").read_text())
        document["config"]["subjects"] = [subject]
        (tmp_path / "b" / "backup.json").write_text(json.dumps(document))
        with nc.add_service("sv", "1.0.0", description=EVIL) as service:

            def fail(_: object) -> None:
                raise ValueError(EVIL)

            service.add_endpoint("e", fail, subject="e.x", metadata={"a": EVIL})
            commands = [
                *(["stream", "ls"], ["stream", "info", "S"], ["consumer", "ls", "S"]),
                *(["consumer", "info", "S", "c"], ["dead-letters", "ls", "D"]),
                *(["service", "ls"], ["service", "info", "sv"], ["service", "stats", "sv"]),
                *(["service", "request", "e.x"], ["request", "e.x"], ["backup", "info"]),
            ]
            for command in commands:
                place, server = [], nats_server.url
                if command == ["backup", "info"]:
                    place, server = [str(tmp_path / "b")], ""
                for form in ([], ["--json"]):
                    _, out, err = run(*command, *place, *form, server=server)
                    assert harmless(out + err), (command, out, err)
                    assert out + err, command
                    if form and out:
                        assert list(_documents(out))


def _documents(out: str) -> Iterator[object]:
    decoder, at = json.JSONDecoder(), 0
    while at < len(out):
        document, at = decoder.raw_decode(out, at)
        yield document
        at += 1  # a line end


def test_a_raw_answer_is_written_as_it_is(
    nats_server: NatsServer, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with blocking.connect(nats_server.url) as nc:
        nc.subscribe("raw", callback=lambda message: message.respond(b"\x1b\xff\n"))
        nc.flush()
        for command in (["request"], ["service", "request"]):
            run = [*command, "raw", "--raw", "--server", nats_server.url]
            assert app.run(run) == app.SUCCEEDED
            assert capfdbinary.readouterr().out == b"\x1b\xff\n"
        assert app.run([*run, "--json"]) == app.FAILED
        assert b"not both" in capfdbinary.readouterr().err


def test_no_value_makes_lines_of_its_own(capsys: Capture) -> None:
    """A description, a name or a header could look like another fact or row."""
    evil = "x\nmessages  0\ty"
    show_facts({"description": evil})
    show_table("name", "n", rows=[(evil, 1)])
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 3
    assert printed.count(r"x\nmessages  0\ty") == 2

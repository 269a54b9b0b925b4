"""`jetspark stream add`, `rm` and `purge`."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest
from tests.support.streams import Admin, numbered

from jetspark.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    from jetspark.server import NatsServer

Run: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(shared_server: NatsServer, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = app.run(["stream", *arguments, "--server", shared_server.url])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`answers("y")`: a person at a terminal types it."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    return lambda text: monkeypatch.setattr(sys, "stdin", Terminal(f"{text}\n"))


def test_a_stream_is_made_once(
    run: Run, admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("MADE")
    arguments = ["add", name, "--subject", f"{name}.a", "--subject", f"{name}.b"]
    for _ in range(2):
        assert run(*arguments) == (0, f"Stream {name} takes in {name}.a, {name}.b.\n", "")
    code, out, err = run("add", name, "--storage", "memory")
    assert (code, out) == (1, "")
    assert err == (
        f'Stream "{name}" exists with another configuration (subjects is ["{name}.a","{name}.b"], '
        f'not ["{name}"]; storage is "file", not "memory"): update it, or take another name.\n'
    )
    file = tmp_path / "config.json"
    file.write_text('{"max_msgs": 5, "storage": "memory"}')
    code, out, err = run("add", f"{name}_2", "--config", str(file), "--storage", "file", "--json")
    assert (code, err) == (0, "")
    config = json.loads(out)["config"]
    assert (config["max_msgs"], config["storage"]) == (5, "file")
    file.write_text('{"name": "OTHER"}')
    assert run("add", f"{name}_4", "--config", str(file)) == (
        1,
        "",
        f'{file} is of stream "OTHER", not "{name}_4": name that one, or change the file.\n',
    )
    file.write_text(f'{{"name": "{name}_5"}}')
    assert run("add", f"{name}_5", "--config", str(file))[0] == 0
    file.write_text('{"max_msg": 5}')
    err = run("add", f"{name}_4", "--config", str(file))[2]
    assert err.endswith("did you mean 'max_msgs'? If not, put it into extra: {'max_msg': …}.\n")
    file.write_text('{"extra": {"max_msg": 5}}')
    assert 'unknown field "max_msg"' in run("add", f"{name}_4", "--config", str(file))[2]
    assert run("add", f"{name}_3")[1] == f"Stream {name}_3 takes in {name}_3.\n"


def test_messages_are_deleted_when_a_person_says_so(
    run: Run, admin: Admin, unique: Callable[[str], str], answers: Callable[[str], None]
) -> None:
    name = unique("PURGED")
    admin.create(name, f"{name}.>")
    admin.fill(numbered(f"{name}.a", 10) + numbered(f"{name}.b", 10))
    answers("n")
    code, out, err = run("purge", name)
    assert (code, out) == (1, "")
    assert err == (
        f"Delete what stream {name} has of its 20 messages? [y/N] Nothing was changed.\n"
    )
    answers("y")
    assert run("purge", name, "--subject", f"{name}.a")[:2] == (
        0,
        f"Deleted 10 messages of stream {name}.\n",
    )
    assert run("purge", name, "--before", "16", "--force")[1].startswith("Deleted 5 messages")
    code, out, _ = run("purge", name, "--keep", "2", "--force", "--json")
    assert (code, json.loads(out)) == (0, {"purged": 3})
    assert admin.api.stream(name).messages == 2


def test_a_stream_is_removed_when_a_person_says_so(
    run: Run, admin: Admin, unique: Callable[[str], str], answers: Callable[[str], None]
) -> None:
    name = unique("REMOVED")
    admin.create(name, name)
    admin.fill(numbered(name, 3))
    answers("")
    assert run("rm", name)[0] == app.FAILED
    assert admin.api.stream(name).messages == 3
    answers("yes")
    code, out, err = run("rm", name)
    assert (code, out) == (0, f"Removed stream {name} with 3 messages and 0 consumers.\n")
    assert err.startswith(f"Remove stream {name} with 3 messages and 0 consumers? [y/N] ")
    assert name not in admin.api.stream_names()


@pytest.mark.parametrize("command", ["rm", "purge"])
def test_without_a_terminal_force_is_required(
    run: Run,
    admin: Admin,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    name = unique("KEPT")
    admin.create(name, name)
    admin.fill(numbered(name, 3))
    code, out, err = run(command, name)
    assert (code, out) == (1, "")
    assert err.endswith("? There is no terminal to ask on: confirm with --force.\n")
    assert admin.api.stream(name).messages == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rm", "NO_SUCH", "--force"], 'Stream "NO_SUCH" not found on nats://'),
        (["add", "a b"], "Bad stream name 'a b'"),
        (["add", "S", "--subject", "a..b"], "a..b"),
        (["add", "S", "--config", "/no/file"], "/no/file"),
        (["purge", "S", "--keep", "1", "--before", "2"], "Give either --keep or --before."),
        (["purge", "S", "--keep", "0"], "--keep must be at least 1: without it all are deleted."),
        (["add", "S", "--replicas", "0"], "--replicas must be at least 1."),
        (["restore", "/no/folder", "--replicas", "0"], "--replicas must be at least 1."),
        (["purge", "S", "--before", "0"], "--before is a sequence; they begin at 1."),
    ],
)
def test_wrong_arguments_print_one_sentence(run: Run, arguments: list[str], sentence: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert sentence in err

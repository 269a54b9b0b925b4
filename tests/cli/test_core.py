"""`jetspark pub`, `sub` and `request`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING

import pytest
from tests.support.ports import free_port
from tests.support.processes import end, finish, first_line, jetspark, python
from tests.support.raw_client import RawClient

from jetspark import blocking
from jetspark.cli import app
from jetspark.full_client import connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.conftest import MakeServer
    from tests.support.streams import Admin

    from jetspark.server import NatsServer


def listening(command: subprocess.Popen[bytes]) -> None:
    """Until `sub` says that it listens."""
    assert command.stderr is not None
    assert command.stderr.readline().startswith(b"Listening on ")


def test_what_pub_publishes_sub_shows(
    shared_server: NatsServer, unique: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    subject, url = unique("cli"), shared_server.url
    with jetspark("sub", subject, "--server", url, "--count", "3") as command:
        listening(command)
        arguments = ["pub", subject, "smörgås", "-H", "k: v:1", "-H", "k:2", "--reply", "r"]
        assert app.run([*arguments, "--server", url]) == 0
        assert app.run(["pub", subject, "--count", "2", "--server", url]) == 0
        code, out, _ = finish(command)
    assert code == 0
    shown = [f"{subject}  (reply to r)", "k: v:1", "k: 2", "smörgås", subject, "", subject, ""]
    assert out.splitlines() == shown
    assert capsys.readouterr().out == (
        f"1 published to {subject}, 9 bytes each.\n2 published to {subject}, 0 bytes each.\n"
    )


def test_pub_into_a_stream_says_what_was_stored_and_fails_for_what_was_not(
    admin: Admin,
    shared_server: NatsServer,
    unique: Callable[[str], str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = unique("PUB")
    admin.create(stream, f"{stream}.>")
    pub = ["pub", f"{stream}.a", "x", "--jetstream", "--server", shared_server.url]
    assert app.run([*pub, "-H", "Nats-Msg-Id:1"]) == 0
    assert app.run([*pub, "-H", "Nats-Msg-Id:1"]) == 0
    assert app.run([*pub, "--count", "3"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        f"1 stored from {stream}.a, 1 byte each.",
        f"0 stored from {stream}.a, 1 byte each, 1 not again: the stream has its id.",
        f"3 stored from {stream}.a, 1 byte each.",
    ]
    assert app.run([*pub, "-H", "Nats-Expected-Last-Sequence:1"]) == 1
    assert "wrong last sequence" in capfd.readouterr().err
    assert app.run([*pub, "--reply", "r"]) == 1
    assert "ack goes there" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_pub_that_is_stopped_tells_how_many_it_published(
    number: int, shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    subject, url = unique("cli"), shared_server.url
    came, seen = asyncio.Event(), 0

    def count(_: object) -> None:
        nonlocal seen
        seen += 1
        came.set()

    async with connect(url) as nc:
        nc.listen(subject, count)
        await nc.flush()
        with jetspark("pub", subject, "x", "--count", "50000000", "--server", url) as command:
            await asyncio.wait_for(came.wait(), 20)
            code, out, err = await asyncio.to_thread(end, command, number)
        await nc.flush()  # the server has received all before the command ended
    assert (code, out) == (128 + number, "")
    assert err == f"Stopped: {seen:,} of 50,000,000 published to {subject}.\n"


def test_sub_prints_lines_of_json(shared_server: NatsServer, unique: Callable[[str], str]) -> None:
    subject, url = unique("cli"), shared_server.url
    with jetspark("sub", subject, "--json", "--count", "2", "--server", url) as command:
        listening(command)
        assert app.run(["pub", subject, "ä", "-H", "k:ö", "--server", url]) == 0
        with RawClient(url) as raw:
            raw.publish(subject, b"\xff", "r")
            code, out, _ = finish(command)
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"subject": subject, "headers": {"k": ["ö"]}, "data": "ä"},
        {"subject": subject, "reply": "r", "data_base64": "/w=="},
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_the_ordinary_end_of_sub(
    number: int, shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    subject, url = unique("cli"), shared_server.url
    with jetspark("sub", subject, "--queue", "q", "--server", url) as command:
        listening(command)
        assert app.run(["pub", subject, "x", "--server", url]) == 0
        assert first_line(command) == subject
        assert end(command, number) == (0, "x\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("command", [["sub", "a"], ["pub", "a", "b"], ["stream", "ls"]])
def test_a_signal_before_it_listens_is_no_ordinary_end(command: list[str], number: int) -> None:
    """The server accepts, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        with jetspark(*command, "--server", url) as process:
            connection, _ = silent.accept()
            with connection:
                code, out, _ = end(process, number)
    assert (code, out) == (128 + number, "")


def test_what_would_command_a_terminal_is_shown_as_text(
    shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    subject, url = unique("cli"), shared_server.url
    with jetspark("sub", subject, "--count", "1", "--server", url) as command:
        listening(command)
        assert app.run(["pub", subject, "a\x1b[31mb\n[red]c", "--server", url]) == 0
        _, out, _ = finish(command)
    assert out == f"{subject}\na\\x1b[31mb\n[red]c\n"


def test_the_payload_comes_from_standard_input(
    shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    subject, url = unique("cli"), shared_server.url
    with jetspark("sub", subject, "--count", "1", "--server", url) as listener:
        listening(listener)
        with jetspark("pub", subject, "--stdin", "--server", url) as command:
            out, _ = command.communicate(b"from a pipe", timeout=20)
        assert out.decode() == f"1 published to {subject}, 11 bytes each.\n"
        assert finish(listener)[1] == f"{subject}\nfrom a pipe\n"


def test_a_payload_in_standard_input_is_not_passed_over(
    shared_server: NatsServer, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    full.write_text("a payload")
    arguments = ["pub", "a.b", "--server", shared_server.url]
    with jetspark(*arguments) as process:  # a pipe that says nothing yet
        assert process.wait(60) == app.FAILED
    with full.open() as file:
        done = jetspark_in(file, *arguments)
    refused = 'No payload is given, and standard input has one: add --stdin, or "" for none.'
    assert (done.returncode, " ".join(done.stderr.split())) == (app.FAILED, refused)


@pytest.mark.parametrize("how", ["ended", "null", "empty", "read", "open socket", "explicit"])
def test_a_standard_input_with_nothing_is_an_empty_payload(
    shared_server: NatsServer, unique: Callable[[str], str], tmp_path: Path, how: str
) -> None:
    arguments = ["pub", unique("cli"), "--server", shared_server.url]
    path = tmp_path / "payload"
    path.write_text("" if how == "empty" else "a payload")
    there, here = socket.socketpair()
    reading, writing = os.pipe()
    with there, here, path.open() as file, open(os.devnull) as null, os.fdopen(reading) as pipe:
        os.close(writing)
        if how == "read":
            os.lseek(file.fileno(), 0, os.SEEK_END)
        if how == "explicit":
            arguments.insert(2, "")
        sources: dict[str, IO[str] | int] = {"ended": pipe, "null": null}
        sources["open socket"] = here.fileno()
        stdin = sources.get(how, file)
        done = jetspark_in(stdin, *arguments)
    assert (done.returncode, done.stderr) == (app.DONE, "")
    assert done.stdout.endswith("0 bytes each.\n")


def jetspark_in(stdin: IO[str] | int, *arguments: str) -> CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jetspark", *arguments],
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_names_on_the_command_line_are_utf8_in_any_locale(
    shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    name = unique("Ünï")

    def info(stream: bytes) -> tuple[int, bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "jetspark", "stream", "info", stream, "--server", server],
            env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            capture_output=True,
            timeout=60,
        )
        return done.returncode, done.stderr

    server = shared_server.url
    with blocking.connect(server) as nc:
        nc.jetstream().create_stream(name=name, subjects=[name], storage="memory")
        assert info(name.encode()) == (app.DONE, b"")
        code, said = info(name.encode("latin-1"))
        assert (code, b"lone surrogate" in said) == (app.FAILED, True)
        nc.jetstream().delete_stream(name)


def test_request_shows_the_answers(
    shared_server: NatsServer, unique: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    subject, url = unique("cli"), shared_server.url

    def serve(raw: RawClient, ready: threading.Event) -> None:
        raw._send(f"SUB {subject} 9\r\n".encode())
        raw.ping()
        ready.set()
        for _ in range(2):
            *_, reply, size = raw._file.readline().split()
            raw._file.read(int(size) + 2)
            for part in (b"1", b"2"):
                raw.publish(reply.decode(), part)
        raw.ping()

    with RawClient(url) as raw:
        ready = threading.Event()
        thread = threading.Thread(target=serve, args=(raw, ready))
        thread.start()
        assert ready.wait(30)
        assert app.run(["request", subject, "?", "--server", url]) == 0
        one = capsys.readouterr().out.splitlines()
        assert app.run(["request", subject, "?", "--count", "2", "--json", "--server", url]) == 0
        two = capsys.readouterr().out.splitlines()
        thread.join(30)
    assert one[1:] == ["1"]
    assert [json.loads(line)["data"] for line in two] == ["1", "2"]


def test_fewer_replies_than_asked_for_are_an_error(
    shared_server: NatsServer, unique: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    subject, url = unique("cli"), shared_server.url
    with blocking.connect(url) as nc, nc.subscribe(subject, callback=lambda msg: msg.respond(b"1")):
        nc.flush()
        arguments = ["request", subject, "--timeout", "0.3", "--server", url]
        assert app.run([*arguments, "--count", "3"]) == app.FAILED
        captured = capsys.readouterr()
        assert captured.out.splitlines()[1:] == ["1"]
        assert captured.err == f"1 of 3 replies from {subject!r} within 0.3 s.\n"
        assert app.run([*arguments, "--count", "0"]) == app.DONE


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_the_output_cannot_encode_is_escaped(
    encoding: str, shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    subject, url = unique("cli"), shared_server.url
    code = "from jetspark.cli.main import main; main()"
    terminal = {"PYTHONIOENCODING": encoding, "NO_COLOR": "1"}
    arguments = ("sub", subject, "--count", "1", "--server", url)
    with (
        python(code, *arguments, environment=terminal) as plain,
        python(code, *arguments, "--json", environment=terminal) as document,
    ):
        listening(plain)
        listening(document)
        with python(
            code, "pub", subject, "5 Ł \U0001f600", "--server", url, environment=terminal
        ) as command:
            assert finish(command)[0] == 0
        assert finish(plain) == (0, f"{subject}\n5 \\u0141 \\ud83d\\ude00\n", "")
        exit_code, line, _ = finish(document)
    assert exit_code == 0
    assert json.loads(line)["data"] == "5 Ł \U0001f600"
    with python(code, "trace", f"{subject}.Ł", "--server", url, environment=terminal) as command:
        exit_code, tree, err = finish(command)
    assert (exit_code, err) == (0, "")
    assert f"{subject}.\\u0141" in tree
    assert "`- " in tree
    assert "\\u25" not in tree


def test_errors_of_pub_sub_and_request_are_one_sentence(
    shared_server: NatsServer, unique: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    subject, url = unique("cli"), shared_server.url
    gone = f"nats://127.0.0.1:{free_port()}"
    endless = "--count must be at least 1; without it the command ends at Ctrl-C."
    for arguments, sentence in {
        ("request", subject, "--server", url): f"No responders on {subject!r}.",
        ("pub", "a b", "--server", url): "Bad subject 'a b': white space is not allowed.",
        ("pub", "a", "-H", "x", "--server", url): "--header 'x': write name:value.",
        ("pub", "a", "x", "--stdin"): ("Give the payload either as an argument or with --stdin."),
        ("pub", "a", "--count", "0", "--server", url): "--count must be at least 1.",
        ("sub", "a", "--count", "0", "--server", url): endless,
        ("sub", "a", "--count", "-1", "--server", url): endless,
        ("events", "--count", "0", "--server", url): endless,
        ("request", "a", "--count", "-1", "--server", url): "--count cannot be negative.",
        ("sub", "a", "--server", ""): "--server is empty: write nats://host:4222, or leave it out.",
        ("sub", "a", "--server", gone): f"No server at {gone}: Connection refused.",
    }.items():
        assert app.run(list(arguments)) == app.FAILED
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", sentence + "\n")


def test_a_subject_that_may_not_be_published_to_is_an_error(
    make_server: MakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = make_server(
        'authorization { users = [{user: u, password: p, permissions: {publish: {deny: "no"}}}] }'
    )
    url = f"nats://u:p@127.0.0.1:{server.port}"
    assert app.run(["pub", "no", "x", "--server", url]) == app.FAILED
    assert capsys.readouterr().err == (
        'The server reports: Permissions Violation for Publish to "no". `jetspark acl` prints the '
        "permissions that each role needs.\n"
    )
    assert app.run(["pub", "yes", "x", "--server", url]) == app.DONE


def test_a_refusal_is_told_once(make_server: MakeServer) -> None:
    server = make_server(
        "authorization { users = [ "
        '{user: u, password: p, permissions: {publish: {deny: "no"}, subscribe: {deny: "no"}}}, '
        '{user: n, password: p, permissions: {publish: {deny: ">"}, subscribe: {deny: ">"}}}, '
        '{user: t, password: p, permissions: {publish: {deny: "_INBOX.>"}}}, '
        '{user: i, password: p, permissions: {subscribe: {deny: "_INBOX.>"}}} ] }'
    )
    for user, *arguments in (
        ("u", "pub", "no"),
        ("u", "request", "no"),
        ("u", "sub", "no"),
        ("u", "trace", "no"),
        ("n", "request", "a"),
        ("n", "stream", "ls"),
        ("t", "trace", "a"),
        ("i", "stream", "backup", "S", "nowhere"),
    ):
        url = f"nats://{user}:p@127.0.0.1:{server.port}"
        with jetspark(*arguments, "--server", url) as command:
            code, _, error = finish(command)
        lines = [line for line in error.splitlines() if "Permissions Violation" in line]
        assert code == 1, error
        refused = [
            line.partition("The server reports: ")[2].partition('"_INBOX')[0] for line in lines
        ]
        assert lines
        assert len(set(refused)) == len(lines), error


def test_the_server_may_be_named_by_the_environment(
    shared_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", shared_server.url)
    with jetspark("pub", "somewhere", "x") as command:
        assert finish(command)[:2] == (0, "1 published to somewhere, 1 byte each.\n")
    with jetspark("pub", "somewhere", "--server", "nats://a", "--context", "b") as command:
        code, _, error = finish(command)
    assert (code, error) == (1, "Give either --server or --context.\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pub", "a", "--stdin"], "Standard input is closed: give --stdin a file or a pipe."),
        (["request", "a", "--stdin"], "Standard input is closed: give --stdin a file or a pipe."),
        (["trace", "a", "--stdin"], "Standard input is closed: give --stdin a file or a pipe."),
        (["stream", "purge", "S"], "There is no terminal to ask on: confirm with --force."),
        (["stream", "rm", "S"], "There is no terminal to ask on: confirm with --force."),
    ],
)
def test_a_closed_standard_input_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    arguments: list[str],
    sentence: str,
) -> None:
    name = unique("S")
    admin.create(name, name)
    arguments = [name if argument == "S" else argument for argument in arguments]
    monkeypatch.setattr("sys.stdin", None)
    assert app.run([*arguments, "--server", shared_server.url]) == app.FAILED
    assert " ".join(capsys.readouterr().err.split()).endswith(sentence)

"""`jetspark pub`, `sub` and `request`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.conftest import MakeServer
from tests.support.ports import free_port
from tests.support.processes import end, finish, first_line, jetspark, python
from tests.support.raw_client import RawClient
from tests.support.streams import Admin

from jetspark import blocking
from jetspark.blocking import Message
from jetspark.cli import app
from jetspark.full_client import connect

NO_STREAM = "No stream stores this subject.\n"


@pytest.fixture
def subject(unique: Callable[[str], str]) -> str:
    return unique("cli")


def listening(command: subprocess.Popen[bytes]) -> None:
    """Until `sub` says that it listens."""
    assert command.stderr is not None
    assert command.stderr.readline().startswith(b"Listening on ")


@pytest.mark.full
def test_what_pub_publishes_sub_shows(
    url: str, subject: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub = ("sub", subject, "--server", url, "--count")
    with jetspark(*sub, "5") as plain, jetspark(*sub, "2", "--json") as lines:
        listening(plain)
        listening(lines)
        headers = ("-H", "k: v:1", "-H", "k:2")
        assert run("pub", subject, "smörgås", *headers, "--reply", "r") == (
            0, f"1 published to {subject}, 9 bytes each. No stream stores this subject.\n", "",
        )  # fmt: skip
        with RawClient(url) as raw:
            raw.publish(subject, b"\xff", "r")
            raw.ping()
        assert run("pub", subject, "--count", "2")[1].startswith("2 published to")
        payload = io.BytesIO(b"a\x1b[31mb\n[red]c")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(payload))
        assert run("pub", subject, "--stdin")[0] == 0
        code, out, _ = finish(plain)
        documents = [json.loads(line) for line in finish(lines)[1].splitlines()]
    assert code == 0
    assert out.splitlines() == [
        *(f"{subject}  (reply to r)", "k: v:1", "k: 2", "smörgås"),
        *(f"{subject}  (reply to r)", "\\xff"),
        *(subject, "", subject, ""),
        *(subject, "a\\x1b[31mb", "[red]c"),  # what would command a terminal is shown as text
    ]
    assert documents == [
        {"subject": subject, "reply": "r", "headers": {"k": ["v:1", "2"]}, "data": "smörgås"},
        {"subject": subject, "reply": "r", "data_base64": "/w=="},
    ]


@pytest.mark.full
def test_json_becomes_a_payload_in_a_schema_and_is_shown_as_json_again(
    url: str, subject: str, run: Run, admin: Admin, tmp_path: Path
) -> None:
    file = tmp_path / "order.avsc"
    fields = [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    file.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    admin.create(subject, subject)
    schema = ("--schema-file", str(file))
    sub = ("sub", subject, "--decode", "avro", *schema, "--server", url, "--count", "2")
    value = '{"id": 7, "at": "2026-01-31T12:00:00Z"}'
    with jetspark(*sub) as plain, jetspark(*sub, "--json") as lines:
        listening(plain)
        listening(lines)
        assert run("pub", subject, value, "--encode", "avro", *schema)[0] == 0
        assert run("pub", subject, "no avro")[0] == 0
        shown, said = finish(plain)[1:]
        documents = [json.loads(line) for line in finish(lines)[1].splitlines()]
    plainly = '{"id":7,"at":"2026-01-31T12:00:00Z"}'
    assert shown.splitlines() == [subject, plainly, subject, "no avro"]
    assert said.startswith(f"{subject}: The payload is not Order in Avro")
    assert documents[0] == {"subject": subject, "data": plainly}
    assert documents[1] == {"subject": subject, "data": "no avro", "error": documents[1]["error"]}
    assert documents[1]["error"].startswith("The payload is not Order in Avro")
    _, out, _ = run("stream", "view", subject, "--decode", "avro", *schema, "--json")
    assert json.loads(out.splitlines()[0])["data"] == plainly
    _, _, said = run("stream", "view", subject, "--decode", "avro", *schema)
    assert said.startswith(f"Message 2 on {subject}: The payload is not Order in Avro")
    bad = run("pub", subject, '{"id": "x", "at": null}', "--encode", "avro", *schema)
    assert (bad[0], " is not a" in bad[2]) == (1, True)
    assert run("sub", subject, *schema)[2].endswith("--schema-file goes with --decode.\n")
    login = run("sub", subject, "--decode", "avro", *schema, "--registry-user", "u")[2]
    assert login.endswith("--registry-user goes with --registry, the URL of one, or nats.\n")


def test_pub_into_a_stream_says_what_was_stored_and_fails_for_what_was_not(
    admin: Admin, run: Run
) -> None:
    stream = admin.stream(under=".>")
    pub = ["pub", f"{stream}.a", "x", "--jetstream"]
    for more, said in (
        (["-H", "Nats-Msg-Id:1"], "1 stored from {}.a, 1 byte each.\n"),
        (
            ["-H", "Nats-Msg-Id:1"],
            "0 stored from {}.a, 1 byte each, 1 not again: the stream has the id.\n",
        ),
        (["--count", "3"], "3 stored from {}.a, 1 byte each.\n"),
    ):
        assert run(*pub, *more) == (0, said.format(stream), "")
    stored = json.loads(run(*pub, "-H", "Nats-Msg-Id:1", "--json")[1])
    assert stored == {"subject": f"{stream}.a", "bytes": 1, "stored": 0, "duplicates": 1}
    published = json.loads(run("pub", f"{stream}.a", "--count", "2", "--json")[1])
    assert published == {"subject": f"{stream}.a", "bytes": 0, "published": 2, "streams": [stream]}
    code, _, err = run(*pub, "-H", "Nats-Expected-Last-Sequence:1")
    assert (code, "wrong last sequence" in err) == (1, True)
    code, _, err = run(*pub, "--reply", "r")
    assert (code, "ack goes there" in err) == (1, True)


async def test_pub_that_is_stopped_tells_how_many_it_published(url: str, subject: str) -> None:
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
            code, out, err = await asyncio.to_thread(end, command, signal.SIGTERM)
        await nc.flush()  # the server has received all before the command ended
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert err == f"Stopped: {seen:,} of 50,000,000 published to {subject}.\n"


@pytest.mark.full
def test_a_signal_is_the_ordinary_end_of_sub(url: str, subject: str, run: Run) -> None:
    with jetspark("sub", subject, "--queue", "q", "--server", url) as command:
        listening(command)
        assert run("pub", subject, "x")[0] == 0
        assert first_line(command) == subject
        assert end(command, signal.SIGHUP) == (0, "x\n", "")


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "number"),
    [
        (["sub", "a"], signal.SIGINT),
        (["pub", "a", "b"], signal.SIGHUP),
        (["stream", "ls"], signal.SIGTERM),
    ],
)
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


@pytest.mark.parametrize(
    ("how", "waits"),
    [
        *(("full", True), ("silent pipe", True)),
        *((how, False) for how in ("ended pipe", "null", "empty", "read", "open socket")),
    ],
)
def test_a_payload_in_standard_input_is_not_passed_over(
    subject: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, waits: bool
) -> None:
    """Without --stdin or an argument; nothing is waiting in the others."""
    path = tmp_path / "payload"
    path.write_text("" if how == "empty" else "a payload")
    there, here = socket.socketpair()
    reading, writing = os.pipe()
    with ExitStack() as stack:
        file = stack.enter_context(path.open())
        pipe, end_of_it = stack.enter_context(os.fdopen(reading)), os.fdopen(writing, "w")
        stack.enter_context(here)
        others = {
            "null": stack.enter_context(open(os.devnull)),
            "open socket": stack.enter_context(os.fdopen(there.detach())),
        }
        if how == "ended pipe":
            end_of_it.close()
        if how == "read":
            file.seek(0, os.SEEK_END)
        monkeypatch.setattr(sys, "stdin", pipe if "pipe" in how else others.get(how, file))
        code, out, err = run("pub", subject)
        if not waits:
            assert (code, out) == (
                app.SUCCEEDED,
                f"1 published to {subject}, 0 bytes each. {NO_STREAM}",
            )
        else:
            refused = 'No payload is given, and standard input has one: add --stdin, or "" for none'
            assert (code, " ".join(err.split())) == (app.FAILED, f"{refused}.")
            assert run("pub", subject, "")[0] == app.SUCCEEDED
        end_of_it.close()


@pytest.mark.full
def test_names_on_the_command_line_are_utf8_in_any_locale(
    url: str, unique: Callable[[str], str]
) -> None:
    name = unique("Ünï")

    def info(stream: bytes) -> tuple[int, bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "jetspark", "stream", "info", stream, "--server", url],
            env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            capture_output=True,
            timeout=60,
        )
        return done.returncode, done.stderr

    with blocking.connect(url) as nc:
        nc.jetstream().create_stream(name=name, subjects=[name], storage="memory")
        assert info(name.encode()) == (app.SUCCEEDED, b"")
        code, said = info(name.encode("latin-1"))
        assert (code, b"lone surrogate" in said) == (app.FAILED, True)
        nc.jetstream().delete_stream(name)


def test_request_shows_as_many_answers_as_are_asked_for(url: str, subject: str, run: Run) -> None:
    def answer(message: Message) -> None:
        for part in (b"1", b"2"):
            message.respond(part)

    with blocking.connect(url) as nc, nc.subscribe(subject, callback=answer):
        nc.flush()
        request = ("request", subject, "?", "--timeout", "0.5")
        assert run(*request)[1].splitlines()[1:] == ["1"]
        lines = run(*request, "--count", "2", "--json")[1].splitlines()
        assert [json.loads(line)["data"] for line in lines] == ["1", "2"]
        code, out, err = run(*request, "--count", "3")
        assert (code, out.splitlines()[1::2]) == (app.FAILED, ["1", "2"])
        assert err == f"2 of 3 replies from {subject!r} within 0.5 s.\n"
        assert run(*request, "--count", "0")[0] == app.SUCCEEDED


@pytest.mark.full
def test_what_the_output_cannot_encode_is_escaped(
    url: str, subject: str, run: Run, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.11")
    code = "from jetspark.cli.main import main; main()"
    terminal = {"PYTHONIOENCODING": "cp1252", "NO_COLOR": "1"}
    arguments = ("sub", subject, "--json", "--count", "1", "--server", url)
    with python(code, *arguments, environment=terminal) as document:
        listening(document)
        assert run("pub", subject, "5 Ł \U0001f600")[0] == 0
        _, line, _ = finish(document)
    assert json.loads(line)["data"] == "5 Ł \U0001f600"
    with python(code, "trace", f"{subject}.Ł", "--server", url, environment=terminal) as command:
        exit_code, tree, err = finish(command)
    assert (exit_code, err) == (0, "")
    assert f"{subject}.\\u0141" in tree
    assert "`- " in tree
    assert "\\u25" not in tree


def test_errors_of_pub_sub_and_request_are_one_sentence(subject: str, run: Run) -> None:
    gone = f"nats://127.0.0.1:{free_port()}"
    endless = "--count must be at least 1; without it the command ends at Ctrl-C."
    for arguments, sentence in {
        ("request", subject): f"No responders on {subject!r}.",
        ("pub", "a b"): "Bad subject 'a b': white space is not allowed.",
        ("pub", "a", "-H", "x"): "--header 'x': write name:value.",
        ("pub", "a", "x", "--stdin"): "Give the payload either as an argument or with --stdin.",
        ("pub", "a", "--count", "0"): "--count must be at least 1.",
        ("pub", "a", "--context", "b"): "Give either --server or --context.",
        ("sub", "a", "--count", "0"): endless,
        ("events", "--count", "-1"): endless,
        ("request", "a", "--count", "-1"): "--count cannot be negative.",
    }.items():
        assert run(*arguments) == (app.FAILED, "", sentence + "\n")
    empty = "--server is empty: write nats://host:4222, or leave it out.\n"
    assert run("sub", "a", "--server", "", server="") == (app.FAILED, "", empty)
    refused = (
        f"No server at {gone}: Connection refused. "
        "Start one with `jetspark server`, or name yours with --server.\n"
    )
    assert run("sub", "a", server=gone) == (app.FAILED, "", refused)


def test_a_refusal_is_told_once(
    make_server: MakeServer, run: Run, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.11")
    server = make_server(
        "authorization { users = [ "
        '{user: u, password: p, permissions: {publish: {deny: "no"}, subscribe: {deny: "no"}}}, '
        '{user: n, password: p, permissions: {publish: {deny: ">"}, subscribe: {deny: ">"}}}, '
        '{user: t, password: p, permissions: {publish: {deny: "_INBOX.>"}}}, '
        '{user: i, password: p, permissions: {subscribe: {deny: "_INBOX.>"}}} ] }'
    )

    def as_user(user: str, *arguments: str) -> tuple[int, str, str]:
        return run(*arguments, server=f"nats://{user}:p@127.0.0.1:{server.port}")

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
        code, _, error = as_user(user, *arguments)
        lines = [line for line in error.splitlines() if "Permissions Violation" in line]
        assert code == 1, error
        refused = {
            line.partition("The server reports: ")[2].partition('"_INBOX')[0] for line in lines
        }
        assert lines
        assert len(refused) == len(lines), error
    assert as_user("u", "pub", "no", "x")[2] == (
        'The server reports: Permissions Violation for Publish to "no". `jetspark acl` prints the '
        "permissions that each role needs.\n"
    )
    assert as_user("u", "pub", "yes", "x")[0] == app.SUCCEEDED


def test_pub_says_whether_a_stream_stores_the_subject(
    run: Run, admin: Admin, make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = admin.stream(under=".>")
    assert run("pub", f"{name}.a", "x") == (0, f"1 published to {name}.a, 1 byte each.\n", "")
    assert json.loads(run("pub", f"{name}.a", "x", "--json")[1])["streams"] == [name]
    assert json.loads(run("pub", f"{name}-a", "x", "--json")[1])["streams"] == []
    core = make_server(jetstream=False)
    monkeypatch.setenv("NATS_URL", core.url)  # names the server, too
    for server in (core.url, ""):
        assert run("pub", "a", "x", server=server)[:2] == (0, "1 published to a, 1 byte each.\n")


def test_a_closed_standard_input_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    told = "Standard input is closed: give --stdin a file or a pipe.\n"
    assert run("pub", "a", "--stdin") == (app.FAILED, "", told)


def test_what_no_stream_takes_is_told_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetspark.cli.pub._LEADER_TIMEOUT", 0.1)
    code, _, err = run("pub", "nobody.listens", "x", "--jetstream")
    assert (code, err.count("no stream listens"), err.count("\n")) == (app.FAILED, 1, 1)

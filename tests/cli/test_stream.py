"""`jetspark stream`."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow.fs as fs
import pytest
from tests.cli.conftest import Run
from tests.conftest import MakeServer
from tests.support.object_store import object_store
from tests.support.ports import free_port
from tests.support.processes import finish, jetspark
from tests.support.streams import Admin, numbered

from jetspark import blocking
from jetspark.blocking.jetstream import JetStream
from jetspark.cli import app
from jetspark.cli.formatting import format_duration, format_limit, format_size


@pytest.fixture
def js(url: str) -> Iterator[JetStream]:
    with blocking.connect(url) as nc:
        yield nc.jetstream()


@pytest.fixture
def orders(js: JetStream, unique: Callable[[str], str]) -> str:
    """A stream of 3 messages."""
    name = unique("ORDERS")
    js.create_stream(name=name, subjects=[f"{name}.>"], max_bytes=1 << 20, description="old")
    for number in range(3):
        js.publish(f"{name}.{number}", b"x" * 100)
    return name


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`answers("y")`: a person at a terminal types it."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    return lambda text: monkeypatch.setattr(sys, "stdin", Terminal(f"{text}\n"))


def test_view_shows_the_last_messages(run: Run, orders: str, js: JetStream) -> None:
    code, out, _ = run("stream", "view", orders, "--last", "2")
    head, payload, *_ = out.splitlines()
    assert (code, payload) == (0, "x" * 100)
    assert head.startswith(f"{orders}.1  2  20")
    assert len(out.splitlines()) == 4
    js.publish(f"{orders}.4", b"\xff", headers={"A": "b"})
    documents = [
        json.loads(line)
        for line in run("stream", "view", orders, "--last", "100", "--json")[1].splitlines()
    ]
    assert [one["seq"] for one in documents] == [1, 2, 3, 4]
    assert documents[-1]["headers"] == {"A": ["b"]}
    assert documents[-1]["data_base64"] == "/w=="


def test_view_finds_the_last_of_a_subject_however_far_back(
    run: Run, js: JetStream, unique: Callable[[str], str]
) -> None:
    name = unique("Q")
    js.create_stream(name=name, subjects=[f"{name}.>"], retention="workqueue")
    for number in range(60):
        js.publish(f"{name}.{'eu' if number in (3, 5, 40) else 'us'}", b"%d" % number)
    js.stream(name).delete_msg(6)
    view = ("stream", "view", name, "--json", "--subject", f"{name}.eu", "--last")
    assert [json.loads(line)["seq"] for line in run(*view, "2")[1].splitlines()] == [4, 41]
    assert [json.loads(line)["seq"] for line in run(*view, "9")[1].splitlines()] == [4, 41]
    assert js.stream(name).info().state.messages == 59
    none = f"Stream {name} has no message with a subject that matches none.>.\n"
    assert run("stream", "view", name, "--subject", "none.>") == (0, "", none)
    assert run("stream", "view", name, "--subject", "none.>", "--json") == (0, "", "")
    js.stream(name).purge()
    assert run("stream", "view", name) == (0, "", f"Stream {name} has no message.\n")
    code, _, err = run("stream", "view", f"{name}X")
    assert code == 1
    assert f'did you mean "{name}"' in err


def test_ls_is_a_table_and_with_json_an_array(run: Run, orders: str) -> None:
    code, out, _ = run("stream", "ls")
    head, *rows = out.splitlines()
    assert (code, head.split()[:4]) == (app.SUCCEEDED, ["stream", "messages", "size", "first"])
    (row,) = [row.split() for row in rows if row.startswith(orders)]
    assert row[1] == "3"
    assert row[4:7] == ["1", "3", "0"]
    documents = json.loads(run("stream", "ls", "--json")[1])
    (document,) = [one for one in documents if one["config"]["name"] == orders]
    assert document["state"]["messages"] == 3


def test_info_is_for_people_and_with_json_for_programs(run: Run, orders: str) -> None:
    code, shown, _ = run("stream", "info", orders)
    assert code == app.SUCCEEDED
    assert f"subjects         {orders}.>\n" in shown
    assert "sequences        1 to 3, 0 deleted\n" in shown
    assert "max size         1.0 MiB\n" in shown
    assert "max age          unlimited\n" in shown
    document = json.loads(run("stream", "info", orders, "--json")[1])
    assert document["config"]["subjects"] == [f"{orders}.>"]
    assert document["state"]["last_seq"] == 3


def test_a_stream_is_made_once(run: Run, unique: Callable[[str], str], tmp_path: Path) -> None:
    name, file = unique("MADE"), tmp_path / "config.json"

    def add(stream: str, *more: str, config: str = "") -> tuple[int, str, str]:
        file.write_text(config)
        return run("stream", "add", stream, *more, *(["--config", str(file)] if config else []))

    for _ in range(2):
        done = add(name, "--subject", f"{name}.a", "--subject", f"{name}.b")
        assert done == (0, f"Stream {name} takes in {name}.a, {name}.b.\n", "")
    assert add(name, "--subject", name, "--storage", "memory") == (
        1,
        "",
        f'Stream "{name}" exists with another configuration (subjects is ["{name}.a","{name}.b"], '
        f'not ["{name}"]; storage is "file", not "memory"): update it, or take another name.\n',
    )
    limited = '{"max_msgs": 5, "storage": "memory"}'
    code, out, err = add(f"{name}_2", "--storage", "file", "--json", config=limited)
    assert (code, err) == (0, "")
    config = json.loads(out)["config"]
    assert (config["max_msgs"], config["storage"]) == (5, "file")
    assert add(f"{name}_4", config='{"name": "OTHER"}')[2] == (
        f'{file} is of stream "OTHER", not "{name}_4": name that one, or change the file.\n'
    )
    assert add(f"{name}_5", config=f'{{"name": "{name}_5"}}')[0] == 0
    err = add(f"{name}_4", config='{"max_msg": 5}')[2]
    assert err.endswith("did you mean 'max_msgs'? If not, put it into extra: {'max_msg': …}.\n")
    code, out, err = add(f"{name}_3")  # not the subject of its name, which nobody meant
    assert (code, out) == (1, "")
    assert err.startswith("--subject: name what the stream takes in")


def test_a_field_that_the_server_does_not_know_is_refused_by_it(
    run: Run, unique: Callable[[str], str], tmp_path: Path, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.12")
    file = tmp_path / "config.json"
    file.write_text('{"extra": {"max_msg": 5}}')
    err = run("stream", "add", unique("MADE"), "--config", str(file))[2]
    assert "knows no field 'max_msg' of a configuration; did you mean 'max_msgs'?" in err


def test_purge_before_a_sequence_that_is_not_there_deletes_nothing(run: Run, orders: str) -> None:
    code, _, err = run("stream", "purge", orders, "--before", "99", "--force")
    assert (code, err) == (1, "--before 99 is after the last sequence, 3.\n")
    assert json.loads(run("stream", "info", orders, "--json")[1])["state"]["messages"] == 3
    assert run("stream", "purge", orders, "--before", "4", "--force")[0] == 0
    assert json.loads(run("stream", "info", orders, "--json")[1])["state"]["first_seq"] == 4


def test_messages_are_deleted_when_a_person_says_so(
    run: Run, admin: Admin, answers: Callable[[str], None]
) -> None:
    name = admin.stream(under=".>")
    admin.fill(numbered(f"{name}.a", 10) + numbered(f"{name}.b", 10))

    def purge(*more: str) -> tuple[int, str, str]:
        return run("stream", "purge", name, *more)

    answers("n")
    asked = f"Stream {name}: delete all 20 messages? [y/N] "
    assert purge() == (1, "", f"{asked}Nothing was changed.\n")
    answers("y")
    assert purge("--subject", f"{name}.a")[:2] == (0, f"Deleted 10 messages of stream {name}.\n")
    assert purge("--before", "16", "--force")[1].startswith("Deleted 5 messages")
    assert json.loads(purge("--keep", "2", "--force", "--json")[1]) == {"purged": 3}
    assert admin.api.stream(name).messages == 2


def test_a_stream_is_removed_when_a_person_says_so(
    run: Run, admin: Admin, answers: Callable[[str], None]
) -> None:
    name = admin.stream(3)
    answers("")
    assert run("stream", "rm", name)[0] == app.FAILED
    assert admin.api.stream(name).messages == 3
    answers("yes")
    code, out, err = run("stream", "rm", name)
    assert (code, out) == (0, f"Removed stream {name} with 3 messages and 0 consumers.\n")
    assert err.startswith(f"Remove stream {name} with 3 messages and 0 consumers? [y/N] ")
    assert name not in admin.api.stream_names()
    name = admin.stream(2)
    removed = json.loads(run("stream", "rm", name, "--force", "--json")[1])
    assert removed == {"removed": name, "messages": 2, "consumers": 0}


@pytest.mark.parametrize("command", ["rm", "purge"])
def test_without_a_terminal_force_is_required(
    run: Run, admin: Admin, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    name = admin.stream(3)
    for stdin in (io.StringIO("y\n"), None):
        monkeypatch.setattr(sys, "stdin", stdin)
        code, out, err = run("stream", command, name)
        assert (code, out) == (1, "")
        assert err.endswith("? There is no terminal to ask on: confirm with --force.\n")
    assert admin.api.stream(name).messages == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("rm NO_SUCH --force", 'Stream "NO_SUCH" not found on nats://'),
        ("add S --subject a..b", "a..b"),
        ("add S --config /no/file", "/no/file"),
        ("purge S --keep 1 --before 2", "Give either --keep or --before."),
        ("purge S --keep 0", "--keep must be at least 1; without it, all are deleted."),
        ("add S --replicas 0", "--replicas must be at least 1."),
        ("restore /no/folder --replicas 0", "--replicas must be at least 1."),
        ("purge S --before 0", "--before is a sequence; they begin at 1."),
        ("info a.b", "Bad stream name 'a.b': white space and the characters . * > / \\ are not"),
        ("ls --context x", "Give either --server or --context."),
    ],
)
def test_wrong_arguments_print_one_sentence(run: Run, arguments: str, sentence: str) -> None:
    code, out, err = run("stream", *arguments.split())
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert sentence in err


def test_a_stream_is_backed_up_and_restored(
    run: Run, make_server: MakeServer, orders: str, tmp_path: Path
) -> None:
    there, folder = make_server().url, tmp_path / "b"
    code, out, err = run("stream", "backup", orders, str(folder))
    assert (code, err) == (0, "")
    assert out.startswith(f"Saved: stream {orders}, 3 messages (")
    assert out.endswith(f" in {folder}.\n")
    document = json.loads(run("stream", "verify", str(folder), "--json", server="")[1])
    assert (document["stream"], document["state"]["messages"]) == (orders, 3)
    config = tmp_path / "config.json"
    config.write_text('{"description": "new"}')
    restore = ["stream", "restore", str(folder)]
    to_new = [*restore, "--config", str(config)]
    out = run(*to_new, "--replicas", "1", server=there)[1]
    assert out.startswith(f"Restored stream {orders}: 3 messages (")
    with blocking.connect(there) as nc:
        info = nc.jetstream().stream(orders).info()
        assert (info.config.description, info.state.last_seq) == ("new", 3)
    assert run(*to_new, server=there)[1] == (
        f'Stream "{orders}" exists already, and has all 3 messages of the backup: nothing needs to '
        "be done.\n"
    )
    for command, server, description in (
        (to_new, there, "new"),
        (restore, make_server().url, "old"),
    ):
        config_there = json.loads(run(*command, "--json", server=server)[1])["config"]
        assert config_there["description"] == description


def test_mistakes_are_one_sentence(url: str, run: Run, orders: str, tmp_path: Path) -> None:
    folder, typo = str(tmp_path / "b"), orders[:-1]
    meant = f'Stream "{typo}" not found on {url} (did you mean "{orders}"?).'
    none = f"{tmp_path} is not a backup of a stream: there is no file backup.json in it."
    assert run("stream", "backup", orders, folder)[0] == 0
    for arguments, sentence in {
        ("info", typo): meant,
        ("backup", typo, str(tmp_path / "c")): meant,
        ("backup", orders, folder): f"{folder} exists already: name a new folder for the backup.",
        ("restore", str(tmp_path)): none,
    }.items():
        assert run("stream", *arguments) == (app.FAILED, "", sentence + "\n")
    assert run("stream", "verify", str(tmp_path), server="")[2] == none + "\n"
    gone = f"nats://127.0.0.1:{free_port()}"
    refused = f"No server at {gone}: Connection refused. Start one with `jetspark server`"
    assert run("stream", "ls", server=gone)[2].startswith(refused)
    assert run("stream", "bogus")[0] == app.WRONG_USAGE
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b"]


@pytest.mark.full
def test_a_backup_that_is_interrupted_leaves_nothing(
    url: str, js: JetStream, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("LARGE")
    js.create_stream(name=name, subjects=[name])
    for _ in range(300):
        js.publish(name, os.urandom(200_000))
    with jetspark("stream", "backup", name, str(tmp_path / "b"), "--server", url) as command:
        while not any(tmp_path.iterdir()):
            assert command.poll() is None
        command.send_signal(signal.SIGINT)
        code, out, err = finish(command)
    if code == 0:  # it was quicker
        assert [one.name for one in tmp_path.iterdir()] == ["b"]
        return
    assert (code, out, err) == (128 + signal.SIGINT, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_a_restore_that_is_interrupted_leaves_no_part_of_the_stream(
    js: JetStream,
    unique: Callable[[str], str],
    make_server: MakeServer,
    tmp_path: Path,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.15")  # older ones have no stream before the end
    name = unique("LARGE")
    js.create_stream(name=name, subjects=[name])
    for _ in range(200):
        js.publish(name, os.urandom(200_000))
    js.backup_stream(name, tmp_path / "b")
    with blocking.connect(make_server().url) as nc:
        there = nc.jetstream()
        arguments = ["stream", "restore", str(tmp_path / "b"), "--server", str(nc.current_server)]
        with jetspark(*arguments) as command:
            while not there.stream_names().all():
                assert command.poll() is None
            command.send_signal(signal.SIGHUP)
            code, _, err = finish(command)
        if code == 0:  # it was quicker
            assert there.stream(name).info().state.messages == 200
            return
        assert (code, err) == (128 + signal.SIGHUP, "")
        assert there.stream_names().all() == []


def test_what_is_not_found_is_told_to_a_user_who_may_not_list_names(
    run: Run, make_server: MakeServer
) -> None:
    denied = 'publish: { deny: ["$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.NAMES.>"] }'
    users = f"{{ user: a, password: b, permissions: {{ {denied} }} }}"
    port = make_server(f"authorization {{ users: [{users}] }}").port
    server = f"nats://a:b@127.0.0.1:{port}"
    with blocking.connect(server) as nc:
        nc.jetstream().create_stream(name="S", subjects=["s"])
    for arguments in (["consumer", "info", "S", "w"], ["stream", "info", "T"]):
        code, _, err = run(*arguments, server=server)
        assert (code, " not found on " in err) == (app.FAILED, True)


def test_sizes_and_limits_are_written_for_people() -> None:
    assert [format_size(n) for n in (0, 1023, 1024, 5 << 30, 1 << 60)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 GiB", "1048576.0 TiB",
    ]  # fmt: skip
    assert [format_limit(n) for n in (-1, 0, None, 1000)] == ["unlimited"] * 3 + ["1,000"]
    assert format_duration(None) == "unlimited"


@pytest.mark.full
def test_a_backup_goes_to_a_store_and_comes_back(
    run: Run, admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    name = admin.stream(300)
    with object_store("backups") as url:
        uri = (
            f"s3://key:s3cret@backups/of/{name}?endpoint_override={quote(url, safe='')}"
            "&region=us-east-1"
        )
        shown = f"s3://backups/of/{name}"
        code, out, err = run("stream", "backup", name, uri)
        assert code == 0, err
        assert f"in {shown}." in " ".join(out.split())
        code, _, err = run("stream", "backup", name, uri)
        assert (code, f"{shown} exists already" in " ".join(err.split())) == (1, True)
        code, out, err = run("stream", "verify", uri, server="")
        assert (code, "300 messages" in out) == (0, True), err
        admin.call(f"STREAM.DELETE.{name}")
        assert run("stream", "restore", uri)[0] == 0
        assert admin.facts(name).messages == 300
        system, path = fs.FileSystem.from_uri(uri)
        with system.open_output_stream(f"{path}/stream.tar.s2") as archive:
            archive.write(b"damaged")
        admin.call(f"STREAM.DELETE.{name}")
        code, _, err = run("stream", "restore", uri)
        assert (code, name in admin.api.stream_names()) == (1, False)
        assert "s3cret" not in err
        for missing, server in (("restore", None), ("verify", "")):
            code, _, err = run("stream", missing, uri.replace(name, "other"), server=server)
            assert "is not a backup of a stream" in " ".join(err.split())
    assert list(tmp_path.glob("jetspark-backup-*")) == []

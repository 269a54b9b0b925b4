"""`jetspark kv`."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.support.processes import end, finish, jetspark

from jetspark import blocking


@pytest.fixture
def prices(url: str, unique: Callable[[str], str]) -> str:
    """A bucket with two keys, and one that was deleted."""
    name = unique("prices")
    with blocking.connect(url) as nc:
        bucket = nc.jetstream().create_bucket(name, history=3)
        for key, value in (("us.b", b"3"), ("eu.a", b"1"), ("eu.a", b"\xff"), ("eu.c", b"4")):
            bucket.put(key, value)
        bucket.delete("eu.c")
    return name


def test_ls_lists_buckets_or_the_keys_of_one(run: Run, url: str, prices: str) -> None:
    code, out, _ = run("kv", "ls")
    head, *rows = out.splitlines()
    names = ["bucket", "entries", "size", "history", "time", "to", "live"]
    assert (code, head.split()) == (0, names)
    assert [row.split()[1] for row in rows if row.startswith(f"{prices} ")] == ["5"]
    documents = json.loads(run("kv", "ls", "--json")[1])
    assert f"KV_{prices}" in [one["config"]["name"] for one in documents]
    assert run("kv", "ls", prices) == (0, "eu.a\nus.b\n", "")
    assert json.loads(run("kv", "ls", prices, "--json")[1]) == ["eu.a", "us.b"]
    with blocking.connect(url) as nc:
        nc.jetstream().create_bucket(f"{prices}0")
    assert run("kv", "ls", f"{prices}0")[1:] == ("", f"Bucket {prices}0 has no key with a value.\n")
    assert run("kv", "ls", f"{prices}0", "--json")[1:] == ("[]\n", "")


def test_get_shows_the_present_value_or_that_of_a_revision(run: Run, prices: str) -> None:
    code, out, _ = run("kv", "get", prices, "us.b")
    head, value = out.splitlines()
    assert (code, value) == (0, "3")
    assert head.startswith("us.b  revision 1  20")
    assert run("kv", "get", prices, "eu.a", "--revision", "2", "--raw") == (0, "1", "")
    document = json.loads(run("kv", "get", prices, "eu.a", "--json")[1])
    assert document.pop("created").startswith("20")
    assert document == {
        "bucket": prices, "key": "eu.a", "revision": 3, "operation": "PUT", "value_base64": "/w==",
    }  # fmt: skip


def test_what_is_not_there_is_one_sentence(run: Run, prices: str) -> None:
    code, _, err = run("kv", "get", prices, "eu.c")
    assert (code, err.count("\n")) == (1, 1)
    code, _, err = run("kv", "get", f"{prices}X", "eu.a")
    assert code == 1
    assert f'Bucket "{prices}X" not found' in err
    assert f'did you mean "{prices}"' in err


def test_watch_shows_present_entries_then_changes(run: Run, url: str, prices: str) -> None:
    wanted = ("kv", "watch", prices, "eu.*", "--count", "3", "--json", "--server", url)
    with jetspark(*wanted) as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline().startswith(b"Listening to ")
        with blocking.connect(url) as nc:
            nc.jetstream().bucket(prices).put("eu.d", b"new")
        _, out, _ = finish(watching)
    entries = [json.loads(line) for line in out.splitlines()]
    assert [(one["key"], one["operation"], one.get("value")) for one in entries] == [
        ("eu.a", "PUT", None), ("eu.c", "DEL", None), ("eu.d", "PUT", "new"),
    ]  # fmt: skip
    assert run("kv", "watch", prices, "us.b", "--count", "1")[1].splitlines()[1:] == ["3"]


def test_watch_says_when_no_key_matches_yet(url: str, prices: str) -> None:
    with jetspark("kv", "watch", prices, "de.*", "it.*", "--server", url) as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline().startswith(b"Listening to ")
        said = f"Bucket {prices} has no key that matches de.* or it.* yet.\n"
        assert watching.stderr.readline() == said.encode()
        assert end(watching, signal.SIGINT) == (0, "", "")


def test_a_bucket_is_made_described_and_not_changed(run: Run, unique: Callable[[str], str]) -> None:
    name = unique("made")
    wanted = ("kv", "add", name, "--history", "3", "--ttl", "12h", "--storage", "memory")
    assert run(*wanted) == (0, f"Bucket {name} keeps 3 entries of each key.\n", "")
    assert run(*wanted)[0] == 0
    _, shown, _ = run("kv", "info", name)
    facts = dict(line.split("  ", 1) for line in shown.splitlines())
    assert (facts["history"].strip(), facts["storage"].strip()) == ("3", "memory")
    assert facts["time to live"].strip() == "12:00:00"
    config = json.loads(run("kv", "info", name, "--json")[1])["config"]
    assert (config["max_msgs_per_subject"], config["max_age"]) == (3, 12 * 3600 * 10**9)
    code, _, err = run("kv", "add", name, "--history", "4")
    assert code == 1
    assert "history is 3, not 4" in err
    assert f"jetspark stream edit KV_{name}" in err


def test_a_value_is_put_from_an_argument_or_standard_input(
    url: str, run: Run, prices: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("kv", "put", prices, "eu.new", "-5") == (
        0,
        f"Stored eu.new in {prices}, revision 6.\n",
        "",
    )
    assert run("kv", "get", prices, "eu.new", "--raw")[1] == "-5"
    assert json.loads(run("kv", "put", prices, "eu.new", "", "--json")[1]) == {
        "bucket": prices, "key": "eu.new", "revision": 7,
    }  # fmt: skip
    (tmp_path / "bytes").write_bytes(b"\xff\0\n")
    with (tmp_path / "bytes").open("rb") as payload:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(payload))
        assert run("kv", "put", prices, "eu.new", "--stdin")[0] == 0
    with blocking.connect(url) as nc:
        assert nc.jetstream().bucket(prices).get_value("eu.new") == b"\xff\0\n"
    for more in ((), ("x", "--stdin")):
        code, _, err = run("kv", "put", prices, "eu.new", *more)
        assert (code, err.count("\n")) == (1, 1)
        assert "--stdin" in err


def test_a_value_is_put_only_over_the_revision_that_was_seen(run: Run, prices: str) -> None:
    assert run("kv", "put", prices, "us.b", "4", "--revision", "1")[0] == 0
    code, _, err = run("kv", "put", prices, "us.b", "5", "--revision", "1")
    assert code == 1
    assert f"jetspark kv history {prices} us.b" in err
    assert run("kv", "get", prices, "us.b", "--raw")[1] == "4"


def test_create_takes_only_keys_without_a_value(run: Run, prices: str) -> None:
    code, _, err = run("kv", "create", prices, "us.b", "4")
    assert (code, err) == (1, f'Key "us.b" of bucket "{prices}" exists already (revision 1).\n')
    assert run("kv", "create", prices, "eu.c", "5")[0] == 0  # it was deleted
    assert run("kv", "get", prices, "eu.c", "--raw")[1] == "5"
    code, _, err = run("kv", "create", prices, "eu.d", "5", "--ttl", "5s")
    assert code == 1
    assert "--marker-ttl" in err


def test_rm_removes_the_value_and_keeps_or_purges_the_history(run: Run, prices: str) -> None:
    code, _, err = run("kv", "rm", prices, "us.b")
    assert code == 1
    assert "confirm with --force" in err
    assert run("kv", "rm", prices, "us.b", "--force")[0] == 0
    assert run("kv", "get", prices, "us.b")[0] == 1
    assert run("kv", "get", prices, "us.b", "--revision", "1", "--raw")[1] == "3"
    assert run("kv", "rm", prices, "eu.a", "--purge", "-f")[0] == 0
    assert run("kv", "get", prices, "eu.a", "--revision", "2")[0] == 1
    code, _, err = run("kv", "rm", prices, "eu.a", "-f")
    assert (code, err.count("\n")) == (1, 1)


def test_history_shows_every_entry_and_what_removed_it(run: Run, prices: str) -> None:
    lines = run("kv", "history", prices, "eu.*", "--json")[1].splitlines()
    entries = [json.loads(line) for line in lines]
    assert [(one["key"], one["revision"], one["operation"]) for one in entries] == [
        ("eu.a", 2, "PUT"), ("eu.a", 3, "PUT"), ("eu.c", 4, "PUT"), ("eu.c", 5, "DEL"),
    ]  # fmt: skip
    assert run("kv", "history", prices, "us.b")[1].splitlines()[1:] == ["3"]
    assert run("kv", "history", prices, "de.*") == (
        0, "", f"Bucket {prices} has no key that matches de.*.\n",
    )  # fmt: skip

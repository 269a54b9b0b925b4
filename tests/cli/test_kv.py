"""`jetspark kv`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

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

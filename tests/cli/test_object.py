"""`jetspark object`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.support.processes import finish, jetspark

from jetspark import blocking
from jetspark.objects.info import info_subject, to_stored

CONTENT = os.urandom(3_000_000)


@pytest.fixture
def store(url: str, unique: Callable[[str], str]) -> str:
    """An object store with one object."""
    name = unique("reports")
    with blocking.connect(url) as nc:
        created = nc.jetstream().create_object_store(name, storage="memory")
        created.put("a.csv", CONTENT, description="of\nMay", headers={"kind": ["x", "y"]})
    return name


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def messages(url: str, store: str) -> int:
    with blocking.connect(url) as nc:
        status = nc.jetstream().object_store(store).status()
        return status.stream_info.state.messages


def test_ls_lists_stores_or_the_objects_of_one(run: Run, url: str, store: str) -> None:
    code, out, _ = run("object", "ls")
    head, *rows = out.splitlines()
    assert code == 0
    assert head.split() == ["store", "size", "time", "to", "live", "sealed", "description"]
    assert [row.split()[1:3] for row in rows if row.startswith(f"{store} ")] == [["2.9", "MiB"]]
    with blocking.connect(url) as nc:
        opened = nc.jetstream().object_store(store)
        opened.add_link("link", opened.info("a.csv"))
        opened.put("\x1b[2J\nb", b"")
    rows = run("object", "ls", store)[1].splitlines()[1:]
    assert [row.split("  ")[0] for row in rows] == ["\\x1b[2J\\nb", "a.csv", "link"]
    assert "of\\nMay" in rows[1]
    assert f"link to {store}/a.csv" in rows[2]
    documents = json.loads(run("object", "ls", store, "--json")[1])
    assert [one["name"] for one in documents] == ["\x1b[2J\nb", "a.csv", "link"]
    names = [one["config"]["name"] for one in json.loads(run("object", "ls", "--json")[1])]
    assert f"OBJ_{store}" in names


def test_an_object_is_put_shown_fetched_and_removed(run: Run, store: str) -> None:
    Path("b.bin").write_bytes(CONTENT[:200_000])
    assert run("object", "put", store, "b.bin") == (
        0,
        f"Stored b.bin in {store} (195.3 KiB).\n",
        "",
    )
    document = json.loads(run("object", "put", store, "b.bin", "--name", "d/e", "--json")[1])
    assert (document["name"], document["size"]) == ("d/e", 200_000)
    assert run("object", "get", store, "d/e", "--output", "copy")[0] == 0
    assert Path("copy").read_bytes() == CONTENT[:200_000]
    document = json.loads(run("object", "get", store, "a.csv", "--json")[1])
    assert (document["file"], Path("a.csv").read_bytes()) == ("a.csv", CONTENT)
    code, out, _ = run("object", "info", store, "a.csv")
    assert code == 0
    assert "kind: x, kind: y" in out
    assert run("object", "info", store)[1].split()[:2] == ["store", store]
    code, _, err = run("object", "rm", store, "d/e")
    assert (code, "--force" in err) == (1, True)
    assert run("object", "rm", store, "d/e", "--force")[0] == 0
    code, _, err = run("object", "info", store, "d/e")
    assert (code, err) == (1, f'Object "d/e" not found in store "{store}".\n')


def test_a_file_is_replaced_only_with_force(run: Run, store: str) -> None:
    Path("a.csv").write_bytes(b"mine")
    Path("broken").symlink_to("nowhere")
    for arguments in ((), ("--output", "broken")):
        code, _, err = run("object", "get", store, "a.csv", *arguments)
        assert (code, "exists already: add --force" in err) == (1, True)
    assert Path("a.csv").read_bytes() == b"mine"
    assert run("object", "get", store, "a.csv", "--force")[0] == 0
    assert Path("a.csv").read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["../x", "/x", "x/y", "..", ".bashrc", "C:x", "a\x1bb", "a\n"])
def test_a_name_is_no_path(run: Run, url: str, store: str, tmp_path: Path, name: str) -> None:
    with blocking.connect(url) as nc:
        nc.jetstream().object_store(store).put(name, b"evil")
    before = os.listdir(tmp_path.parent)
    code, out, err = run("object", "get", store, name)
    assert (code, out, err) == (
        1,
        "",
        f"{name!r} is not a plain file name: name the file with --output.\n",
    )
    assert (os.listdir("."), os.listdir(tmp_path.parent)) == ([], before)


def test_what_is_not_there_is_one_sentence(run: Run, store: str) -> None:
    for arguments in (
        *(("get", store, "missing"), ("put", store, "missing"), ("put", store, "-")),
        *(("info", f"{store}X"), ("get", store, "a.csv", "--output", "no/such/folder")),
        ("get", store, "a.csv", "--output", "-", "--json"),
    ):
        code, out, err = run("object", *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1), arguments
    assert os.listdir(".") == []


def test_standard_input_and_output(url: str, store: str) -> None:
    with jetspark("object", "put", store, "-", "--name", "in", "--server", url) as putting:
        out, _ = putting.communicate(CONTENT, timeout=60)
    assert (putting.returncode, out.split()[:2]) == (0, [b"Stored", b"in"])
    with jetspark("object", "get", store, "in", "--output", "-", "--server", url) as getting:
        out, _ = getting.communicate(timeout=60)
    assert (getting.returncode, out) == (0, CONTENT)


def test_a_signal_leaves_nothing(url: str, store: str) -> None:
    before = messages(url, store)
    with jetspark("object", "put", store, "-", "--name", "in", "--server", url) as putting:
        assert putting.stdin is not None
        putting.stdin.write(CONTENT)
        putting.stdin.flush()
        for _ in range(600):
            if messages(url, store) > before + 8:
                break
        putting.send_signal(signal.SIGTERM)
        assert finish(putting)[0] == 128 + signal.SIGTERM
    assert messages(url, store) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no FIFOs")
def test_a_signal_does_not_wait_for_the_writer_of_a_pipe(url: str, store: str) -> None:
    os.mkfifo("pipe")
    before = messages(url, store)
    with (
        jetspark("object", "put", store, "pipe", "--server", url) as putting,
        open("pipe", "wb") as pipe,  # opens when the command reads
    ):
        pipe.write(CONTENT)
        pipe.flush()
        putting.send_signal(signal.SIGTERM)
        assert finish(putting)[0] == 128 + signal.SIGTERM
    assert messages(url, store) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no FIFOs")
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_only_files_are_replaced(run: Run, store: str, force: tuple[str, ...]) -> None:
    Path("folder").mkdir()
    os.mkfifo("pipe")
    for output in ("folder", "pipe"):
        code, out, err = run("object", "get", store, "a.csv", "--output", output, *force)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert f"{output} is not a file" in err


def test_names_of_others_stay_on_the_line_of_an_error(run: Run, url: str, store: str) -> None:
    evil = "x\nStored everything.\x1b[2J" + "y" * 1000
    with blocking.connect(url) as nc:
        js = nc.jetstream()
        opened = js.object_store(store)
        opened.add_link("link", opened.put(evil, b"evil"))
        info = opened.info(evil)
        digest = info.replace(name="digest", digest=evil)
        named = info.replace(name=evil, size=5)
        for name, changed in (("digest", digest), ("named", named)):
            js.publish(info_subject(store, name), to_stored(changed))
    for name in ("digest", "named"):
        code, out, err = run("object", "get", store, name, "--output", "x")
        assert (code, out, err.count("\n"), len(err) < 400) == (1, "", 1, True), err
        assert "is damaged" in err
    with blocking.connect(url) as nc:
        nc.jetstream().object_store(store).delete(evil)
    code, out, err = run("object", "get", store, "link", "--output", "x")
    assert (code, out, err.count("\n"), len(err) < 400) == (1, "", 1, True), err
    assert os.listdir(".") == []

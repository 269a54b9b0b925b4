"""Backups as tables: of every server line, field by field what an ordinary read has."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.conftest import MakeServer
from tests.support import archives, ranges, s2
from tests.support.ranges import read, table_of
from tests.support.server_lines import LINES, server_of
from tests.support.streams import Admin, Row, numbered

from jetspark import blocking
from jetspark.backup import BackupProgress, verify_backup
from jetspark.backup import save as backing_up
from jetspark.cli import app
from jetspark.errors import BackupError, ConfigError, DataLossError
from jetspark.ranges.backup import Backup, open_backup
from jetspark.ranges.sequence_range import ReadLimits
from jetspark.timestamps import parse_isotime

MESSAGES = 9_000
_ENCRYPTED = 'jetstream { cipher: chachapoly, key: "secret" }\n'


def table(backup: Backup, *range_: int, **how: Any) -> pa.Table:
    return table_of(backup.read(*range_, **how))


def ordinary(url: str, admin: Admin, stream: str) -> pa.Table:
    return read(url, ranges.whole(admin.facts(stream), from_earliest=True))


def back_up(url: str, stream: str, folder: Path) -> Backup:
    with blocking.connect(url) as nc:
        nc.jetstream().backup_stream(stream, folder)
    return open_backup(folder)


def without_archive(folder: Path) -> None:
    """As the nats tool writes it."""
    document = json.loads((folder / "backup.json").read_text())
    del document["archive"]
    (folder / "backup.json").write_text(json.dumps(document))


def various(name: str, count: int) -> list[Row]:
    """Messages of many sizes, some with headers, under 300 subjects."""
    rng = random.Random(7)
    rows: list[Row] = []
    for number in range(count):
        size = rng.choice((0, 5, 128, 4000))
        data = rng.randbytes(size) if number % 2 else (b'{"id": %d} ' % number) * (size // 11)
        subject = f"{name}.{rng.randrange(300)}"
        headers = [("K", str(number)), ("k", "ü")]
        rows.append((subject, data, headers) if number % 5 == 0 else (subject, data))
    return rows


def spoil(admin: Admin, name: str, count: int = MESSAGES) -> None:
    """Deleted and erased messages, a purged head, a purged subject."""
    rng = random.Random(8)
    for sequence in sorted(rng.sample(range(count // 2, count), 60)):
        if admin.api.message(name, seq=sequence) is not None:
            how = {"seq": sequence, "no_erase": sequence % 2 == 0}
            admin.call(f"STREAM.MSG.DELETE.{name}", how)
    admin.purge(name, seq=count // 10)
    admin.purge(name, filter=f"{name}.77")


# -- every line of servers -------------------------------------------------------------------------


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_rows_are_those_of_an_ordinary_read(
    make_server: MakeServer, tmp_path: Path, line: str, encrypted: bool
) -> None:
    server = make_server(_ENCRYPTED if encrypted else None, binary=server_of(line))
    config: dict[str, Any] = {} if line == "2.9" or not encrypted else {"compression": "s2"}
    # 2.9 delivers an encrypted stream slowly: 9,000 messages in 17 s.
    count = MESSAGES // 3 if encrypted and line == "2.9" else MESSAGES
    with Admin(server.url) as admin:
        admin.create("S", "S.>", max_msgs_per_subject=25, **config)
        admin.fill(various("S", count))
        spoil(admin, "S", count)
        expected = ordinary(server.url, admin, "S")
        backup = back_up(server.url, "S", tmp_path / "backup")
    assert count * 0.4 < expected.num_rows < count * 0.9
    assert table(backup).equals(expected)
    if line != "2.9":  # it counts one message too few after such a purge
        assert backup.facts.messages == expected.num_rows

    parts = backup.parts(max_messages=700)
    assert len(parts) >= count // 3_000
    seen = [pa.Table.from_batches(list(backup.read_part(part))) for part in parts]
    assert pa.concat_tables(seen).combine_chunks().equals(expected)

    start, end = count // 4, count * 3 // 4
    sequences = expected["seq"]
    inside = expected.filter(pc.and_(pc.greater_equal(sequences, start), pc.less(sequences, end)))
    assert table(backup, start, end).equals(inside.combine_chunks())

    under = expected.filter(pc.is_in(expected["subject"], pa.array(["S.5", "S.6"])))
    assert table(backup, subjects=("S.5", "S.6")).equals(under.combine_chunks())


@pytest.mark.parametrize("line", ["2.10", "2.12", "2.15"])
def test_a_stream_that_is_written_to_meanwhile_ends_where_the_backup_began(
    make_server: MakeServer, tmp_path: Path, line: str
) -> None:
    server = make_server(binary=server_of(line))
    with Admin(server.url) as admin, blocking.connect(server.url) as nc:
        admin.create("S", "S.>")
        admin.fill(various("S", MESSAGES))
        js = nc.jetstream()

        def write(_: BackupProgress) -> None:
            js.publish("S.new", b"new")

        js.backup_stream("S", tmp_path / "b", progress=write)
        admin.fill(numbered("S.later", 10))
        expected = ordinary(server.url, admin, "S")
    backup = open_backup(tmp_path / "b")
    assert table(backup).equals(expected.slice(0, backup.facts.last_seq).combine_chunks())


def test_messages_removed_while_the_server_sends_are_counted_and_told(
    make_server: MakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        backing_up, "MAX_UNWRITTEN_BYTES", 1
    )  # the server is at most a window ahead
    folder = tmp_path / "b"
    server = make_server(binary=server_of("2.15"))
    with Admin(server.url) as admin, blocking.connect(server.url) as nc:
        admin.create("S", "S.>")
        rng = random.Random(1)
        admin.fill([("S.a", rng.randbytes(1000)) for _ in range(9_000)])
        js = nc.jetstream()
        steps: list[BackupProgress] = []

        def remove(step: BackupProgress) -> None:
            if not steps:
                js.stream("S").purge(seq=8_000)
                js.stream("S").delete_msg(8_500)
            steps.append(step)

        made = js.backup_stream("S", folder, chunk_size=16_000, window_size=32_000, progress=remove)
    lacks = f"lacks {made.removed:,} of 9,000 messages"
    assert 0 < made.removed < 8_000
    assert made.messages == 9_000 - made.removed
    assert json.loads((folder / "backup.json").read_text())["archive"]["messages"] == made.messages
    assert lacks in caplog.text
    assert app.run(["backup", "info", str(folder)]) == 0
    assert f"removed   {made.removed:,} of 9,000" in capsys.readouterr().out
    with blocking.connect(make_server(binary=server_of("2.15")).url) as nc:
        caplog.clear()
        assert nc.jetstream().restore_stream(folder).cached_info.state.messages == made.messages
        assert lacks in caplog.text
    for strip in (False, True):  # the nats tool writes no number
        if strip:
            without_archive(folder)
        assert verify_backup(folder).removed == made.removed
        backup = open_backup(folder)
        with pytest.raises(DataLossError, match=f"{lacks}.*fail_on_data_loss"):
            backup.read()
        caplog.clear()
        assert table(backup, fail_on_data_loss=False).num_rows == made.messages
        assert lacks in caplog.text
        assert app.run(["stream", "verify", str(folder)]) == 0
        assert f"{made.messages:,} of 9,000 messages" in capsys.readouterr().out


def test_messages_that_are_missing_and_still_stored_are_an_error(
    admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = admin.stream(50)
    monkeypatch.setattr("jetspark.backup.folder.count_messages", lambda *_: 48)
    with pytest.raises(BackupError, match=r"sent 48 of 50 messages .* still has 50 of them"):
        back_up(admin.url, name, tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


# -- other streams and folders ---------------------------------------------------------------------


@pytest.fixture
def backup(admin: Admin, tmp_path: Path) -> Backup:
    name = admin.stream(under=".>")
    admin.fill(various(name, 2_000))
    return back_up(admin.url, name, tmp_path / "backup")


def test_a_time_is_found(backup: Backup, admin: Admin) -> None:
    stored = admin.call(f"STREAM.MSG.GET.{backup.stream}", {"seq": 1234})["message"]["time"]
    ns = parse_isotime(stored)
    found = backup.sequence_at(ns)
    assert found is not None
    assert found <= 1234
    assert backup.sequence_at(ns + 3_600 * 10**9) is None
    assert backup.sequence_at(0) == 1


def test_columns_and_limits_are_those_of_a_range(backup: Backup) -> None:
    limits = ReadLimits(max_rows=300)
    batches = list(backup.read(columns=["seq", "subject"], limits=limits))
    assert batches[0].schema.names == ["seq", "subject"]
    assert max(batch.num_rows for batch in batches) <= 300
    assert sum(batch.num_rows for batch in batches) == 2_000


def test_a_backup_under_a_uri_is_read(backup: Backup) -> None:
    there = open_backup(f"file://{backup.folder}")
    assert table(there).equals(table(backup))


def test_a_backup_of_the_nats_tool_has_no_size_to_compare(backup: Backup, tmp_path: Path) -> None:
    without_archive(tmp_path / "backup")
    assert table(open_backup(tmp_path / "backup")).num_rows == 2_000


def test_an_empty_stream_has_no_rows(admin: Admin, tmp_path: Path) -> None:
    name = admin.stream()
    assert table(back_up(admin.url, name, tmp_path / "new")).num_rows == 0
    admin.fill(numbered(name, 10))
    admin.purge(name)
    assert table(back_up(admin.url, name, tmp_path / "purged")).num_rows == 0


def test_a_stream_in_memory(
    admin: Admin, needs_server: Callable[[str], None], tmp_path: Path
) -> None:
    needs_server("2.15")
    name = admin.stream(under=".>", storage="memory")
    admin.fill(various(name, 500))
    backup = back_up(admin.url, name, tmp_path / "backup")
    assert table(backup).equals(ordinary(admin.url, admin, name))


def test_mistakes_are_one_sentence(backup: Backup, tmp_path: Path) -> None:
    def refuses(place: Path | str, says: str) -> None:
        with pytest.raises((BackupError, ConfigError), match=says):
            open_backup(place)

    refuses(tmp_path, r"is not a backup of a stream: there is no file backup\.json")
    refuses("", "is empty")
    archive = tmp_path / "backup" / "stream.tar.s2"
    data = archive.read_bytes()
    archive.write_bytes(data[:-1])
    refuses(tmp_path / "backup", r"bytes; backup.json says \d+")
    archive.write_bytes(data)
    whole = json.loads((tmp_path / "backup" / "backup.json").read_text())
    spoiled: tuple[dict[str, Any], ...] = (
        {"config": {}},
        {**whole, "archive": "x"},
        {**whole, "state": {**whole["state"], "last_seq": "x"}},
        {**whole, "state": {**whole["state"], "last_seq": 2**64 + 5}},
        {**whole, "config": {**whole["config"], "max_msgs": "x"}},
    )
    for wrong in spoiled:
        (tmp_path / "backup" / "backup.json").write_text(json.dumps(wrong))
        for use in (open_backup, verify_backup):
            with pytest.raises(BackupError, match=r"backup\.json is damaged: [^\n]+$"):
                use(tmp_path / "backup")
    refuses(tmp_path / "nowhere", "nowhere is not a backup of a stream: there is no such folder")
    refuses(archive, "a backup is a folder")
    archive.unlink()
    os.mkfifo(archive)
    refuses(tmp_path / "backup", "there is no file")


def test_wrong_arguments_are_one_sentence(backup: Backup) -> None:
    cases: dict[str, dict[str, Any]] = {
        "'>' may only be the last token": {"subjects": [">.x"]},
        "an empty token": {"subjects": ["a..b"]},
        "it is empty": {"subjects": [""]},
        r"subjects: 'a\.\*' and 'a\.b' overlap; no message": {"subjects": ["a.*", "a.b"]},
        "backup has no column 'sequence'": {"columns": ["sequence", "seq"]},
        "columns is empty": {"columns": []},
        "start cannot be negative": {"start": -1},
        "end must be at least 1": {"end": 0},
    }
    for said, how in cases.items():
        with pytest.raises(ConfigError, match=said):
            backup.read(**how)


def test_a_list_of_messages_is_split_into_as_many_parts_as_asked_for(tmp_path: Path) -> None:
    stored = [(b"s.a", number, 1, b"", b"x" * 99) for number in range(1, 3_001, 3)]
    content = archives.message_list(stored)
    backup = open_backup(archives.write_backup(tmp_path / "b", content, 1, 3_000, 1_000))
    parts = backup.parts(max_messages=143)
    sizes = [sum(batch.num_rows for batch in backup.read_part(part)) for part in parts]
    assert sizes == [143] * 6 + [142]
    rows = [batch for part in parts for batch in backup.read_part(part)]
    assert pa.Table.from_batches(rows).combine_chunks().equals(table(backup))


# -- damage ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["2.12", "2.15"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of each form, with no size in its `backup.json`."""
    from jetspark.server import NatsServer

    folder = tmp_path_factory.mktemp("whole") / "backup"
    with NatsServer(binary=server_of(request.param)) as server, Admin(server.url) as admin:
        admin.create("S", "S.>")
        admin.fill(various("S", 3_000))
        admin.delete_messages("S", 5, 6, 700)
        back_up(server.url, "S", folder)
    without_archive(folder)
    return folder


@pytest.mark.server
def test_an_archive_of_another_backup_or_stream_is_an_error(whole: Path, tmp_path: Path) -> None:
    def newer(document: dict[str, Any]) -> None:
        document["state"]["last_seq"] += 100
        document["state"]["messages"] += 100

    def with_other_times(document: dict[str, Any]) -> None:
        document["state"]["last_ts"] = "2026-01-01T00:00:00Z"

    def with_fewer(document: dict[str, Any]) -> None:
        document["state"]["messages"] -= 1

    def renamed(document: dict[str, Any]) -> None:
        document["config"]["name"] = "T"

    listed = s2.decompress((whole / "stream.tar.s2").read_bytes()).startswith(b"NATSARC1")
    folder = shutil.copytree(whole, tmp_path / "other")
    for change in (newer, with_other_times, with_fewer, *([] if listed else [renamed])):
        document = json.loads((whole / "backup.json").read_text())
        change(document)
        (folder / "backup.json").write_text(json.dumps(document))
        for use in (lambda: table(open_backup(folder)), lambda: verify_backup(folder)):
            with pytest.raises(BackupError, match=r"not of the same backup|is of stream 'S', but"):
                use()


@pytest.mark.server
def test_an_archive_that_was_cut_off_is_an_error(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "cut")
    data = (folder / "stream.tar.s2").read_bytes()
    rng = random.Random(3)
    for size in [0, 5, 10, 20, len(data) - 1, *rng.sample(range(len(data)), 12)]:
        (folder / "stream.tar.s2").write_bytes(data[:size])
        with pytest.raises(BackupError, match=r"cut off|not complete|missing"):
            table(open_backup(folder))


@pytest.mark.server
def test_flipped_bits_never_change_a_row(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "flipped")
    expected = table(open_backup(folder))
    data = (folder / "stream.tar.s2").read_bytes()
    rng = random.Random(4)
    refused = 0
    for _ in range(25):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (folder / "stream.tar.s2").write_bytes(flipped)
        try:
            # What is passed over, such as a consumer's state, may be anything.
            assert table(open_backup(folder)).equals(expected)
        except BackupError:
            refused += 1
    assert refused > 20


def other_byte(data: bytes) -> bytes:
    return data[:50] + b"?" + data[51:]


def _tar(whole: Path, change: Callable[[str, bytes], bytes | None]) -> bytes:
    out = []
    for one in s2.entries((whole / "stream.tar.s2").read_bytes()):
        changed = change(one.name, one.data)
        if changed is not None:
            out.append((one.name, changed))
    return archives.tar_of(out)


@pytest.mark.server
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda name, data: None if name == "msgs/1.blk" else data, "block 1 is missing"),
        (lambda name, data: b"" if name == "msgs/1.blk" else data, "block 1 is missing"),
        (lambda name, data: data[:-20] if name == "msgs/1.blk" else data, "inside a message"),
        (lambda name, data: other_byte(data) if name == "msgs/1.blk" else data, "checksum of a"),
        (lambda name, data: b"\x0b\x09" + data[2:] if name == "msgs/index.db" else data, "version"),
        (lambda name, data: data[:40] if name == "msgs/index.db" else data, "too short"),
    ],
)
def test_damage_behind_right_checksums_of_frames_is_an_error(
    whole: Path, tmp_path: Path, change: Callable[[str, bytes], bytes | None], said: str
) -> None:
    data = s2.decompress((whole / "stream.tar.s2").read_bytes())
    if data.startswith(b"NATSARC1"):
        pytest.skip("not a tar")
    folder = shutil.copytree(whole, tmp_path / "changed")
    (folder / "stream.tar.s2").write_bytes(archives.stream_of(_tar(whole, change)))
    with pytest.raises(BackupError, match=said):
        table(open_backup(folder))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (archives.tar_of([("meta.inf", b"{}"), ("errors.txt", b"Block 3 is bad")]), "Block 3"),
        (archives.tar_of([("meta.inf", b'{"name": "S"}'), ("msgs/1.blk", b"x")]), "has no index"),
        (archives.message_list([(b"s.a", 1, 1, b"", b"x")]).removesuffix(archives.END), "cut off"),
    ],
)
def test_what_is_not_whole_is_an_error(tmp_path: Path, content: bytes, said: str) -> None:
    folder = archives.write_backup(tmp_path / "b", content, 1, 2, 2)
    with pytest.raises(BackupError, match=said):
        table(open_backup(folder))

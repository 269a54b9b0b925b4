"""Where backups may be, and how messages name a place: never with its secrets."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from tests.support import archives

from jetspark import blocking
from jetspark.backup import verify_backup
from jetspark.backup.folder import local_folder, location_of, redact_folder
from jetspark.cli import app
from jetspark.errors import ConfigError, JetsparkError
from jetspark.ranges._backup_files import read_error
from jetspark.ranges.backup import open_backup
from jetspark.server import NatsServer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    stored = [(b"s.a", number, 1, b"", b"x") for number in range(1, 6)]
    return archives.write_backup(tmp_path / "a b", archives.message_list(stored), 1, 5, 5)


@pytest.mark.parametrize(
    "uri",
    [
        "s3a://AKEY:SECRETKEY@x/y?z=SECRETOPT",
        "S3://AKEY:SECRETKEY@x/y?z=SECRETOPT",
        "https://x/y?sig=SECRETOPT",
        "s3://AKEY:SECRETKEY@x/y?no_such_option=SECRETOPT",
        "s3://AKEY:SECRETKEY/SECRETKEY+@x/y?region=a",
        "s3://AKEY:SECRETKEY?SECRETKEY@x/y",
        "s3://AKEY:SECRETKEY#SECRETKEY@x/y",
        "s3://AKEY:SECRETKEY",
        "s3://AKEY:SECRET SECRETKEY@x/y",
        "s3://AKEY:SECRETKEY@x/%2",
        "s3://AKEY:SECRETKEY@x/y?region=[&z=SECRETOPT",
        "s3://AKEY:SECRETKEY@x:99x/y",
        "file://AKEY:SECRETKEY@h/x",
        "file:///x?z=SECRETOPT",
        "abfss://AKEY:SECRETKEY@x/y?z=SECRETOPT",
    ],
)
def test_no_message_has_a_secret(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    for call in (open_backup, verify_backup):
        with pytest.raises(JetsparkError) as failed:
            call(uri)
        assert "SECRET" not in "".join(traceback.format_exception(failed.value))
    for command in (["backup", "info"], ["stream", "verify"], ["stream", "restore"]):
        assert app.run([*command, uri]) == 1
        said = capsys.readouterr().err
        assert "SECRET" not in said
        assert len(said.splitlines()) == 1


def test_what_a_library_says_is_told_unless_it_has_a_secret() -> None:
    place = "s3://AKEY:SECRET%2FKEY@x/y?region=eu-west-1&session_token=SECRETOPT"
    for text in (f"no such {place}", "SECRET/KEY is wrong", "not 'SECRETOPT'", "a\nSECRETOPT"):
        told = str(read_error(place, OSError(text)))
        assert told.startswith("Cannot read the backup s3://x/y: check its URI")
        assert "SECRET" not in told
    told = str(read_error("s3://AKEY:A@SECRET/@x/y", OSError("no bucket 'SECRET'")))
    assert told.startswith("Cannot read the backup s3://…: check its URI")
    told = str(read_error(place, OSError("no region eu-west-1\nTrace")))
    assert told == "Cannot read the backup s3://x/y: no region eu-west-1."


@pytest.mark.parametrize(
    ("folder", "shown"),
    [
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("s3://KEY:KEY2@bucket:9000/a?b=c", "s3://bucket:9000/a"),
        ("s3:/KEY:KEY2@bucket/a", "s3://bucket/a"),
        ("hdfs://name:8020/a", "hdfs://name:8020/a"),
        ("hdfs:///a", "hdfs:///a"),
        ("file:///a", "file:///a"),
        ("s3://KEY:a/b@bucket/a", "s3://…"),
        ("backups/a@b", "backups/a@b"),
    ],
)
def test_a_folder_in_messages(folder: str, shown: str) -> None:
    assert redact_folder(folder) == shown


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3a://x/y", "Cannot open the backup s3a://x/y: it must be a folder, or a text such as"),
        (Path("s3://x/y"), r"s3://x/y: it must be a folder, or a text such as s3://bucket/folder"),
        ("abfss://c@127.0.0.1/x", "PyArrow ends the whole process when Azure refuses; copy"),
        ("abfs://c@127.0.0.1/x", "copy the backup to a folder"),
        ("file:///a?b=c", "file:///a: a file URI is file:///path, without a host and options"),
        ("file://host/a", "without a host and options"),
        ("file:a/b", "file:a/b: a file URI is file:///path"),
        ("s3://", "a text such as s3://bucket/folder"),
    ],
)
def test_other_places_are_refused_with_what_to_write(place: str | Path, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_backup(place)
    with pytest.raises(ConfigError):
        local_folder(place)


def test_a_file_uri_is_its_path(folder: Path) -> None:
    encoded = str(folder).replace(" ", "%20")
    for uri in (f"file://{encoded}", f"file:{encoded}", f"FILE://{encoded}"):
        assert location_of(uri) == str(folder)
        assert open_backup(uri).messages == 5
        assert verify_backup(uri).messages == 5


def test_a_uri_is_shown_and_represented_without_its_secrets(folder: Path) -> None:
    backup = open_backup(folder)
    stored = type(backup)("s3://K:SECRET@x/y?z=SECRET", backup.metadata, backup.facts, backup.size)
    assert stored.folder == "s3://x/y"
    assert "SECRET" not in repr(stored)


@pytest.mark.parametrize("uri", ["s3://K:SECRET@x/y?endpoint_override=z", "gs://x/y"])
def test_backups_are_written_verified_and_restored_on_this_machine_only(
    uri: str,
    shared_server: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"{uri[:2]}://x/y is not a folder of this machine: use the commands"
    with blocking.connect(shared_server.url) as nc:
        for place in (uri, Path(uri)):
            with pytest.raises(ConfigError, match=name):
                nc.jetstream().backup_stream("S", place)
            with pytest.raises(ConfigError, match=name):
                nc.jetstream().restore_stream(place)
    assert not list(tmp_path.iterdir())

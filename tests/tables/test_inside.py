"""Which files are a table's, by their names: on this machine and on object stores."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from jetspark.errors import ConfigError
from jetspark.tables import inside
from jetspark.tables.delta.files import DeltaStorage
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.iceberg.storage import IcebergStorage
from jetspark.tables.table import TableName

pytestmark = pytest.mark.tables
LOCATIONS = ["/lake/t", "file:/lake/t", "file:///lake/t", "s3://lake/t", "s3a://l/t/", "gs://l/t"]
PARTS = st.sampled_from(
    [
        "..", ".", "", "a", "%2e%2e", "..%2F", "b=..", "t", "t2", "data", "\0", "~", ".\t.", "\n..",
        ".\r.", "?", "a?b", "#", "a#b", "..\\", "\\", " ", "file:", "a:b",
    ]
)  # fmt: skip
SCHEMES = st.sampled_from(
    ["", "file:", "file://", "FILE://", "file://localhost", "s3://", "\t", " "]
)
PATHS = st.lists(PARTS, min_size=1, max_size=6).map("/".join)


@pytest.mark.parametrize(
    ("location", "uri", "path"),
    [
        ("s3://b/t", "s3a://b/t/data/a.parquet", "data/a.parquet"),
        ("file:///x/t", "/x/t/data/a.parquet", "data/a.parquet"),
        ("/x/t", "file:/x/t/data/a.parquet", "data/a.parquet"),
        ("file:///x/t", "file:///x/t2/data/a.parquet", None),
        ("file:///x/t", "file:///x/t/../t2/a.parquet", None),
        ("file:///x/t", "file:///x/t/data/../../t2/a.parquet", None),
        ("file:///x/t", "file:///x/t", None),
        ("file:///x/t", "data/a.parquet", None),
        ("file:///x/t", "../t2/a.parquet", None),
        ("file:///x/t", "file://localhost/x/t/a.parquet", None),
        ("s3://b/t", "s3://b2/t/a.parquet", None),
        ("s3://b/t", "s3://b/t/../t2/a.parquet", None),
        ("s3://b/t", "s3://b/t/./a.parquet", None),
        ("file:///x/t", "FILE:///x/t/a.parquet", "a.parquet"),
        ("file:///x/t", "file:///x/t/.\t./t2/a.parquet", None),
        ("file:///x/t", "file:///x/t/.\n./t2/a.parquet", None),
        ("file:///x/t", "file:///x/t/.\r./t2/a.parquet", None),
        ("file:///x/t", "file:///x/t/link?x", None),
        ("file:///x/t", "file:///x/t/link#x", None),
        ("file:///x/t", "file:///x/t/..\\t2\\a.parquet", None),
        ("file:///x/t", " file:///x/t/a.parquet", None),
        ("s3://b/t", "b/t/a.parquet", None),
        ("s3://b/t", "file://b/t/a.parquet", None),
        ("s3://b/t", "hdfs://b/t/a.parquet", None),
        ("gs://b/t", "gcs://b/t/a.parquet", "a.parquet"),
    ],
)
def test_a_file_is_below_its_location_or_refused(location: str, uri: str, path: str | None) -> None:
    assert inside.relative_path(location, uri) == path
    if path is None:
        with pytest.raises(ConfigError, match="not in its folder"):
            inside.check_files(location, [uri])
        assert inside.files_inside(location, [uri]) == {}
    else:
        inside.check_files(location, [uri])
        assert inside.files_inside(location, [uri]) == {uri: path}


@given(st.sampled_from(LOCATIONS), PATHS, st.booleans())
def test_no_name_leads_out(location: str, path: str, absolute: bool) -> None:
    uri = path if absolute else f"{location.rstrip('/')}/{path}"
    found = inside.relative_path(location, uri)
    if found is not None:
        assert inside.is_plain_path(found)
        root = "/root"
        there = posixpath.normpath(f"{root}/{found}")
        assert there.startswith(f"{root}/")


@given(st.sampled_from(LOCATIONS), SCHEMES, PATHS)
def test_pyiceberg_opens_the_file_that_was_judged(location: str, scheme: str, path: str) -> None:
    """The file that the library makes of a name is below what it makes of the location."""
    for uri in (f"{scheme}{path}", f"{location}/{path}", f"{scheme}/lake/t/{path}"):
        found = inside.relative_path(location, uri)
        if found is not None:
            root = PyArrowFileIO.parse_location(location.rstrip("/"))[2]
            assert PyArrowFileIO.parse_location(uri)[2] == posixpath.normpath(
                f"{root}/{found}"
            ) or (PyArrowFileIO.parse_location(uri)[2] == f"{root}/{found}")


@pytest.mark.parametrize(
    "location", ["/x/.\t./t", "file:///x/t?a", "s3://b/t#a", "x/t", "file://host/x/t", ""]
)
def test_a_location_that_libraries_misread_has_no_files(location: str) -> None:
    assert inside.relative_path(location, f"{location}/a") is None
    with pytest.raises(ConfigError, match="location"):
        inside.check_path(location, "a")


@given(PATHS)
def test_encoded_names_do_not_lead_out_whoever_decodes_them(path: str) -> None:
    for name in (path, quote(path)):
        try:
            inside.check_relative_paths("s3://b/t", [name])
        except ConfigError:
            continue
        for one in (name, unquote(name)):
            # As deltalake, which joins URLs: they read a backslash as a slash.
            joined = urljoin("http://h/root/", one.replace("\\", "/"))
            assert joined.startswith("http://h/root/")


@given(PATHS)
def test_storage_takes_no_name_that_leads_out(path: str) -> None:
    """Also on object stores, whose clients may join the parts of a name."""
    storages = (DeltaStorage("s3://b/t", {}), IcebergStorage("s3://b/t", {}))
    if inside.is_plain_path(path):
        return
    for storage in storages:
        for use in (storage.open, storage.create, storage.remove):
            with pytest.raises(ConfigError, match="not in its folder"):
                use(path)


def test_what_is_behind_a_link_is_found_at_every_depth(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a").write_text("")
    table = tmp_path / "t"
    (table / "data" / "deep").mkdir(parents=True)
    (table / "data" / "a").write_text("")
    (table / "data" / "file").symlink_to(tmp_path / "other" / "a")
    (table / "data" / "deep" / "folder").symlink_to(tmp_path / "other")
    (table / "dangling").symlink_to(tmp_path / "nowhere")
    deep = "data/deep/folder"
    paths = ["data/a", "data/file", f"{deep}/a", f"{deep}/new", "dangling", "new/b"]
    for location in (str(table), f"file://{table}", f"file:{table}"):
        assert inside.paths_behind_links(location, paths) == set(paths[1:5])
    for path in paths[1:5]:
        with pytest.raises(ConfigError, match="symbolic link"):
            inside.check_path(str(table), path)
    # The table's own folder may be one.
    os.symlink(table, tmp_path / "named")
    assert inside.paths_behind_links(str(tmp_path / "named"), ["data/a"]) == set()


def test_a_pipe_is_no_file_of_a_table(tmp_path: Path) -> None:
    """Whoever opens it would wait for ever."""
    (tmp_path / "t" / "data").mkdir(parents=True)
    os.mkfifo(tmp_path / "t" / "data" / "a")
    location = f"file://{tmp_path}/t"
    error = "a pipe or a device"
    with pytest.raises(ConfigError, match=error):
        inside.check_files(location, [f"{location}/data/a"])
    with pytest.raises(ConfigError, match=error):
        inside.check_path(location, "data/a")
    with pytest.raises(ConfigError, match=error):
        inside.check_relative_paths(location, ["data/a"])
    with pytest.raises(ConfigError, match=error):
        inside.check_no_links_in(location, "data")


@pytest.mark.parametrize("target", ["pipe", "/dev/zero", "outside"])
def test_a_hint_of_the_version_is_a_file_of_the_table(tmp_path: Path, target: str) -> None:
    name = TableName(path=str(tmp_path / "t"))
    open_or_create_table(Format.ICEBERG, name, pa.schema([("n", pa.int64())]), ())
    hint = tmp_path / "t" / "metadata" / "version-hint.text"
    hint.unlink()
    (tmp_path / "outside").write_text("1")
    if target == "pipe":
        os.mkfifo(hint)
    else:
        hint.symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match="version-hint"):
        open_table(Format.ICEBERG, name)


@pytest.mark.parametrize("storage", [DeltaStorage, IcebergStorage])
@pytest.mark.parametrize("path", ["link/a", "data/link/a", "data/a/b"])
def test_nothing_is_removed_behind_a_link_that_was_made_after_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: Any, path: str
) -> None:
    monkeypatch.setattr("jetspark.tables.inside.paths_behind_links", lambda *_: set())
    (tmp_path / "t" / "data").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a").write_text("somebody's")
    (tmp_path / "t" / "data" / "a").write_text("")
    for link in ("link", "data/link"):
        (tmp_path / "t" / link).symlink_to(tmp_path / "other")
    files = storage(f"file://{tmp_path}/t", {})
    with pytest.raises(ConfigError, match="symbolic link"):
        files.remove(path)
    assert (tmp_path / "other" / "a").exists()
    with pytest.raises(FileNotFoundError):
        files.remove("data/b")
    files.remove("data/a")
    assert not (tmp_path / "t" / "data" / "a").exists()

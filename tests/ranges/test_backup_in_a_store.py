"""Backups that were copied into an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow.fs as fs
import pytest
from tests.ranges.test_backup import back_up, table
from tests.support.object_store import object_store
from tests.support.streams import Admin, numbered

from jetspark.errors import BackupError, ConfigError, JetsparkError
from jetspark.ranges.backup import open_backup
from jetspark.server import NatsServer


@pytest.mark.full
def test_a_backup_in_an_object_store_is_read(
    shared_server: NatsServer, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("STORED")
    with Admin(shared_server.url) as admin:
        admin.create(name, name)
        admin.fill(numbered(name, 500))
    here = back_up(shared_server.url, name, tmp_path / "backup")
    with object_store("backups") as url:
        options = f"endpoint_override={quote(url, safe='')}&region=us-east-1"
        uri = f"s3://key:s3cret@backups/of/{name}"
        system, path = fs.FileSystem.from_uri(f"{uri}?{options}")
        for file in (tmp_path / "backup").iterdir():
            with system.open_output_stream(f"{path}/{file.name}") as out:
                out.write(file.read_bytes())
        assert table(open_backup(f"{uri}?{options}")).equals(table(here))
        told: list[tuple[str, type[JetsparkError]]] = [
            (f"{uri}2?{options}", ConfigError),
            (f"{uri}?endpoint_override=http%3A%2F%2F127.0.0.1%3A1", BackupError),
            (f"{uri}?no_such_option=1", BackupError),
        ]
        for wrong, kind in told:
            with pytest.raises(kind, match=f"s3://backups/of/{name}") as caught:
                open_backup(wrong)
            assert "s3cret" not in str(caught.value)

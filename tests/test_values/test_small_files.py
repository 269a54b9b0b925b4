"""Files that people write are read up to a size: some devices have no end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jetspark import files
from jetspark.cli import app
from jetspark.connection.contexts import from_context
from jetspark.connection.credentials import read_credentials
from jetspark.documents.configuration import config_to_wire
from jetspark.documents.streams import StreamConfig
from jetspark.errors import ConfigError
from jetspark.files import read_small_text
from jetspark.server import NatsServer
from jetspark.spark.pipelines.pipeline_file import read_pipeline


@pytest.mark.parametrize(
    "read",
    [
        read_pipeline,
        lambda path: config_to_wire(StreamConfig, path, {}),
        lambda path: read_credentials("creds_file", path),
        lambda path: from_context("large", {"XDG_CONFIG_HOME": str(path.parent)}),
    ],
)
def test_a_file_that_is_too_large_is_refused_in_a_sentence(
    read: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    large = tmp_path / "large.json"
    large.write_text("{}" + " " * (1 << 20))
    (tmp_path / "nats").mkdir()
    (tmp_path / "nats" / "context").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=r"has more than 1 MiB: is it|is not a JSON object"):
        read(large)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="Unix has it")
def test_a_device_is_read_up_to_a_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app.run(["run", "/dev/zero"]) == app.FAILED
    assert capsys.readouterr().err == "/dev/zero has more than 16 MiB: is it the right file?\n"
    with pytest.raises(ConfigError, match="is a device"):
        NatsServer(config="/dev/zero")
    with open("/dev/zero") as zero:
        monkeypatch.setattr("sys.stdin", zero)
        assert app.run(["pub", "x", "--stdin"]) == app.FAILED
    assert "Standard input has more than 64 MiB" in capsys.readouterr().err


def test_a_pipe_is_read_to_its_end_as_shells_give_one(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_text("a\r\nb"))
    writer.start()
    assert read_small_text(fifo) == "a\nb"
    writer.join()
